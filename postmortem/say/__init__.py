"""Sentences of the verdict."""
