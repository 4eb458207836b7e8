"""`postmortem watch LOGS`: a hang is named while it hangs.

    command.py     the rounds: what is new, is anybody at work, what is shown, how it ends
    follow.py      files that grow, rotate, appear, are cut short: only what is new is read
    state.py       one row for each rank: its last step, its last line
    phases.py      parts of a job that may be silent: the start, a compilation, a checkpoint ...
    rhythm.py      how long this run may be silent, by its own earlier quiet; when it stands still
    life.py        signs of life in /proc and in stacks: CPU time, reads and writes, other lines of code
    stacks.py      the evidence of a standstill in one folder, and what `analyze` says of it
    show.py        rows for a terminal, plain lines, JSON lines

Nothing here judges who is to blame: that is `analyze`, run on the logs and the folder of stacks.
"""
