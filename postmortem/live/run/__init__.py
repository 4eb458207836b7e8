"""`postmortem run -- COMMAND`: a job runs as it would alone, and what would tell why it failed is kept.

    command.py     the command: a folder, the child, its end, the verdict
    child.py       starts it, passes signals on, waits for it and for what it leaves behind
    ends.py        which process is which rank, how it ended, and whether the OOM killer did it
    asking.py      where the living ranks stand when the first one fails, or somebody ends the job
    quiet.py       whether the job stood still then
    tee.py         the process between the child and the terminal: it copies both streams to files
    processes.py   what /proc tells of the job's processes: rank, signals caught, how one ended
    counters.py    the memory cgroup, pressure and the kernel's log, before and after
    switches.py    what is switched on for the child, and what that costs
    record.py      the folder and its journal, `run.jsonl`

Two rules hold everywhere. What the child sees and does is what it would see and do alone; and a trouble
of ours (a full disk, no cgroup, no right) costs evidence, never the job nor its exit code.
"""
