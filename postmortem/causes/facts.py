"""Solution -> `Facts`: what is known of an incident, computed once; the signs of `patterns/causes` are queries on it.

facts["affected"]  ->  (Known("one", Line("agent.err", 41, "local_rank: 2 (pid: 4201) …")),)
facts["phase"]     ->  (Known("steps", Line("rank2.log", 87, "step 39 loss 2.1")),)
facts["line"]      ->  (Known("docker-address", Line(…)), …)     the names of lines.yaml that these logs have
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from postmortem.causes import memory
from postmortem.causes.seen import Seen
from postmortem.diagnose.compare import library_reports
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.model.contract.verdict import Collective
from postmortem.model.digits import number
from postmortem.model.grouped import grouped
from postmortem.system import forms

MOST_TEXT = 200_000  # characters of lines that are searched
WIDE = 600  # of one line
LAST = 6  # lines of a rank at fault
DEFAULTS = (300.0, 600.0, 1800.0)  # seconds: torchrun's join, NCCL's and gloo's time-outs in torch
LOST = ("peer-lost", "network", "hang", "rendezvous")
Value = str | int | float | bool


class Line(NamedTuple):
    """The address of a line, and its text."""

    source: str
    line: int | None
    text: str


class Known(NamedTuple):
    """A value of a fact, and the line that shows it where one does."""

    value: Value
    line: Line | None = None


Found = Iterator[tuple[str, Value, Event | None]]


@dataclass(frozen=True)
class Facts:
    """The values of each fact (NAMES) of one incident."""

    values: Mapping[str, tuple[Known, ...]]
    text: Text

    def __getitem__(self, name: str) -> tuple[Known, ...]:
        return self.values.get(name, ())

    def one(self, name: str) -> Value | None:
        return self[name][0].value if self[name] else None

    def line(self, name: str) -> Known | None:
        """The first line of a form of lines.yaml."""
        found = self.text.first(forms.regexes("causes/lines")[name])
        return None if found is None else Known(name, found)

    def place(self, name: str) -> Known | None:
        """The first frame or line of a rank at fault with a form of places.yaml."""
        regex = forms.regexes("causes/places")[name]
        found = next((line for line in self.text.own if regex.search(line.text)), None)
        return None if found is None else Known(name, found)


@dataclass(frozen=True)
class Text:
    """The lines that were kept with the events, those of the verdict first: `own` are those of the ranks at fault."""

    lines: tuple[Line, ...]
    own: tuple[Line, ...]

    @cached_property
    def _joined(self) -> tuple[str, list[int]]:
        starts = list(itertools.accumulate((len(line.text) + 1 for line in self.lines), initial=0))
        return "\n".join(line.text for line in self.lines), starts

    def first(self, regex: re.Pattern[str]) -> Line | None:
        from bisect import bisect_right

        joined, starts = self._joined
        m = regex.search(joined)
        return None if m is None else self.lines[bisect_right(starts, m.start()) - 1]


NOTHING = Facts({}, Text((), ()))


def of(seen: Seen) -> Facts:
    text = Text(tuple(_lines(seen)), tuple(_own_lines(seen)))
    found = grouped((name, Known(value, _line(e))) for step in STEPS for name, value, e in step(seen))
    values = {name: tuple({k.value: k for k in reversed(known)}.values())[::-1] for name, known in found.items()}
    facts = Facts(values, text)
    return replace(facts, values={**values, **dict(_came(facts))})


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────


def _line(e: Event | None) -> Line | None:
    return None if e is None else Line(e.where.source, e.where.shown, e.text[:WIDE])


def _lines(seen: Seen) -> Iterator[Line]:
    """The lines of all events, and those around them, each text once."""
    root = seen.solution.root
    events = itertools.chain(root.events if root else (), *(c.events[:3] for c in seen.solution.claims),
                             seen.case.events)  # fmt: skip
    known: set[str] = set()
    room = MOST_TEXT
    for line in itertools.chain.from_iterable(map(_around, events)):
        if line.text in known:
            continue
        room -= len(line.text)
        if room < 0:
            return
        known.add(line.text)
        yield line


def _around(e: Event) -> Iterator[Line]:
    yield Line(e.where.source, e.where.shown, e.text[:WIDE].replace("\n", " "))
    first = None if e.where.shown is None else e.where.shown - e.before
    for n, text in enumerate(e.context):
        yield Line(e.where.source, None if first is None else first + n, text[:WIDE])


def _own_lines(seen: Seen) -> Iterator[Line]:
    """The frames of the ranks at fault, and the last lines that they wrote."""
    for e in seen.own:
        frames = " ".join(f"{file} {function}" for file, _, function in e.fields.get("frames", ())[:40])
        if frames or e.fields.get("code"):
            yield Line(e.where.source, e.where.shown, f"{e.fields.get('code') or ''} {frames}")
    written = [e for e in seen.own if e.kind in ("line", "progress", "finished", "notice")]
    yield from (Line(e.where.source, e.where.shown, e.text[:WIDE]) for e in written[-LAST:])


# ── facts, each function a few of one kind ──────────────────────────────────────────────────────────────────


def _ends(seen: Seen) -> Found:
    """How the process at fault ended, and what was asked of it before."""
    case, end = seen.case, seen.end
    if end is not None:
        yield "end", end.kind, end.reported_by
    if end is not None and end.signal:
        yield "signal", end.signal, end.reported_by
    elif end is not None and end.kind != "clean":
        yield "exit-code", end.code, end.reported_by
    asked = [p for p in case.processes if p.stop is not None and p.rank in seen.solution.ranks]
    if asked and asked[0].stop is not None:
        yield "asked-to-stop", asked[0].stop.by, asked[0].stop.event
    if case.finished or case.all_finished:
        yield "finished", "all" if case.all_finished else "some", next(iter(case.of_kind("finished")), None)


def _who(seen: Seen) -> Found:
    """Who is affected, and the size of the job."""
    solution, registry = seen.solution, seen.case.registry
    ranks, world = solution.ranks, max(registry.world or 0, *(r + 1 for r in (*registry.ranks, *solution.ranks)), 0)
    hosts = {registry.host_of[r] for r in registry.ranks if r in registry.host_of}
    hosts |= {s.host for s in solution.case.sources.values() if s.host}
    if hosts:
        yield "hosts", len(hosts), None
    if ranks:
        own = {registry.host_of.get(r) for r in ranks}
        of_one = len(ranks) > 1 and len(own) == 1 and None not in own and len(hosts) > 1
        everyone = len(ranks) > 1 and len(ranks) >= world
        kind = "all" if everyone else "host" if of_one else "one" if len(ranks) == 1 else "several"
        yield "affected", kind, solution.root.event if solution.root else None
        yield "rank-0", 0 in ranks, None
    if registry.world and 1 < world == sum(r in seen.case.by_rank for r in range(world)):
        yield "all-here", True, None
    silent = [r for r in ranks if r not in solution.case.by_rank]
    if seen.category in LOST and (not ranks or silent) and not (seen.stuck and seen.stuck["elsewhere"]):
        yield "only-victims", True, None


def _phase(seen: Seen) -> Found:
    """How far the job had come: import, start, first-collective, first-step, steps, exit."""
    case = seen.case
    steps = [e for e in case.of_kind("progress") if e.fields.get("step") is not None]
    numbers = {e.fields["step"] for e in steps}
    worked = steps or case.telling("works") or [e for own in case.at_work.values() for e in own if e.kind == "worked"]
    if case.all_finished:
        yield "phase", "exit", next(iter(case.of_kind("finished")), None)
    elif len(numbers) > 1 or any(n > 1 for n in numbers):
        yield "phase", "steps", steps[-1]
    elif worked:
        yield "phase", "first-step", worked[-1]
    elif seen.category == "rendezvous":
        yield "phase", "start", None
    elif case.of_kind("line"):  # without ordinary lines, a missing step shows nothing
        yield "phase", "before-steps", None


def _stopped(seen: Seen) -> Found:
    """How far a job came whose logs just stop, and whom it waits for."""
    reached = seen.solution.reached
    if reached is not None:
        first = reached.proof[0] if reached.proof else None
        yield "log-stops", reached.category, first
        behind = [rank for rank in reached.ranks if seen.case.by_rank.get(rank)]
        if reached.ranks:
            yield "behind" if behind else "absent", len(reached.ranks), first


def _waits(seen: Seen) -> Found:
    """The collective that ranks waited in."""
    stuck, root = seen.stuck, seen.solution.root
    if stuck is None:
        return
    event = root.event if root else None
    if stuck["timeout_s"] in DEFAULTS:
        yield "timeout-is-default", True, event
    done = [n for n in stuck["completed"].values() if n > 0]
    first = stuck["seq"] is not None and stuck["seq"] <= 2
    if (first or (stuck["completed"] and not done)) and not seen.case.of_kind("progress"):
        yield "first-collective", True, event
    if stuck["elsewhere"]:
        ops = {str(stuck["op"]).lower(), *(call.split(" ")[0].lower() for call in stuck["elsewhere"].values())}
        yield "calls", "other-call" if len(ops) > 1 else "same-call", event
        if len(ops) > 1 and "backward" in ops:
            yield "left-the-loop", True, event
    if (sentence := _who_waits(stuck)) is not None:
        yield "waits", sentence, event
    if stuck["missing"]:
        yield "absent", len(stuck["missing"]), event
    dumps = library_reports.dumps_of(seen.case)
    recorded = [dumps[r] for r in seen.solution.ranks if r in dumps]
    if recorded and not any(e.fields.get("pending") for e in recorded):
        yield "idle", True, recorded[0]
    elif recorded and not stuck["missing"] and not stuck["elsewhere"]:
        yield "still-in", True, recorded[0]


def _who_waits(stuck: Collective) -> str | None:
    """`ranks 0, 1 and 3 wait for rank 2 in ALLREDUCE #19 of the tensor-parallel group`; None if a side is unknown."""
    behind = sorted({*stuck["missing"], *map(int, stuck["elsewhere"])})
    if not (stuck["entered"] and behind):
        return None
    purposes = forms.rows("causes/groups")
    group = next((row["purpose"] for row in purposes.values() if re.search(row["regex"], stuck["group"] or "")), "")
    number_ = f" #{stuck['seq']}" if stuck["seq"] is not None else ""
    where = f"{stuck['op'] or 'a collective'}{number_}{f' of the {group} group' if group else ''}"
    verb = "waits" if len(stuck["entered"]) == 1 else "wait"
    return f"{ranks_text(stuck['entered'])} {verb} for {ranks_text(behind)} in {where}"


def _came(facts: Facts) -> Iterator[tuple[str, tuple[Known, ...]]]:
    """How many processes came of those that the job has: `4 of 8`."""
    found = facts.line("count-of-members")
    m = forms.regexes("causes/lines")["members"].search(found.line.text) if found and found.line else None
    if m and found and 0 < int(m["came"]) < int(m["all"]):
        yield "came", (Known(f"{m['came']} of {m['all']}", found.line),)


def _sizes(seen: Seen) -> Found:
    """How two sizes or shapes of one collective differ: by an item size, a little, or by far."""
    for e in seen.solution.root.events if seen.solution.root else ():
        fields = e.fields
        pair = tuple(map(number, (fields.get("bytes") or "", fields.get("expected_bytes") or "")))
        if pair[0] and pair[1]:
            yield "sizes", memory.compared(pair[0], pair[1]), e
            return
        shapes = {m["dims"] for m in forms.regexes("causes/lines")["shape"].finditer(" ".join((e.text, *e.context)))}
        if len(shapes) == 2:
            yield "sizes", memory.shapes(*sorted(shapes)), e
            return
    stuck = seen.stuck
    sizes = {n for call in (stuck["elsewhere"].values() if stuck else ()) if (n := memory.elements(call))}
    if stuck and sizes and stuck["numel_in"] and seen.solution.root:
        yield "sizes", memory.compared(stuck["numel_in"], sizes.pop()), seen.solution.root.event


def _around_the_job(seen: Seen) -> Found:
    """Attempts, logs at hand, and the patterns that were found."""
    solution, case = seen.solution, seen.case
    if solution.attempt_count > 1 or (case.attempt or 0) > 0:
        yield "restarts", max(solution.attempt_count - 1, case.attempt or 0), None
    yield "kernel-log", "here" if case.has_kernel_log else "none", None
    for c in solution.claims:
        yield "pattern", c.pattern.id, c.event
    yield "open", seen.confidence != "established", None
    yield "category", seen.category or "none", solution.root.event if solution.root else None
    if solution.root is not None:
        yield "verdict", solution.root.pattern.id, solution.root.event
        yield "proof", solution.root.strength, solution.root.event
    late = next((c for c in solution.claims if c.tells("laggards") or c.pattern.entity == "missing-ranks"), None)
    if late is not None and not late.pattern.derived:
        yield "late", True, late.event


def _at_hand(seen: Seen) -> Found:
    """The evidence that is here, and the places that are known."""
    case, root = seen.case, seen.root
    crashes = (*case.of_kind("crash"), *(root.events if root else ()))
    if case.of_kind("stack") or any(e.fields.get("frames") for e in crashes):
        yield "crash-stack", True, None
    yield "recorder", "here" if case.at_hand("recorder") else "none", None
    if seen.placed:
        yield "placed", True, None
    if seen.ranks and case.finished >= set(seen.ranks):
        yield "left", True, None
    if root is not None and (root.pattern.category, root.pattern.entity) == ("external-signal", "pid"):
        yield "sender-stated", True, root.event


def _memory(seen: Seen) -> Found:
    """Numbers of a message on GPU memory, in GiB."""
    for e in itertools.chain(seen.solution.root.events if seen.solution.root else (), seen.own[:50]):
        for name, value in memory.numbers(" ".join((e.text, *e.context))).items():
            yield name, value, e


STEPS: tuple[Callable[[Seen], Found], ...] = (
    _ends, _who, _phase, _stopped, _waits, _sizes, _around_the_job, _at_hand, _memory,
)  # fmt: skip
NAMES = {
    "signal", "exit-code", "end", "crash-stack", "recorder", "placed", "left", "sender-stated", "all-here",
    "asked-to-stop", "finished", "hosts", "affected", "rank-0", "only-victims", "phase",
    "timeout-is-default", "first-collective", "calls", "log-stops", "absent", "behind",
    "waits", "came", "left-the-loop", "idle",
    "still-in", "sizes", "restarts", "kernel-log", "pattern", "category", "open", "verdict", "proof", "late",
    "gpu-tried", "gpu-total", "gpu-free", "gpu-own", "gpu-reserved", "gpu-unallocated", "gpu-others", "gpu-unexplained",
}  # fmt: skip


def names(values: Iterable[str]) -> set[str]:
    """The names that are no fact."""
    return set(values) - NAMES - {"line", "place"}
