"""The closed lists of words: what a pattern file may say, and what the incident document says."""

from __future__ import annotations

CATEGORIES = (
    "host-oom",
    "gpu-oom",
    "gpu-hardware",
    "gpu-fault",
    "native-crash",
    "shared-memory",
    "collective-mismatch",
    "hang",
    "network",
    "rendezvous",
    "python-exception",
    "ddp-usage",
    "numerics",
    "storage",
    "checkpoint",
    "resource-limit",
    "environment",
    "scheduler",
    "external-signal",
    "peer-lost",
)
ROLES = ("cause", "symptom", "confirms", "context")
SEVERITIES = ("fatal", "error", "warning", "info")
STATUSES = ("draft", "stable", "deprecated")
ENTITIES = ("self", "rank", "pid", "gpu", "host", "peer", "missing-ranks", "job")
JOINS = ("same-pid", "same-rank", "same-host", "same-gpu", "same-group", "peer", "any")
SPEAKERS = ("rank", "launcher", "kernel", "scheduler", "cluster", "tool")
STRENGTHS = ("stated", "compared", "ended", "silent")
TELLS = (
    "exit",  # the launcher's report of one worker's end, by pid or local rank
    "end",  # anybody else's word on how a process ended
    "asks",  # the launcher asks workers to stop, since another one ended
    "forces",  # and kills what did not obey
    "stop",  # somebody outside ended the whole job
    "asked",  # a process says itself that it was asked to stop
    "aborts",  # one rank ended the whole job
    "lost",  # a process is gone, says who looked after it
    "node-lost",  # a node is gone, says who gave it to the job
    "killed",  # a process was killed from outside, and not by the OOM killer
    "oom-count",  # a memory cgroup counted OOM kills
    "child",  # a rank speaks of a child of its own, by pid
    "wait",  # a rank waited for others until a time-out
    "count",  # how far a rank had come in a process group
    "announces",  # a rank names the collective that it was in
    "laggards",  # the library compared the ranks, and names those that did not come
    "join-wait",  # a rank waited in the store for others to come
    "join-count",  # and says how many came
    "no-store",  # a rank found no store
    "communicator",  # NCCL's own map of ranks, processes and GPUs
    "proxy",  # a thread that serves one rank's process
    "works",  # only a rank that has got through a step prints it
    "death",  # a life of the job is over, if the ranks begin anew behind it
    "birth",  # a life of the job begins
    "shm-full",  # no room in /dev/shm, whoever met it
    "standstill",  # somebody who watched the job saw that no rank got on
    "again",  # the next life of the job begins
)
CONDITIONS = ("joined", "only-kernel", "first-trouble", "several-hosts")
LASTS = ("once", "repeated")
SURVIVALS = ("anyone", "never")
TOPICS = ("own", "around")
ACTIONS = (
    "fix-code",
    "fix-config",
    "add-memory",
    "drain-host",
    "replace-gpu",
    "check-network",
    "check-storage",
    "restart",
    "resubmit",
    "none",
)
CLOCK_STATES = ("aligned", "weak", "refused")
AT_HAND = ("stacks", "recorder", "kernel-log")  # what an action may ask for

WINDOW = "the time window"  # in place of a path in the ledger: `--since` and `--until` left nothing to read

# Why a file was left out that is no log
OWN_REPORT = "a report of this tool, not a log"
STATE = "the state of a host, saved by postmortem collect for its reader: no log"
WRITTEN_REASON = "a program, notes or settings by its name, and no log: name the file itself to have it read"
# Formats of weights, data sets and pictures; any other binary may be a log in a wrapping of its own.
DATA = (
    "image", "parquet", "arrow", "HDF5", "numpy array", "numpy arrays", "safetensors", "PyTorch checkpoint",
    "Python bytecode",
)  # fmt: skip
NO_LOGS = (OWN_REPORT, STATE, WRITTEN_REASON, *(f"binary ({what})" for what in DATA))
DIFFERENCES = (
    "verdict",
    "version",
    "world",
    "setting",
    "step-time",
    "hosts",
    "missing",
)  # most telling first
