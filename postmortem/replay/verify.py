"""Runs a scenario, analyzes its logs with the same code as any other logs, and compares the verdicts.

In: an `Order` (scenario, arguments, ranks, backend, expected verdict). Out: a `Result`, as JSON

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
from postmortem.replay import able
from postmortem.replay.catalogue import Arguments, Scenario
from postmortem.replay.isolate import CannotIsolate, Wants
from postmortem.replay.plan import Plan, planned
from postmortem.replay.run import Progress, run, save

CODES = {"reproduced": 0, "different": 5, "did-not-fail": 6, "could-not-run": 7}


@dataclass(frozen=True, slots=True)
class Expected:
    """The verdict that must come out. `ranks` None: not compared; empty: naming any rank would be wrong."""

    pattern: str | None
    categories: tuple[str, ...]
    ranks: tuple[int, ...] | None

    def to_json(self) -> dict[str, Any]:
        ranks = None if self.ranks is None else list(self.ranks)
        return {"pattern": self.pattern, "category": next(iter(self.categories), None), "ranks": ranks}


@dataclass(frozen=True, slots=True)
class Order:
    """One replay that is to be done."""

    scenario: Scenario
    arguments: Arguments = field(default_factory=dict)
    nproc: int = 0
    backend: str = "auto"
    expected: Expected | None = None  # None: the verdict that the scenario itself promises
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """An order that can be run here: the plan, the expected verdict, and the decisions on the way."""

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
    """The outcome of a replay."""

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


def promised(row: Scenario, arguments: Arguments) -> Expected:
    """Return the verdict that the scenario promises with these arguments."""
    shown = [name for name, needed in row.proves.items() if needed and needed.items() <= arguments.items()]
    pattern = max(shown, key=lambda name: len(row.proves[name]), default=row.pattern)
    rank = int(arguments.get("rank", row.arguments.get("rank", 1)))
    ranks = {"rank": (rank,), "any": None, "none": ()}[row.culprit]
    return Expected(pattern, (row.category, *row.also) if row.category else (), ranks)


def prepare(order: Order) -> Ready | Result:
    """Decide on backend, ranks and expected verdict; return a `Result` if it cannot run here."""
    row, notes, arguments = order.scenario, list(order.notes), dict(order.arguments)
    needs = able.missing(row)
    expected = order.expected or promised(row, arguments)
    row_here = row
    fallback = next((each for each in row.fallbacks if not any(map(able.lacks, each.needs))), None)
    if fallback and needs != [able.INSTALL]:
        asked = any(each.arguments.items() <= arguments.items() for each in row.fallbacks)
        if needs and not asked:
            notes.append(f"{needs[0]}; {fallback.lost}")
            arguments = {**fallback.arguments, **arguments}
            expected = replace(expected, pattern=fallback.pattern)
        if needs or asked:  # nothing else of the machine is needed
            needs, row_here = [], replace(row, wants=Wants())
    needs += [text for text in (able.lacks("core"),) if text and arguments.get("core") and not needs]
    if not needs:
        chosen = able.transport(row, order.backend, order.nproc)
        if chosen.backend == "nccl" and row.id != "nccl-without-gpu" and not able.gpus():
            needs = [able.NO_GPU]
    if not needs:
        plan = planned(row_here, {**arguments, "backend": chosen.backend}, chosen.nproc)
        if plan.rank < plan.nproc:
            return Ready(plan, expected, chosen.backend, (chosen.why, *notes))
        needs = [f"rank {plan.rank} cannot be at fault among {plan.nproc} ranks"]
    return _could_not_run(order, needs, notes, expected)


def written(order: Order) -> Plan:
    """Return the plan of an order for a script, whatever this machine has; backend auto is the scenario's own."""
    row = order.scenario
    backend = row.backend if order.backend == "auto" else able.transport(row, order.backend, order.nproc).backend
    return planned(row, {**order.arguments, "backend": backend}, order.nproc)


def _could_not_run(order: Order, needs: Sequence[str], notes: Sequence[str], expected: Expected) -> Result:
    return Result(
        order.scenario.id,
        "could-not-run",
        f"Could not run here: {'; '.join(needs)}.",
        order.backend,
        order.nproc or order.scenario.nproc,
        dict(order.arguments),
        expected.to_json(),
        needs=tuple(needs),
        notes=tuple(notes),
    )


