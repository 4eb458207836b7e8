"""A folder for PYTHONPATH, whose `sitecustomize.py` each Python from 3.8 on runs at its start, without this package."""
