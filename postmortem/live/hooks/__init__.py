"""A folder for PYTHONPATH with a `sitecustomize.py` that each Python from 3.8 on runs at its start."""