def verify(ready: Ready, keep: Path | None = None, progress: Progress | None = None) -> Result:
    """Run it, analyze its logs, compare. `keep`: a folder, new or empty, that gets the logs."""
    began = time.monotonic()
    forms = ("dmesg_iso",) if "kernel-log" in ready.plan.scenario.needs else ()
    try:
        with run(ready.plan, progress) as ran, tempfile.TemporaryDirectory(dir=ran.place.folder) as folder:
            logs = keep or Path(folder)
            save(ran, logs, forms)
            document = analyzed(logs)
    except CannotIsolate as error:
        order = Order(ready.plan.scenario, ready.plan.arguments, ready.plan.nproc, ready.backend)
        return _could_not_run(order, [str(error)], ready.notes, ready.expected)
    ended = (f"it did not end by itself and was {ran.ended_from_outside}",) if ran.ended_from_outside else ()
    return replace(
        judged(ready, document, ready.notes + ended),
        exits=dict(ran.exits),
        seconds=round(time.monotonic() - began, 1),
        logs=str(keep) if keep else None,
    )


def analyzed(logs: Path) -> dict[str, Any]:
    """Return the incident document of these logs, with a headline of its own for a run that wrote nothing."""
    from postmortem.analyze import analyze

    try:
        incident = analyze([str(logs)])
    except NothingReadable:
        return {"verdict": {"outcome": "undetermined", "headline": "The run wrote nothing that could be read."}}
    if incident.interrupted:  # a verdict on the first part of the logs is none on the replay
        raise KeyboardInterrupt
    return dict(incident.document)


def judged(ready: Ready, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Result:
    """Compare the verdict on the replay's logs with the expected one."""
    plan, expected = ready.plan, ready.expected
    verdict = document.get("verdict", {})
    found = {name: verdict.get(name) for name in ("outcome", "pattern", "category", "headline", "confidence")}
    found["ranks"] = _ranks(verdict)
    differs = differences(expected, document)
    outcome = "different" if differs else "reproduced"
    if verdict.get("outcome") == "healthy" and expected.pattern:
        outcome = "did-not-fail"
    return Result(
        plan.scenario.id,
        outcome,
        _sentence(outcome, expected, found, differs),
        ready.backend,
        plan.nproc,
        dict(plan.arguments),
        expected.to_json(),
        found,
        differs,
        notes=notes,
    )


def _ranks(verdict: Mapping[str, Any]) -> list[int]:
    return list((verdict.get("culprit") or {}).get("ranks") or [])


def differences(expected: Expected, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of pattern, category and ranks do not agree."""
    verdict = document.get("verdict", {})
    if expected.pattern is None:
        return () if verdict.get("outcome") == "healthy" else ("outcome",)
    seen = {verdict.get("pattern")}
    # if no cause is found, the promised symptom must be in the chain
    if verdict.get("pattern") is None:
        seen = {row.get("pattern") for row in document.get("chain", [])}
    agree = {
        "pattern": expected.pattern in seen,
        "category": verdict.get("category") in expected.categories,
        "ranks": expected.ranks is None or list(expected.ranks) == _ranks(verdict),
    }
    return tuple(name for name, same in agree.items() if not same)


def _sentence(outcome: str, expected: Expected, found: Mapping[str, Any], differs: Sequence[str]) -> str:
    if outcome == "did-not-fail":
        return f"Did not fail: {expected.pattern} was expected, and the replay ended well."
    if outcome == "different":
        wanted = expected.to_json() | {"category": "/".join(expected.categories), "outcome": "healthy"}
        parts = [f"{name} {_value(wanted[name])} was expected, {_value(found[name])} was found" for name in differs]
        return f"Another failure: {'; '.join(parts)}."
    if expected.pattern is None:
        return "Reproduced: the run ended well, and the verdict on its logs is that nothing failed."
    who = f", rank {expected.ranks[0]} to blame" if expected.ranks else ""
    return f"Reproduced: the verdict on the replay's logs is {expected.pattern} ({found['category']}){who}."


def _value(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value or "none")
