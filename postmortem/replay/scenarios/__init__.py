"""The jobs: stand-alone training scripts,
copied beside `trainer.py` and run in their own processes, never imported here."""
