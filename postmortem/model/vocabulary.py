"""The closed lists of words of pattern files and of the incident document."""

from __future__ import annotations

from typing import Literal

CATEGORIES = (
    "host-oom", "gpu-oom", "gpu-hardware", "gpu-fault", "native-crash", "shared-memory", "collective-mismatch", "hang",
    "network", "rendezvous", "python-exception", "ddp-usage", "numerics", "storage", "checkpoint", "resource-limit",
    "environment", "scheduler", "external-signal", "peer-lost",
)  # fmt: skip
OF_PEERS = ("peer-lost", "rendezvous", "hang")  # complaints of a rank about others
OF_THE_GROUP = ("collective-mismatch", "hang")  # one rank's line reports them, only a comparison finds the rank
ROLES = ("cause", "symptom", "confirms", "context")
SEVERITIES = ("fatal", "error", "warning", "info")
LOUD = SEVERITIES[:2]
STRENGTHS = ("stated", "compared", "ended", "silent")
EventKind = Literal[
    "restart",  # a count or a script begins again
    "counter",  # a memory cgroup's counters
    "crash",  # a block of a fault handler, a debugger or a terminated C++ program
    "cut",  # a traceback without its end
    "exception",
    "exit",  # the end of a process, as a launcher or a script reports it
    "fact",  # a value that another tool found out
    "fault",  # a line of a library with an error code
    "finished",  # a completion as last word
    "identity",  # rank, pid, host or versions of a writer
    "job",  # the number, the name or the command of a job
    "line",  # the first, the last or another notable line of a writer
    "memory",  # a snapshot of GPU memory
    "notice",  # a complaint that no pattern need know
    "oom-tasks",  # the tasks that the kernel lists before it kills one
    "own-verdict",  # a verdict of this program, which is no evidence
    "pattern",  # a pattern matched a line
    "pid",  # of a rank
    "process",  # a row of a table of processes
    "progress",  # a step
    "recorder",  # the dump of a flight recorder
    "stack",
    "stamp",  # a time for the comparison of clocks, as is
    "sync",  # marks of many lines
    "unreadable",  # a document that cannot be read
    "mentioned",  # an exception that a line mentions
    "worked",  # a sign of work
]
TELLS = (  # the meaning of a pattern's line for the reasoning over several ranks
    "exit",  # the launcher's report of one worker's end, by pid or local rank
    "end",  # another report of how a process ended
    "asks",  # the launcher asks workers to stop, because another one ended
    "forces",  # and kills workers that did not stop
    "stop",  # a user or a system ended the whole job
    "asked",  # a process reports that it was asked to stop
    "aborts",  # one rank ended the whole job
    "child",  # a rank reports a child of its own, by pid
    "wait",  # a rank waited for others until a time-out
    "call",  # and what it waited for was a remote call, no collective
    "count",  # how far a rank had come in a process group
    "announces",  # a rank names the collective that it was in
    "laggards",  # the library compared the ranks, and names those that did not come
    "joins",  # a rank announces itself to a group, and how many have
    "join-wait",  # a rank waited in the store for others to come
    "no-store",  # a rank found no store
    "no-start",  # a command or a script was not found, so its program never ran
    "store",  # the store could not be opened
    "raiser",  # a further line of an exception's message, with the rank that raised it
    "communicator",  # NCCL's own map of ranks, processes and GPUs
    "proxy",  # a thread that serves one rank's process
    "works",  # printed only by a rank that completed a step
    "death",  # an attempt is over, if the ranks begin anew after it
    "birth",  # an attempt begins
    "shm-full",  # no room in /dev/shm, whichever process met it
    "standstill",  # a watcher of the job saw that no rank made progress
    "again",  # the next attempt begins
)
SURVIVED_BY = ("work", "finish", "finite-loss", "nothing")  # or the pattern whose line ends the trouble
CONDITIONS = ("joined", "alone", "only-kernel", "first-trouble", "several-hosts")
ACTIONS = (
    "fix-code", "fix-config", "add-memory", "drain-host", "replace-gpu", "check-network", "check-storage", "restart",
    "resubmit", "none",
)  # fmt: skip
CLOCK_STATES = ("aligned", "weak", "refused")
AT_HAND = ("stacks", "recorder", "kernel-log")  # evidence that an action may ask for
CULPRITS = ("one-rank", "several-ranks")  # how many ranks an action does not fit; one or none
PLACES = ("entered", "missing")  # where all culprits were in the collective of the verdict

WINDOW = "the time window"  # in place of a path in the ledger: `--since` and `--until` left nothing to read

# Why a file was left out that is no log
OWN_REPORT = "a report of this tool, not a log"
STATE = "the state of a host, saved by postmortem collect for its reader, not a log"
WRITTEN_REASON = "a program, notes or settings by its name, not a log: name the file itself to have it read"
# Formats of weights, data sets and pictures; any other binary may be a log in a wrapping of its own.
DATA = (
    "image", "parquet", "arrow", "HDF5", "numpy array", "numpy arrays", "safetensors", "PyTorch checkpoint",
    "Python bytecode",
)  # fmt: skip
NO_LOGS = (OWN_REPORT, STATE, WRITTEN_REASON, *(f"binary ({what})" for what in DATA))
DIFFERENCES = ("verdict", "version", "world", "setting", "step-time", "hosts", "missing")  # the most important first
CAUSES = (  # why a symptom came about: ids of `causes` in the document, and of patterns/causes
    "host-memory", "memory-limit", "scheduler-stop", "killed-by-person", "launcher-teardown", "binary-mismatch",
    "fork-after-threads", "bad-input", "custom-kernel", "nccl-transport", "stack-overflow", "shared-memory-full",
    "shared-tensor-race", "bad-hardware", "library-bug", "branch-on-rank", "uneven-data", "slow-rank", "silent-death",
    "input-stall", "transport-first", "network-loss", "gpu-stuck", "collective-order", "lock", "shapes-differ",
    "blocking-call", "frozen-process", "missing-process", "wrong-address", "name-resolution", "port-blocked",
    "port-in-use", "wrong-interface", "late-start", "env-mismatch", "version-mismatch", "duplicate-rank",
    "low-memory-master", "stale-store", "node-lost", "crash-elsewhere", "exception-above", "import-or-arguments",
    "script-exit", "batch-too-large", "other-process", "fragmentation", "rank0-loads-all", "kept-graph",
    "evaluation-with-grad", "optimizer-states", "variable-length", "index-out-of-range", "library-version",
    "driver-mismatch", "learning-rate", "bad-batch", "half-precision", "resume-mismatch", "disk-full", "quota",
    "permission", "path-on-one-host", "interrupted-save", "network-filesystem", "shape-or-name-changed",
    "loader-copies", "limit-too-low", "leak", "program-error",
)  # fmt: skip
LIKELIHOODS = ("likely", "possible", "unlikely but costly")
