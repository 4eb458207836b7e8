"""The ranks that live on this host, found by their environment: no help from the job, no signal.

    /proc/4711/environ: RANK=0 LOCAL_RANK=0 WORLD_SIZE=8 ...  ->  Rank(number=0, pid=4711, ...)

torchrun, accelerate and Lightning set RANK; under a bare srun or mpirun a rank has that launcher's number. A
rank's children inherit the variables: a worker of a DataLoader is a child that runs the same command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

NUMBERS = (  # and the size of the world, or what else a rank has and its launcher's script has not
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_ID"),
)
JOB = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
ENVIRON_MAX = 1 << 20
CHILDREN = 4  # workers of one rank that are looked at


@dataclass(frozen=True)
class Rank:
    """One rank's process."""

    number: int
    pid: int
    parent: int
    uid: int
    state: str  # R, S, D, T, Z as the kernel has it
    start: float  # seconds since 1970
    kind: str  # the variable that says the number
    job: str  # what its job is told by
    ids: tuple[str, ...] = ()  # of torchrun's run and of Slurm's job
    dumps: tuple[str, ...] = ()  # prefixes of its flight-recorder dumps
    children: tuple[int, ...] = ()


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with. Raise OSError where it may not be read."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        data = file.read(ENVIRON_MAX)
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def status(pid: int) -> tuple[str, int, int]:
    """State, parent and start in clock ticks since boot."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read(4096).rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[19])


def processes() -> list[int]:
    """All pids, those in uninterruptible sleep last: reading of them may hang too."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    asleep = set()
    for pid in pids:
        try:
            if status(pid)[0] == "D":
                asleep.add(pid)
        except (OSError, ValueError, IndexError):
            continue
    return sorted(pids, key=lambda pid: (pid in asleep, pid))


def candidates() -> Iterator[Rank]:
    """Every Python process that has a rank's number, children too, as they are found."""
    ticks = os.sysconf("SC_CLK_TCK")
    booted = _booted()
    own = _ancestors()  # srun gives who collects a task's number too
    for pid in processes():
        if pid in own:
            continue
        try:
            # the name of the file that runs: a launcher's shell has the variables too
            if not os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python") or _ours(pid):
                continue
            state, parent, start = status(pid)
            uid = os.stat(f"/proc/{pid}").st_uid
            found = _rank(environment(pid))
        except (OSError, ValueError, IndexError):
            continue
        if found is not None:
            yield Rank(pid=pid, parent=parent, uid=uid, state=state, start=booted + start / ticks, **found)


def _ours(pid: int) -> bool:
    """Whether it is `postmortem` itself: what wraps a rank under srun has the rank's number too."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read(4096).split(b"\0")
    return b"postmortem" in (os.path.basename(word) for word in words[1:4])


def _ancestors() -> set[int]:
    """This process, and those that led to it."""
    found, pid = set(), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            pid = status(pid)[1]
        except (OSError, ValueError, IndexError):
            break
    return found


def _booted() -> float:
    with open("/proc/stat", "rb") as file:
        return float(next(line.split()[1] for line in file if line.startswith(b"btime")))


def _rank(env: dict[str, str]) -> dict[str, Any] | None:
    for number, also in NUMBERS:
        value = env.get(number, "")
        if value.isdigit() and len(value) < 7 and also in env:
            return {
                "number": int(value),
                "kind": number,
                "job": " ".join(env.get(name, "") for name in JOB),
                "ids": tuple(env.get(name, "") for name in IDS),
                "dumps": dump_prefixes(env),
            }
    return None


def dump_prefixes(env: dict[str, str]) -> tuple[str, ...]:
    """Where PyTorch puts flight-recorder dumps, each with a rank's number behind it."""
    home = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME", "/nonexistent"), ".cache")
    own = tuple(env[name] for name in DUMPS if env.get(name))
    return own or ("/tmp/nccl_trace_rank_", f"{home}/torch/comm_lib_trace_rank_")


def chosen(found: list[Rank]) -> list[Rank]:
    """The ranks among the candidates, each with its children of the same number."""
    # torchrun below srun: the agent has a task's number
    launched = [r for r in found if r.kind == "RANK"]
    agents, jobs = {r.parent for r in launched}, {r.ids[1] for r in launched if r.ids and r.ids[1]}
    found = [r for r in found if r.kind == "RANK" or (r.pid not in agents and not jobs & set(r.ids[1:]))]
    by_pid = {r.pid: r for r in found}
    children: dict[int, list[int]] = {}
    ranks = []
    for r in found:
        above = by_pid.get(r.parent)
        if above is not None and above.number == r.number:
            children.setdefault(above.pid, []).append(r.pid)
        else:
            ranks.append(r)
    ranks.sort(key=lambda r: (r.job, r.number, r.pid))
    return [Rank(**{**asdict(r), "children": tuple(children.get(r.pid, ())[:CHILDREN])}) for r in ranks]


def told(line: bytes) -> Rank:
    """A rank from the line that the search printed."""
    row = json.loads(line)
    return Rank(**{**row, **{name: tuple(row[name]) for name in ("ids", "dumps", "children")}})
