"""Ranks and stacks of the document in groups that are alike, the odd ones first.

0–522, 524–1023   victim   128 hosts   SIGABRT   last step 1056   the watchdog timed out

rank 1        py-spy       … 9 frames of torch, multiprocessing     main  train.py:39
ranks 0, 2    py-spy       … 3 frames of torch                      main  train.py:43      in all_reduce
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from postmortem.report import text, view

MAX_STACKS = 12
COMPARED = 2  # stacks in the card of a hang
_ADDRESS = re.compile(r" \([^()\s]+:\d+\)$")

# ── ranks ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that behaved alike. `few` is a short form of `ranks`."""

    ranks: str
    few: str
    count: int
    hosts: str
    state: str
    exit: str
    step: str
    collective: str
    last: str
    why: str


def rank_groups(document: view.Document) -> list[RankGroup]:
    """Return ranks of identical behavior together: causes first, then the silent, small groups before large ones."""
    groups: dict[object, list[dict[str, Any]]] = {}
    for item in view.rows(document.get("ranks")):
        same = item.get("group")
        alike = ("state",) if same is not None else ("state", "exit", "last_collective", "why")
        key = (str(same), *(str(item.get(name)) for name in alike))
        groups.setdefault(key, []).append(item)
    ordered = sorted(groups.values(), key=lambda g: (view.oddness(g[0]), len(g), view.whole(g[0].get("rank")) or 0))
    return [_group(members) for members in ordered]


def states(document: view.Document) -> dict[str, int]:
    """Return the number of ranks in each state, the odd ones first."""
    counts = dict.fromkeys(view.STATES, 0)
    for item in view.rows(document.get("ranks")):
        counts[view.STATES[view.oddness(item)]] += 1
    return {state: count for state, count in counts.items() if count}


def _group(members: list[dict[str, Any]]) -> RankGroup:
    ranks = view.numbers([m.get("rank") for m in members])
    steps = view.numbers([m.get("last_step") for m in members])
    state = view.known(members[0].get("state"))
    lasts = [m["last_line"] for m in members if isinstance(m.get("last_line"), dict)]
    return RankGroup(
        ranks=text.ranges(ranks) or "?",
        few=text.ranges(ranks, view.SPANS) or "?",
        count=len(members),
        hosts=_few(m.get("host") for m in members),
        state=state if state in view.STATES else "unknown",
        exit=_few(m.get("exit") for m in members),
        step=" to ".join(map(str, sorted({min(steps), max(steps)}))) if steps else "",
        collective=_few((m.get("last_collective") for m in members), 2),
        last=view.address(lasts[0]) if lasts else "",
        why=_few(_reasons(members, lasts), 1),
    )


def _reasons(members: list[dict[str, Any]], lasts: list[dict[str, Any]]) -> list[str]:
    """Return why each failed, without an address that the row has beside it, or that differs from rank to rank."""
    whys = [view.known(m.get("why")) for m in members]
    if len(set(whys)) > 1:
        return [_ADDRESS.sub("", why) for why in whys]
    last = f" ({view.address(lasts[0])})" if lasts else ""
    return [why.removesuffix(last) for why in whys]


def _few(values: Iterable[object], limit: int = 3) -> str:
    """Return the first distinct values, and a count of the others."""
    distinct = list(dict.fromkeys(str(value) for value in values if value is not None and value != ""))
    rest = len(distinct) - limit
    return ", ".join(distinct[:limit]) + (f" and {rest} more" if rest > 0 else "")


# ── stacks ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Frames:
    """One frame of the user's code, or consecutive frames of libraries, which `label` counts."""

    own: bool
    label: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stack:
    """A group of alike stacks. `place` is the user's innermost frame, `inside` the collective."""

    who: str
    how: str
    address: str
    place: str
    inside: str
    frames: tuple[Frames, ...]


def stacks(document: view.Document) -> list[Stack]:
    """Return the groups in their order, as many as a page shows."""
    return [_stack(row) for row in view.rows(document.get("stacks"))[:MAX_STACKS]]


def compared(document: view.Document) -> list[Stack]:
    """Return the two that differ, for the card of a hang; empty where all are alike or the verdict is no hang."""
    hang = view.part(document, "verdict").get("category") in ("hang", "collective-mismatch")
    found = stacks(document) if hang else []
    return found[:COMPARED] if len(found) > 1 else []


def _stack(row: dict[str, Any]) -> Stack:
    frames = tuple(_frames(row))
    collective = view.known(row.get("collective"))
    return Stack(
        who=_who(row),
        how=view.known(row.get("how")),
        address=view.address(row),
        place=next((f.label for f in frames if f.own), view.known(row.get("code"))),
        inside=f"in {collective}" if collective else "",
        frames=frames,
    )


def _who(row: dict[str, Any]) -> str:
    if ranks := view.numbers(row.get("ranks")):
        return text.ranks(ranks, view.SPANS)
    if pids := view.numbers(row.get("pids")):
        return f"{'process' if len(pids) == 1 else 'processes'} {', '.join(map(str, pids[:6]))}"
    return text.plural(view.whole(row.get("count")) or 1, "process", "processes")


def _frames(row: dict[str, Any]) -> Iterator[Frames]:
    for item in view.rows(row.get("frames")):
        if item.get("own"):
            yield Frames(True, _line(item))
        else:
            below = view.rows(item.get("frames"))
            # `torch/utils/data/dataloader.py` is torch's
            tops = [view.known(f.get("file")).lstrip("/").partition("/")[0].removesuffix(".py") or "?" for f in below]
            label = f"{text.plural(len(below), 'frame')} of {', '.join(dict.fromkeys(tops))}"
            yield Frames(False, label, tuple(map(_line, below)))


def _line(frame: dict[str, Any]) -> str:
    name = view.known(frame.get("file")).rpartition("/")[2]
    return f"{view.known(frame.get('function'))} ({name}:{frame.get('line')})"
