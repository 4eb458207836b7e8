"""Tools for authors of patterns: lint, trial, skeleton, catalog."""
