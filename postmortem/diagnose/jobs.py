"""Which events belong together: the jobs in a folder, and the attempts of a job.

Two top folders are two jobs if the same ranks live in both; `node-a/` and `node-b/` with different ranks are one job.
An attempt is a life between two restarts (torchrun's attempt_N); lines without an attempt join it by their text or time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from postmortem.diagnose.case import gist
from postmortem.model import Event, Source

ATTEMPT_KINDS = ("line", "progress", "identity", "exception", "crash", "finished", "pattern", "exit")


def split(events: Sequence[Event], sources: Sequence[Source]) -> dict[str | None, list[str]]:
    """Job name -> paths of its sources. One job named None where nothing tells several apart."""
    tops: dict[str, list[Source]] = defaultdict(list)
    for s in sources:
        top, slash, _ = s.path.partition("/")
        tops[top if slash else ""].append(s)
    ranks: dict[str, set[int]] = {}
    spans: dict[str, tuple[float, float]] = {}
    spoken = _spoken(events)
    for top, members in tops.items():
        found = [spoken[s.path] for s in members if s.path in spoken]
        ranks[top] = {r for rs, _, _ in found for r in rs} | {s.rank for s in members if s.rank is not None}
        times = [t for _, lo, hi in found for t in (lo, hi) if t is not None]
        if times:
            spans[top] = (min(times), max(times))
    whole = [t for t in tops if t and ranks[t] and t in spans and len({s.host for s in tops[t] if s.host} | {None}) <= 2]
    repeated = [t for t in whole if any(o != t and ranks[t] & ranks[o] and _disjoint(spans[t], spans[o]) for o in whole)]
    if len(repeated) < 2:
        return {None: [s.path for s in sources]}
    shared = [s.path for t, members in tops.items() if t not in repeated for s in members]
    return {t: [s.path for s in tops[t]] + shared for t in sorted(repeated, key=lambda t: spans[t])}


def _spoken(events: Iterable[Event]) -> dict[str, tuple[set[int], float | None, float | None]]:
    found: dict[str, tuple[set[int], float | None, float | None]] = {}
    for e in events:
        if e.fields.get("kernel") or e.kind not in ATTEMPT_KINDS:
            continue
        ranks, lo, hi = found.get(e.where.source, (set(), None, None))
        if e.rank is not None:
            ranks.add(e.rank)
        if e.at is not None and e.at_sigma < 30:
            lo = e.at if lo is None else min(lo, e.at)
            hi = e.at if hi is None else max(hi, e.at)
        found[e.where.source] = (ranks, lo, hi)
    return found


def _disjoint(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[1] < b[0] or b[1] < a[0]


def attempts(events: Sequence[Event]) -> list[int]:
    """Numbers of the attempts that left files, in order."""
    return sorted({e.attempt for e in events if e.attempt is not None})


def infer_attempts(events: Sequence[Event]) -> list[Event]:
    """Number the lives of a job whose launcher log is all there is: torchrun does not say that it restarts, but after
    `failed (exitcode: -9)` the ranks introduce themselves again in the same file."""
    if any(e.attempt is not None for e in events):
        return list(events)
    deaths: dict[str, list[int]] = defaultdict(list)
    births: dict[str, list[int]] = defaultdict(list)
    for e in events:
        if e.where.line is not None and e.pattern == "launcher-exit-code":
            deaths[e.where.source].append(e.where.line)
        elif e.where.line is not None and e.kind in ("progress", "finished") and e.source_kind in ("agent", "console"):
            births[e.where.source].append(e.where.line)
    cuts = {s: [d for d in lines if any(b > d + 3 for b in births[s])] for s, lines in deaths.items()}
    cuts = {s: lines for s, lines in cuts.items() if lines}
    if not cuts:
        return list(events)

    def number(e: Event) -> Event:
        if e.where.source not in cuts or e.where.line is None:
            return e
        return e._replace(attempt=sum(1 for cut in cuts[e.where.source] if e.where.line > cut + 3))

    return [number(e) for e in events]


def of_attempt(events: Sequence[Event], wanted: int) -> list[Event]:
    """Events of one attempt. A line without an attempt belongs to the attempt that has its copy, else to the one whose time it falls in."""
    copies: dict[tuple[str, str], set[int]] = defaultdict(set)
    starts: dict[int, float] = {}
    pids: dict[int, int] = {}
    for e in events:
        if e.attempt is None:
            continue
        copies[(e.kind, gist(e.text))].add(e.attempt)
        if e.at is not None and e.at_sigma < 30:
            starts[e.attempt] = min(e.at, starts.get(e.attempt, e.at))
        pid = e.fields.get("pid", e.pid)
        if isinstance(pid, int):
            pids.setdefault(pid, e.attempt)
    order = sorted(starts.items(), key=lambda x: x[1])
    out = []
    for e in events:
        at = e.attempt
        if at is None:
            at = _guess(e, copies, pids, order)
        if at is None or at == wanted:
            out.append(e)
    return out


def _guess(e: Event, copies: dict[tuple[str, str], set[int]], pids: dict[int, int], order: list[tuple[int, float]]) -> int | None:
    if e.pid is not None and e.kind == "exit" and e.pid in pids:
        return pids[e.pid]
    pid = e.fields.get("pid")
    if isinstance(pid, str) and pid.isdigit() and int(pid) in pids:
        return pids[int(pid)]
    found = copies.get((e.kind, gist(e.text)), set())
    if len(found) == 1:
        return next(iter(found))
    if e.at is None or e.at_sigma > 30 or not order:
        return None
    guess = order[0][0]
    for attempt, start in order:
        if start <= e.at + e.at_sigma:
            guess = attempt
    return guess
