"""What differs between two runs, for `postmortem diff`.

comparison.py     two paths -> what differs, and the sentence on top
run.py            a path -> its document and what was said in its logs
settings.py       versions and settings that a run tells of
differences.py    what differs but lines, by how much it tells
lines.py          the lines that one has and the other lacks
"""
