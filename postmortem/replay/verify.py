"""Runs a scenario, analyses what it wrote with the same code as any other logs,
and says whether the same failure came out.

In: an `Order` (scenario, arguments, ranks, backend, what is expected). Out: a `Result`, whose JSON reads

    {"scenario": "slow-rank", "outcome": "reproduced", "text": "Reproduced: ...", "arguments": {"rank": 1},
     "expected": {"pattern": "rank-never-arrived", "category": "hang", "ranks": [1]}, "found": {...}, ...}

"Reproduced" means that pattern, category and culprit ranks all agree. Nothing less is called so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from postmortem.errors import NothingReadable
from postmortem.replay import able, kernel
from postmortem.replay.catalogue import Arguments, Scenario
from postmortem.replay.isolate import CannotIsolate, Wants
from postmortem.replay.plan import Plan, planned
from postmortem.replay.record import save
from postmortem.replay.run import Progress, Ran, run

CODES = {"reproduced": 0, "different": 5, "did-not-fail": 6, "could-not-run": 7}
HEADS = {
    "reproduced": "Reproduced",
    "different": "Another failure",
    "did-not-fail": "Did not fail",
    "could-not-run": "Could not run here",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What must come out. `ranks` None: not compared; empty: naming any rank would be wrong."""

    pattern: str | None
    categories: tuple[str, ...]
    ranks: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Order:
    """One replay that is to be done."""

    scenario: Scenario
    arguments: Arguments = field(default_factory=dict)
    nproc: int = 0
    backend: str = "auto"
    expected: Expected | None = None  # None: what the scenario itself promises
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """An order that can be run here: the plan, what must come out, and what was settled on the way."""

    plan: Plan
    expected: Expected
    backend: str
    notes: tuple[str, ...]

    @property
    def limit_s(self) -> float:
        """The run is ended after this time."""
        return self.plan.scenario.patience_s + 15


@dataclass(frozen=True, slots=True)
class Result:
    """What a replay showed."""

    scenario: str
    outcome: str
    text: str
    backend: str
    nproc: int
    arguments: Arguments
    expected: Mapping[str, Any]
    found: Mapping[str, Any] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exits: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    logs: str | None = None

    @property
    def code(self) -> int:
        return CODES[self.outcome]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# ── what is to be done ──────────────────────────────────────────────────────────────────────────────────────


def promised(row: Scenario, arguments: Arguments) -> Expected:
    """What the scenario proves with these arguments."""
    shown = [name for name, needed in _narrow(row) if all(arguments.get(key) == value for key, value in needed.items())]
    rank = int(arguments.get("rank", row.arguments.get("rank", 1)))
    ranks = {"rank": (rank,), "any": None, "none": ()}[row.culprit]
    return Expected(shown[0] if shown else row.pattern, (row.category, *row.also) if row.category else (), ranks)


def _narrow(row: Scenario) -> list[tuple[str, Arguments]]:
    """The patterns that arguments bring about, the most particular first."""
    return sorted(((name, needed) for name, needed in row.proves.items() if needed), key=lambda item: -len(item[1]))


def prepare(order: Order) -> Ready | Result:
    """Settle backend, ranks and expectation; a `Result` where it cannot run here."""
    row, notes, arguments = order.scenario, list(order.notes), dict(order.arguments)
    needs = able.missing(row)
    wants: Wants | None = None
    # asked for: nothing of the machine is needed
    if row.fallback and row.fallback.arguments.items() <= arguments.items():
        needs, wants = [need for need in needs if need == able.INSTALL], Wants()
    expected = order.expected or promised(row, arguments)
    if needs and row.fallback and needs != [able.INSTALL]:
        notes.append(f"{needs[0]}; {row.fallback.lost}")
        needs, wants, arguments = [], Wants(), {**row.fallback.arguments, **arguments}
        expected = replace(expected, pattern=row.fallback.pattern)
    if not needs:
        chosen = able.transport(row, order.backend, order.nproc)
        if chosen.backend == "nccl" and row.id != "nccl-without-gpu" and not able.gpus():
            needs = [able.NO_GPU]
    if needs:
        return _could_not(order, needs, tuple(notes), expected)
    plan = planned(row, {**arguments, "backend": chosen.backend}, chosen.nproc)
    if plan.rank >= plan.nproc:
        return _could_not(
            order, [f"rank {plan.rank} cannot be at fault among {plan.nproc} ranks"], tuple(notes), expected
        )
    return Ready(replace(plan, wants=wants), expected, chosen.backend, (chosen.why, *notes))


def written(order: Order) -> Plan:
    """The plan to write down: nothing is asked of this machine,
    and backend auto is what the scenario was made with."""
    row = order.scenario
    backend = row.backend if order.backend == "auto" else able.transport(row, order.backend, order.nproc).backend
    return planned(row, {**order.arguments, "backend": backend}, order.nproc)


