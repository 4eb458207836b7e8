"""Which lines are one run: the jobs in a folder, and the attempts of each job.

    folders.py     which files are of one job; asked before the clocks are compared
    cuts.py        where in a log, or between the parts of a rotated one, a new attempt begins
    attempts.py    the attempt of a line that has none: of a kernel log, of a launcher

The last two need the times of all lines on one clock: a pipe may hold lines back until after the report of the end.
"""
