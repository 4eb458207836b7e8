"""From an incident to the scenario that re-creates it, with as many of the incident's values as the scenario takes.

In: an incident document, of which only typed, range-checked fields are used: verdict.pattern,
verdict.category, verdict.culprit.ranks, and replay.scenario and replay.arguments. Out: an `Order`; its notes
state the values that could not be used, for example

    rank 37 becomes rank 3
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postmortem.errors import ReplayError
from postmortem.replay import catalogue
from postmortem.replay.catalogue import BY_ID, SCENARIOS, Scenario, Value
from postmortem.replay.verify import Expected, Order, promised

MOST_RANKS = 4  # more show nothing new, and cost a process each
OTHER_WORDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
LIMITS = {"step": 60, "timeout": 20}  # a replay is short
# the scenario is about this rank
FIXED_RANK = ("rank0-in-io", "rank0-prepares-data", "master-low-memory")


def order(document: Mapping[str, Any]) -> Order:
    """Return the replay that fits the incident; raise ReplayError if there is none."""
    verdict, hint = _part(document, "verdict"), _part(document, "replay")
    pattern, category = _text(verdict.get("pattern")), _text(verdict.get("category"))
    row = _scenario(pattern, _text(hint.get("scenario")))
    if row is None:
        why = f"no scenario re-creates {pattern}" if pattern else "the report names no pattern that could be re-created"
        raise ReplayError(why, "`postmortem replay --list` names all that can be re-created")
    given = _part(hint, "arguments")
    notes: list[str] = []
    arguments: dict[str, Value] = dict(row.proves.get(pattern, {}))
    nproc = _ranks(row, given.get("world_size"), notes)
    arguments |= _rank(row, given.get("rank"), nproc, notes)
    arguments |= _others(row, given, arguments, notes)
    own = promised(row, arguments)
    shows = not pattern or row.pattern == pattern or pattern in row.proves
    if not shows:
        notes.append(f"{pattern} has several causes: this is the most likely of them, and its own verdict is expected")
    if own.ranks is None and _part(verdict, "culprit").get("ranks"):
        notes.append("the culprit is not compared: in this scenario the logs name none, or all")
    expected = Expected(pattern or own.pattern, (category,) if category else own.categories, own.ranks)
    if not shows:
        expected = own
    return Order(row, arguments, nproc, expected=expected, notes=tuple(notes))


def _scenario(pattern: str, hint: str) -> Scenario | None:
    """Return the scenario that the report names; if there is none of this name, one that shows the pattern."""
    shows = (row for row in SCENARIOS if pattern and (row.pattern == pattern or pattern in row.proves))
    return BY_ID.get(hint) or next(shows, None)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000


def _ranks(row: Scenario, world: Any, notes: list[str]) -> int:
    if not _is_count(world) or world == 0:
        return row.nproc
    least = 4 if row.id == "master-addr-hard-coded" else 3 if row.launcher == "plain" and "RANK" in row.start.env else 2
    nproc = max(least, min(int(world), MOST_RANKS))
    nproc += nproc % 2 if row.launcher.startswith("two-hosts") else 0
    if nproc != world:
        notes.append(f"{world} ranks become {nproc} on this machine: the failure does not depend on their number")
    return nproc


def _rank(row: Scenario, rank: Any, nproc: int, notes: list[str]) -> dict[str, Value]:
    if not _is_count(rank):
        return {"rank": nproc - 1} if int(row.arguments.get("rank", 1)) >= nproc else {}
    if row.id in FIXED_RANK:
        fixed = int(row.arguments["rank"])
        if rank != fixed:
            notes.append(f"rank {rank} is not used: this scenario is about rank {fixed}")
        return {}
    chosen = min(int(rank), nproc - 1)
    if chosen == 0 and row.start.absent:
        chosen = nproc - 1  # without rank 0 there is no store, which is another failure
    if chosen != rank:
        notes.append(f"rank {rank} becomes rank {chosen}")
    return {"rank": chosen}


def _others(row: Scenario, given: Mapping[str, Any], have: Mapping[str, Value], notes: list[str]) -> dict[str, Value]:
    """Return the other values of the incident that the scenario takes and that suit a short run."""
    found: dict[str, Value] = {}
    known = catalogue.taken(row)
    for name in sorted(given, key=str):
        own = "timeout" if name == "timeout_s" else name
        if own in have or own not in known or own == "rank":
            continue
        value = given[name]
        value = catalogue.fits(row, own, OTHER_WORDS.get(value, value) if isinstance(value, str) else value)
        if value is not None and (isinstance(value, str) or value <= LIMITS.get(own, value)):
            found[own] = value
        else:
            notes.append(f"{own} {str(given[name])[:40]} is not used: the replay uses its own")
    if int(found.get("step", 0)) >= 16:
        found["steps"] = int(found["step"]) + 8
    return found


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= 100 else ""
