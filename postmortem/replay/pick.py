"""From an incident to the scenario that re-creates it,
with as much of the incident as the scenario can take over.

In: an incident document, of which only typed, range-checked fields are used: verdict.pattern,
verdict.category, verdict.culprit.ranks, and replay.scenario and replay.arguments. Out: an `Order`; its notes
say what could not be taken over, for example

    rank 37 of 512 becomes rank 3 of 4: the failure does not depend on the number of ranks
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postmortem.errors import ReplayError
from postmortem.replay import parameters
from postmortem.replay.catalogue import SCENARIOS, Scenario, Value
from postmortem.replay.verify import Expected, Order, promised

MOST_RANKS = 4  # more show nothing new, and cost a process each
OTHER_NAMES = {"timeout_s": "timeout"}
OTHER_WORDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
# a miniature: nobody waits ten minutes for the same time-out
LIMITS: Mapping[str, float] = {
    "step": 60,
    "timeout": 20,
}
FIXED_RANK = {
    "rank0-in-io",
    "rank0-prepares-data",
    "master-low-memory",
}  # the rank is what the scenario is about
ONE_MACHINE = {"world_size", "rank", "hosts"}


def order(document: Mapping[str, Any]) -> Order:
    """The replay that fits the incident. ReplayError where there is none."""
    verdict, hint = _part(document, "verdict"), _part(document, "replay")
    pattern, category = _text(verdict.get("pattern")), _text(verdict.get("category"))
    row = scenario_for(pattern, _text(hint.get("scenario")))
    if row is None:
        said = (
            f"no scenario re-creates {pattern}" if pattern else "the report names no pattern that could be re-created"
        )
        raise ReplayError(said, "`postmortem replay --list` names all that can be re-created")
    given = _part(hint, "arguments")
    notes: list[str] = []
    arguments: dict[str, Value] = dict(row.proves.get(pattern, {}))
    nproc = _ranks(row, given.get("world_size"), notes)
    arguments |= _rank(row, given, nproc, notes)
    arguments |= _others(row, given, arguments, notes)
    own = promised(row, arguments)
    named = _part(verdict, "culprit").get("ranks")
    ranks = own.ranks
    if isinstance(named, list) and named and own.ranks is None:
        notes.append("the culprit is not compared: in this scenario the logs name none, or all")
    categories = tuple(filter(None, (category,))) or own.categories
    return Order(
        row,
        arguments,
        nproc,
        expected=Expected(pattern or own.pattern, categories, ranks),
        notes=tuple(notes),
    )


def scenario_for(pattern: str, hint: str) -> Scenario | None:
    """The scenario that the report names; where it names none that exists, one that shows the pattern."""
    named = next((row for row in SCENARIOS if row.id == hint), None)
    shows = [row for row in SCENARIOS if pattern and (row.pattern == pattern or pattern in row.proves)]
    return named or next(iter(shows), None)


def _ranks(row: Scenario, world: object, notes: list[str]) -> int:
    if isinstance(world, bool) or not isinstance(world, int) or not 1 <= world <= 1_000_000:
        return row.nproc
    least = 4 if row.id == "master-addr-hard-coded" else 3 if row.launcher == "plain" and "RANK" in row.start.env else 2
    nproc = max(least, min(world, MOST_RANKS))
    nproc += nproc % 2 if row.launcher.startswith("two-hosts") else 0
    if nproc != world:
        notes.append(f"{world} ranks become {nproc} on this machine: the failure does not depend on their number")
    return nproc


def _rank(row: Scenario, given: Mapping[str, Any], nproc: int, notes: list[str]) -> dict[str, Value]:
    rank = given.get("rank")
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= 1_000_000:
        return {"rank": nproc - 1} if int(row.arguments.get("rank", 1)) >= nproc else {}
    if row.id in FIXED_RANK:
        fixed = int(row.arguments["rank"])
        if rank != fixed:
            notes.append(f"rank {rank} is not used: this scenario is about rank {fixed}")
        return {}
    chosen = min(rank, nproc - 1)
    if chosen == 0 and row.start.absent:
        chosen = nproc - 1  # without rank 0 there is no store, which is another failure
    if chosen != rank:
        notes.append(f"rank {rank} becomes rank {chosen}")
    return {"rank": chosen}


def _others(row: Scenario, given: Mapping[str, Any], have: Mapping[str, Value], notes: list[str]) -> dict[str, Value]:
    """Everything else that the scenario knows and whose value it can take."""
    found: dict[str, Value] = {}
    known = parameters.taken(row)
    for name in sorted(given, key=str):
        if name in ONE_MACHINE or not isinstance(name, str):
            continue
        own = OTHER_NAMES.get(name, name)
        if own in have:
            continue
        value = _taken_over(row, own, given[name])
        if value is not None:
            found[own] = value
        elif own in known:
            notes.append(f"{own} {str(given[name])[:40]} is not used: the replay uses its own")
    if int(found.get("step", 0)) >= 16:
        found["steps"] = int(found["step"]) + 8
    return found


def _taken_over(row: Scenario, name: str, value: object) -> Value | None:
    """The incident's value in the scenario's words, where it is in range and small enough for a miniature."""
    own = parameters.fits(row, name, OTHER_WORDS.get(value, value) if isinstance(value, str) else value)
    return None if own is None or (not isinstance(own, str) and own > LIMITS.get(name, own)) else own


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= 100 else ""
