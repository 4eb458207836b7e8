"""The version of the program, which every document names."""

__version__ = "0.1.0"
