"""Which rank, host or GPU a pattern's match speaks of: the joins of DESIGN, one function for each kind of entity.

Killed process 32688 (python3)            pid -> rank, by the launcher's map or a DataLoader's complaint
NVRM: Xid (PCI:0000:48:00): 74            bus id -> GPU -> rank
keys: /default_pg/0//cpu//0/2             the rank whose address is missing
"""

from __future__ import annotations

import re

from postmortem.diagnose.case import Case, Observation, as_int
from postmortem.model import Event, Pattern

_NUMBERS = re.compile(r"\d+(?:-\d+)?")
_BUS = re.compile(r"(?<![0-9a-f])(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?![0-9a-f])", re.IGNORECASE)
_WORKER_PID = re.compile(r"DataLoader worker \(pid\(?s?\)? ?(?P<pid>\d+)\)")
_PEER = re.compile(r"\[?([\w.:-]*?\w)\]?(?:%[\w.-]+)?(?:<\d+>|\]:\d+|(?<=\d):\d{1,5}$|$)")
_STEP_TASK = re.compile(r"/step_\d+/task_(?P<task>\d+)")


def observe(case: Case, e: Event, pattern: Pattern) -> Observation:
    """Attribute one event of `pattern`."""
    ranks: tuple[int, ...] = ()
    hosts = _hosts(e)
    gpus: tuple[str, ...] = ()
    pids = tuple(p for p in [as_int(e.fields.get("pid"))] if p is not None and p > 1)
    match pattern.entity:
        case "self":
            ranks = _one(case.registry.rank_of(e))
            if not ranks and "rank" in e.fields:
                ranks = _one(as_int(e.fields["rank"]))
        case "rank":
            two = (
                as_int(e.fields.get(name)) for name in ("rank", "peer_rank")
            )  # who differ: neither is known to be right
            ranks = (
                numbers(e.fields.get("ranks"))
                or tuple(r for r in two if r is not None)
                or _one(case.registry.rank_of(e))
            )
        case "pid":
            ranks = _by_pid(case, e, pids)
        case "gpu":
            ranks, gpus = _by_gpu(case, e)
        case "missing-ranks":
            ranks = numbers(e.fields.get("ranks")) or _one(as_int(e.fields.get("rank")))
        case "peer":
            if pattern.role == "cause" and not (e.fields.get("host") or e.fields.get("node")):
                hosts = _peer(e)  # who complains is not who is complained of
        case "host":
            # what a rank says of its host (an interface, a device) names the rank too; the kernel speaks for the whole host
            ranks = (
                ()
                if e.fields.get("kernel") or e.source_kind in ("kernel", "scheduler")
                else _one(case.registry.rank_of(e))
            )
        case "job":
            ranks = ()
    if not hosts and len(ranks) == 1 and ranks[0] in case.registry.host_of:
        hosts = (case.registry.host_of[ranks[0]],)
    return Observation(e, pattern, ranks, hosts, gpus, pids, pattern.role)


def _one(rank: int | None) -> tuple[int, ...]:
    return () if rank is None else (rank,)


def numbers(value: object) -> tuple[int, ...]:
    """Ranks of a text such as `1, 2` or `0-2` (at most 4096)."""
    if not isinstance(value, str):
        return ()
    found: list[int] = []
    for part in _NUMBERS.findall(value):
        low, _, high = part.partition("-")
        found.extend(range(int(low), min(int(high or low), int(low) + 4095) + 1))
    return tuple(dict.fromkeys(found))[:4096]


def _hosts(e: Event) -> tuple[str, ...]:
    host = e.fields.get("host") or e.fields.get("node") or e.host
    return (host,) if isinstance(host, str) and host and any(c.isalnum() for c in host) else ()


def _peer(e: Event) -> tuple[str, ...]:
    """The other side's host, where a complaint names it: `Got completion from peer node48<37948>`. Loopback and link-local say nothing."""
    m = _PEER.match(str(e.fields.get("peer") or ""))
    named = m[1] if m else ""
    return (
        ()
        if not named or named.startswith(("127.", "fe80", "::1", "0.")) or named == "localhost"
        else (named,)
    )


def _by_pid(case: Case, e: Event, pids: tuple[int, ...]) -> tuple[int, ...]:
    for pid in pids:
        if (rank := case.registry.rank_of_pid(pid, e.host)) is not None:
            return (rank,)
        for other in case.seen(
            "dataloader-worker-killed", "dataloader-worker-exited", "dataloader-worker-segfault"
        ):
            said = _WORKER_PID.search(other.text)
            if said and int(said["pid"]) == pid and (rank := case.registry.rank_of(other)) is not None:
                return (rank,)
    for line in (e, *(o for o in case.seen("kernel-oom-summary") if as_int(o.fields.get("pid")) in pids)):
        if task := _STEP_TASK.search(line.text):
            return (int(task["task"]),)  # Slurm gives each task of a step a cgroup of its own
    local = as_int(e.fields.get("local_rank"))
    if local is not None and (rank := case.registry.rank_of_local(e.run, e.host, local)) is not None:
        return (rank,)
    if not e.fields.get("kernel") and e.source_kind != "agent":
        return _one(
            e.rank
        )  # a rank speaks of itself or of a child: `[1,12]<stderr>:[node-16:17086] Signal: Segmentation fault (11)`
    return ()


def _bus_above(e: Event) -> str | None:
    """NVRM breaks a message over three lines, and the bus id stands on the first (`NVRM: The NVIDIA GPU 0000:b3:00.0`)."""
    for text in reversed(e.context[max(0, e.before - 3) : e.before]):
        if "NVRM" in text and (m := _BUS.search(text)):
            return m[0]
    return None


def _by_gpu(case: Case, e: Event) -> tuple[tuple[int, ...], tuple[str, ...]]:
    text = e.fields.get("pci") or _bus_above(e)
    rank = None
    gpus: tuple[str, ...] = ()
    if isinstance(text, str) and (m := _BUS.search(text)):
        gpus = (f"{(m[1] or '0000')[-4:]}:{m[2]}:{m[3]}".lower(),)
        rank = case.registry.rank_of_bus(gpus[0], e.host)
    elif e.fields.get("gpu") is not None:
        rank = case.registry.rank_of(e)
    pid = as_int(e.fields.get("pid"))
    if rank is None:
        rank = case.registry.rank_of_pid(pid, e.host)
    return _one(rank), gpus
