"""The numbers of the document: the pace of the ranks, losses, memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from postmortem.causes import memory
from postmortem.diagnose.case import Case
from postmortem.diagnose.verdict.solution import Solution
from postmortem.model import Event
from postmortem.model.contract import quantities as contract
from postmortem.model.contract.processes import LastLine
from postmortem.model.details import ABSENT, BETWEEN, Series
from postmortem.model.digits import whole
from postmortem.system import forms

MOST_STEPS, MOST_LINES, MOST_STRAGGLERS, MOST_USES, MOST_LOSSES = 64, 4, 8, 12, 128
GIB = 2**30
PAGES = (4, 16, 64)  # kB
_REGEXES = forms.regexes("say/lines")


def quantities(solution: Solution, category: str | None) -> contract.Quantities:
    """All numbers that bear on the verdict; empty where there are none."""
    found: contract.Quantities = {}
    if slow := compared(solution.case):
        found["pace"] = _pace(slow)
    if (losses := _losses(solution)) is not None:
        found["losses"] = losses
    if category in ("host-oom", "gpu-oom") and (uses := _memory(solution)):
        found["memory"] = uses
    return found


def _at(e: Event, line: int | None = None) -> LastLine:
    return {"source": e.where.source, "line": e.where.shown if line is None else line}


# ── pace ────────────────────────────────────────────────────────────────────────────────────────────────────


def _pace(p: Paces) -> contract.Pace:
    slow = [s.rank for s in p.stragglers[:MOST_STRAGGLERS]]
    at = np.unique(np.linspace(0, len(p.steps) - 1, MOST_STEPS).astype(int))
    rows = dict(zip(p.ranks, p.seconds[:, at].tolist(), strict=True))
    return {
        "measure": p.name,
        "ranks": len(p.ranks),
        "steps": p.steps[at].tolist(),
        "median": [_rounded(n) for n in p.usual[at].tolist()],
        "slowest": [{"rank": r, "seconds": [_known(n) for n in rows[r]]} for r in slow[:MOST_LINES]],
        "stragglers": [_straggler(p.name, len(p.ranks), s) for s in p.stragglers[:MOST_STRAGGLERS]],
    }


def _straggler(name: str, ranks: int, s: Straggler) -> contract.Straggler:
    since = f"Since step {s.since}, rank" if s.since is not None else "Rank"
    of = "from step to step, by the timestamps" if name == BETWEEN else f'by its own "{name}" time'
    text = (
        f"{since} {s.rank} takes {s.ratio:.1f} times the median of {ranks} ranks per step, {of}: "
        f"{s.seconds:.3g} s instead of {s.usual:.3g} s."
    )
    return {
        "rank": s.rank,
        "ratio": round(s.ratio, 2),
        "seconds": _rounded(s.seconds),
        "median_s": _rounded(s.usual),
        "since_step": s.since,
        "text": text,
        "at": _at(s.event),
    }


def _rounded(n: float) -> float:
    return float(f"{n:.4g}")


def _known(n: float) -> float | None:
    return _rounded(n) if math.isfinite(n) and n != ABSENT else None


# ── loss ────────────────────────────────────────────────────────────────────────────────────────────────────


def _losses(solution: Solution) -> contract.Losses | None:
    """The series with the first value that is not a number, of the culprits before others."""
    found = []
    for e in solution.case.of_kind("progress"):
        if (series := e.fields.get("series")) and (odd := _first_odd(series)) is not None:
            rank = solution.case.rank_of(e)
            found.append(((rank not in solution.ranks, series["steps"][odd], e.where), e, rank, odd))
    if not found:
        return None
    _, e, rank, odd = min(found, key=lambda row: row[0])
    series = e.fields["series"]
    values = {name: [_known(n) for n in series["values"][name]] for name in NO_TIME if name in series["values"]}
    row: contract.Losses = {
        "rank": rank,
        "steps": list(series["steps"])[:MOST_LOSSES],
        "loss": values.get("loss", [None] * len(series["steps"]))[:MOST_LOSSES],
        "first_nan": series["steps"][odd],
        "at": _at(e, series["lines"][odd]),
    }
    if "grad_norm" in values:
        row["grad_norm"] = values["grad_norm"][:MOST_LOSSES]
    return row


def _first_odd(series: Series) -> int | None:
    columns = [series["values"][name] for name in NO_TIME if name in series["values"]]
    return next((i for i in range(len(series["steps"])) if not all(math.isfinite(c[i]) for c in columns)), None)


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────


def _memory(solution: Solution) -> list[contract.MemoryUse]:
    """What the lines on the culprits state: limits first, then processes by their size."""
    root = solution.root
    if root is None:
        return []
    pids = {*root.pids} or {pid for r in solution.ranks for pid in solution.case.registry.pids.get(r, [])}
    tables = [e for e in solution.case.of_kind("oom-tasks") if e.pid in pids]
    uses: dict[Use, contract.MemoryUse] = {}
    for e in (*root.events, *tables[:1]):  # dmesg and the journal have the same table
        for (name, used, limit), line in (*_of_gpu(e), *_of_table(e, solution)):
            row: contract.MemoryUse = {"name": name, "used": used, "limit": limit, "at": _at(e, line)}
            uses.setdefault((name, used, limit), row)
    return sorted(uses.values(), key=lambda use: (use["limit"] is None, -use["used"]))[:MOST_USES]


Use = tuple[str, int, int | None]


def _of_gpu(e: Event) -> Iterator[tuple[Use, int | None]]:
    found = memory.numbers(e.text)
    total, free = found.get("gpu-total"), found.get("gpu-free")
    if total is None or free is None:
        return
    gpu = _REGEXES["gpu"].search(e.text)
    name = f"GPU {gpu['n']}" if gpu else "GPU"
    yield (name, int((total - free) * GIB), int(total * GIB)), None
    for key, whose in (("gpu-own", "this process"), ("gpu-others", "another process"), ("gpu-tried", "requested")):
        if key in found:
            yield (f"{name}: {whose}", int(found[key] * GIB), int(total * GIB)), None


def _of_table(e: Event, solution: Solution) -> Iterator[tuple[Use, int | None]]:
    """The cgroup and the tasks of the kernel's report. The table counts pages; the line on the task that was killed
    shows the size of one."""
    if usage := e.fields.get("usage"):
        yield ("memory cgroup", usage[0] * 1024, usage[1] * 1024), usage[2]
    tasks = e.fields.get("resident", ())
    killed = (_REGEXES["killed"].search(x.text) for x in solution.case.by_kind["pattern"] if x.speaker == "kernel")
    sizes = {whole(m["pid"]): whole(m["kb"]) for m in killed if m} if tasks else {}
    known = (sizes[pid] // virtual for pid, _, virtual, _ in tasks if virtual and pid in sizes)
    page = next((kb for kb in known if kb in PAGES), PAGES[0]) * 1024
    for pid, name, _, resident in tasks:
        yield (f"{name} (pid {pid})", resident * page, None), None


# ── the pace of each rank ───────────────────────────────────────────────────────────────────────────────────

# In synchronous training every rank waits for the slowest one, so that all print the same time of a whole step: only a
# time of the own work of a rank (forward, data) shows who is slow, or ranks that do not wait for each other.

NO_TIME = ("loss", "grad_norm")
RANKS, STEPS = 3, 10  # to compare
RATIO = 1.3  # to the median of all ranks
STEADY = 0.8  # of the steps since it is slow
FEW = 4  # one of so many ranks may be a straggler: half of the ranks are a different task
SURE = 5.0  # standard errors above the others
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Straggler:
    """A rank that needs longer than the others. `since` is the first slow step; None where all are."""

    rank: int
    ratio: float
    seconds: float
    usual: float
    since: int | None
    event: Event


@dataclass(frozen=True)
class Paces:
    """One time that at least three ranks printed for the same steps: a row of `seconds` for each rank, NaN where it
    printed none."""

    name: str
    ranks: tuple[int, ...]
    steps: Array
    seconds: Array
    usual: Array  # the median of the ranks, by step
    stragglers: tuple[Straggler, ...]


def measured(case: Case) -> dict[int, Event]:
    """The event with the longest series of each rank."""
    found: dict[int, Event] = {}
    for e in case.of_kind("progress"):
        rank = case.rank_of(e)
        if rank is not None and (series := e.fields.get("series")):
            before = found.get(rank)
            if before is None or len(before.fields["series"]["steps"]) < len(series["steps"]):
                found[rank] = e
    return found


def compared(case: Case) -> Paces | None:
    """The first time by which a rank is a straggler; None where there is none."""
    events = measured(case)
    if len(events) < RANKS:
        return None
    names = dict.fromkeys(name for e in events.values() for name in e.fields["series"]["values"])
    for name in sorted(names.keys() - NO_TIME, key=lambda name: (name == BETWEEN, name)):
        paces = _paces(name, events)
        if paces is not None and paces.stragglers:
            return paces
    return None


def _paces(name: str, events: Mapping[int, Event]) -> Paces | None:
    own = {r: s for r, e in sorted(events.items()) if name in (s := e.fields["series"])["values"]}
    steps: Array = np.unique(np.concatenate([np.asarray(s["steps"]) for s in own.values()])) if own else np.array([])
    seconds = np.full((len(own), len(steps)), np.nan)
    for row, s in zip(seconds, own.values(), strict=True):
        values = np.asarray(s["values"][name])
        row[np.searchsorted(steps, np.asarray(s["steps"]))] = np.where(values == ABSENT, np.nan, values)
    shared = (~np.isnan(seconds)).sum(axis=0) >= max(RANKS, len(own) // 2 + 1)
    steps, seconds = steps[shared], seconds[:, shared]
    if len(steps) < STEPS:
        return None
    usual = np.nanmedian(seconds, axis=0)
    steps, seconds, usual = steps[usual > 0], seconds[:, usual > 0], usual[usual > 0]
    ranks = tuple(own)
    rows = zip(ranks, seconds, strict=True)
    slow = [found for rank, row in rows if (found := _slow(rank, steps, row, usual, events[rank]))]
    few = len(slow) <= max(1, len(own) // FEW) and _resolved(seconds, slow)
    slow.sort(key=lambda s: -s.ratio)
    return Paces(name, ranks, steps, seconds, usual, tuple(slow) if few else ())


def _slow(rank: int, steps: Array, row: Array, usual: Array, event: Event) -> Straggler | None:
    """Whether the rank is slower in at least half of its steps, and in nearly all since the first of them."""
    known = ~np.isnan(row)
    ratio = row[known] / usual[known]
    late = ratio >= RATIO
    if len(ratio) < STEPS or late.sum() * 2 < len(ratio):
        return None
    starts = (i for i in range(len(late)) if late[i] and late[i:].mean() >= STEADY)
    first = next(starts, None)
    if first is None or len(ratio) - first < STEPS:
        return None
    logs = np.log(np.maximum(ratio[first:], 1e-3))
    if logs.mean() < SURE * max(float(logs.std()), 1e-6) / len(logs) ** 0.5:
        return None
    own, others = (float(np.median(values[known][first:])) for values in (row, usual))
    since = steps[known].tolist()[first] if late[:first].size > 1 else None
    return Straggler(rank, float(np.median(ratio[first:])), own, others, since, event)


def _resolved(seconds: Array, slow: list[Straggler]) -> bool:
    """Whether the times are printed finely enough: 0.1 and 0.2 may be 0.14 and 0.16."""
    values = np.unique(seconds[~np.isnan(seconds)])
    apart = np.diff(values)
    unit = float(apart[apart > 1e-9].min(initial=np.inf))
    return all(s.seconds - s.usual >= 2 * unit for s in slow)