def _could_not(order: Order, needs: Sequence[str], notes: tuple[str, ...], expected: Expected) -> Result:
    row = order.scenario
    text = f"{HEADS['could-not-run']}: {'; '.join(needs)}."
    facts = (
        row.id,
        "could-not-run",
        text,
        order.backend,
        order.nproc or row.nproc,
        dict(order.arguments),
        _told(expected),
    )
    return Result(*facts, needs=tuple(needs), notes=notes)


def _told(expected: Expected) -> dict[str, Any]:
    ranks = None if expected.ranks is None else list(expected.ranks)
    return {
        "pattern": expected.pattern,
        "category": expected.categories[0] if expected.categories else None,
        "ranks": ranks,
    }


# ── doing it ────────────────────────────────────────────────────────────────────────────────────────────────


def verify(ready: Ready, keep: Path | None = None, progress: Progress | None = None) -> Result:
    """Run it, analyse its logs, compare. `keep`: a folder, new or empty, that gets the logs."""
    began = time.monotonic()
    try:
        with run(ready.plan, progress) as ran, tempfile.TemporaryDirectory(dir=ran.place.folder) as folder:
            logs = keep or Path(folder)
            ran.kernel = _own_records(ran)
            save(ran, logs, ("dmesg_iso",))
            document = analysed(logs)
    except CannotIsolate as error:
        order = Order(ready.plan.scenario, ready.plan.arguments, ready.plan.nproc, ready.backend)
        return _could_not(order, [str(error)], ready.notes, ready.expected)
    notes = ready.notes + (
        (f"it did not end by itself and was {ran.ended_from_outside}",) if ran.ended_from_outside else ()
    )
    result = judged(ready, document, notes)
    return replace(
        result,
        exits=dict(ran.exits),
        seconds=round(time.monotonic() - began, 1),
        logs=str(keep) if keep else None,
    )


def _own_records(ran: Ran) -> list[str]:
    """The kernel's log where the scenario is about it,
    less what it says of other processes of this machine."""
    return kernel.of_processes(ran.kernel, ran.seen) if "kernel-log" in ran.plan.scenario.needs else []


def analysed(logs: Path) -> dict[str, Any]:
    """The incident document of these logs; that of a run which wrote nothing says so."""
    from postmortem.analyze import analyze

    try:
        incident = analyze([str(logs)])
    except NothingReadable:
        return {"verdict": {"outcome": "undetermined", "headline": "The run wrote nothing that could be read."}}
    if incident.interrupted:  # what was read until then is no verdict on the replay
        raise KeyboardInterrupt
    return dict(incident.document)


def judged(ready: Ready, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Result:
    """Compare the verdict on the replay's logs with what was expected."""
    plan, expected = ready.plan, ready.expected
    verdict = document.get("verdict", {})
    found = {name: verdict.get(name) for name in ("outcome", "pattern", "category", "headline", "confidence")}
    found["ranks"] = list((verdict.get("culprit") or {}).get("ranks") or [])
    differs = differences(expected, document)
    outcome = "different" if differs else "reproduced"
    if verdict.get("outcome") == "healthy" and expected.pattern:
        outcome = "did-not-fail"
    text = _sentence(outcome, expected, found, differs)
    arguments = dict(plan.arguments)
    return Result(
        plan.scenario.id,
        outcome,
        text,
        ready.backend,
        plan.nproc,
        arguments,
        _told(expected),
        found,
        differs,
        (),
        notes,
    )


def differences(expected: Expected, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of pattern, category and ranks do not agree."""
    verdict = document.get("verdict", {})
    if expected.pattern is None:
        return () if verdict.get("outcome") == "healthy" else ("outcome",)
    ranks = list((verdict.get("culprit") or {}).get("ranks") or [])
    seen = {verdict.get("pattern")}
    # where no cause is found, the symptom that was promised must be among what was seen
    if verdict.get("pattern") is None:
        seen = {row.get("pattern") for row in document.get("chain", [])}
    agree = {
        "pattern": expected.pattern in seen,
        "category": verdict.get("category") in expected.categories,
        "ranks": expected.ranks is None or list(expected.ranks) == ranks,
    }
    return tuple(name for name, same in agree.items() if not same)


def _sentence(outcome: str, expected: Expected, found: Mapping[str, Any], differs: Sequence[str]) -> str:
    head = HEADS[outcome]
    if outcome == "reproduced":
        if expected.pattern is None:
            return f"{head}: the run ended well, and the verdict on its logs is that nothing failed."
        who = f", rank {expected.ranks[0]} to blame" if expected.ranks else ""
        return f"{head}: the verdict on the replay's logs is {expected.pattern} ({found['category']}){who}."
    if outcome == "did-not-fail":
        return f"{head}: {expected.pattern} was expected, and the replay ended well."
    wanted = {
        "pattern": expected.pattern,
        "category": "/".join(expected.categories),
        "ranks": expected.ranks,
        "outcome": "healthy",
    }
    parts = [f"{name} {_value(wanted[name])} was expected, {_value(found[name])} came" for name in differs]
    return f"{head}: {'; '.join(parts)}."


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
