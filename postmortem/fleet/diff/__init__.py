"""Differences of two runs, for `postmortem diff`.

comparison.py     two paths -> the comparison with its headline, and lines that one run has and the other lacks
run.py            a path -> its document, the distinct lines of its logs, versions and settings
differences.py    all differences but lines
"""
