"""Ranks that run on this host, found by their environment variables, without a signal.

    /proc/4711/environ: RANK=0 LOCAL_RANK=0 WORLD_SIZE=8 ...  ->  Rank(number=0, pid=4711, ...)

torchrun, accelerate and Lightning set RANK; under a bare srun or mpirun a rank has that launcher's number. The
children of a rank inherit the variables: a DataLoader worker is a child that runs the same command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from postmortem.live import proc

NUMBERS = (  # and a variable that a rank has and its launcher's script has not
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_ID"),
)
JOB = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCHCOMM_FR_DUMP_TEMP_FILE")
ENVIRON_MAX = 1 << 20
CHILDREN = 4  # workers per rank


@dataclass(frozen=True)
class Rank:
    number: int
    pid: int
    parent: int
    uid: int
    state: str  # R, S, D, T, Z as in `ps`
    start: float  # seconds since 1970
    kind: str  # the variable that holds the number
    job: str  # distinguishes jobs
    ids: tuple[str, ...] = ()  # of torchrun's run and of the Slurm job
    dumps: tuple[str, ...] = ()  # prefixes of its flight-recorder dumps
    children: tuple[int, ...] = ()
    folder: str = "."  # in which it runs


def from_json(line: bytes) -> Rank:
    row = json.loads(line)
    return Rank(**{**row, **{name: tuple(row[name]) for name in ("ids", "dumps", "children")}})


def environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process. Raise OSError if it may not be read."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        data = file.read(ENVIRON_MAX)
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def pids() -> list[int]:
    """Return all pids, those in uninterruptible sleep last, since a read of their files may hang too."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return sorted(found, key=lambda pid: (proc.state(pid) == "D", pid))


def candidates() -> Iterator[Rank]:
    """Yield every Python process that has a rank's number, children too."""
    ticks = os.sysconf("SC_CLK_TCK")
    booted = next(
        float(line.split()[1]) for line in proc.read("/proc/stat", 1 << 20).splitlines() if line.startswith(b"btime")
    )
    own, pid = {0}, os.getpid()  # srun gives this process a task's number too
    while pid not in own:
        own.add(pid)
        pid = int((*proc.stat(pid), b"0", b"0")[1])
    for pid in pids():
        fields = proc.stat(pid)
        if pid in own or len(fields) < 20:
            continue
        try:
            # the name of the program that runs: a launcher's shell has the variables too
            if not os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
                continue
            # `postmortem` itself: as a wrapper of a rank under srun it has the rank's number too
            words = proc.read(f"/proc/{pid}/cmdline", 4096).split(b"\0")
            if b"postmortem" in (os.path.basename(word) for word in words[1:4]):
                continue
            found, folder = _rank(environment(pid)), os.readlink(f"/proc/{pid}/cwd")
            uid = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue
        if found is not None:
            start = booted + int(fields[19]) / ticks
            parent, state = int(fields[1]), fields[0].decode()
            yield Rank(pid=pid, parent=parent, uid=uid, state=state, start=start, folder=folder, **found)


def _rank(env: dict[str, str]) -> dict[str, Any] | None:
    for kind, also in NUMBERS:
        value = env.get(kind, "")
        if value.isdigit() and len(value) < 7 and also in env:
            job = [env.get(name, "") for name in JOB]
            ids, dumps = tuple(job[:2]), dump_prefixes(env)
            return {"number": int(value), "kind": kind, "job": " ".join(job), "ids": ids, "dumps": dumps}
    return None


def dump_prefixes(env: dict[str, str]) -> tuple[str, ...]:
    """Return where PyTorch writes flight-recorder dumps; the rank's number follows each prefix."""
    home = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME", "/nonexistent"), ".cache")
    own = tuple(env[name] for name in DUMPS if env.get(name))
    return own or ("/tmp/nccl_trace_rank_", f"{home}/torch/comm_lib_trace_rank_", f"{home}/torchcomm_fr_trace_")


def chosen(found: list[Rank]) -> list[Rank]:
    """Return the ranks among the candidates, each with its children of the same number."""
    # torchrun below srun: the agent has a task's number
    launched = [r for r in found if r.kind == "RANK"]
    agents, jobs = {r.parent for r in launched}, {r.ids[1] for r in launched if r.ids and r.ids[1]}
    found = [r for r in found if r.kind == "RANK" or (r.pid not in agents and not jobs & set(r.ids[1:]))]
    by_pid = {r.pid: r for r in found}
    children: dict[int, list[int]] = {}
    ranks = []
    for r in found:
        parent = by_pid.get(r.parent)
        if parent is not None and parent.number == r.number:
            children.setdefault(parent.pid, []).append(r.pid)
        else:
            ranks.append(r)
    ranks.sort(key=lambda r: (r.job, r.number, r.pid))
    return [Rank(**{**asdict(r), "children": tuple(children.get(r.pid, ())[:CHILDREN])}) for r in ranks]
