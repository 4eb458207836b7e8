"""Differences of two runs, for `postmortem diff`.

comparison.py     two paths -> the comparison with its headline
run.py            a path -> its document, and the distinct lines of its logs
settings.py       versions and settings that a run prints
differences.py    all differences but lines
lines.py          lines that one run has and the other lacks
"""
