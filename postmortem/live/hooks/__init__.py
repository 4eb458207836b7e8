"""A folder for PYTHONPATH: Python runs `sitecustomize.py` of it at each start, and that makes a rank tell how
it ended and where it stands. Nothing in it needs this package: it runs in whatever Python the job has, from
3.8 on, and only the standard library is there.

    sitecustomize.py       what Python looks for; it hands on to the one that would have been found
    postmortem_hook.py     what a rank notes
"""
