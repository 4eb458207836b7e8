"""The document's ranks -> groups of ranks that behaved the same way, and the number of ranks in each state.

0–522, 524–1023   victim   128 hosts   SIGABRT   last step 1056   the watchdog timed out
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from postmortem.report import text, view

_ADDRESS = re.compile(r" \([^()\s]+:\d+\)$")


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that behaved alike."""

    ranks: str
    few: str
    count: int
    hosts: str
    state: str
    pids: str
    exit: str
    step: str
    collective: str
    last: str
    why: str


def rank_groups(document: view.Document) -> list[RankGroup]:
    """Ranks of identical behavior together: causes first, then the silent, then small groups before large ones."""
    groups: dict[object, list[dict[str, Any]]] = {}
    for item in view.rows(document.get("ranks")):
        same = item.get("group")
        alike = ("state",) if same is not None else ("state", "exit", "last_collective", "why")
        key = (str(same), *(str(item.get(name)) for name in alike))
        groups.setdefault(key, []).append(item)
    ordered = sorted(groups.values(), key=lambda g: (view.oddness(g[0]), len(g), view.whole(g[0].get("rank")) or 0))
    return [_group(members) for members in ordered]


def states(document: view.Document) -> dict[str, int]:
    """How many ranks are in each state, the odd ones first."""
    counts = dict.fromkeys(view.STATES, 0)
    for item in view.rows(document.get("ranks")):
        counts[view.STATES[view.oddness(item)]] += 1
    return {state: count for state, count in counts.items() if count}


def _group(members: list[dict[str, Any]]) -> RankGroup:
    ranks = [rank for rank in (view.whole(m.get("rank")) for m in members) if rank is not None]
    state = view.known(members[0].get("state"))
    lasts = [m["last_line"] for m in members if isinstance(m.get("last_line"), dict)]
    steps = [n for n in (view.whole(m.get("last_step")) for m in members) if n is not None]
    span = str(steps[0]) if len(set(steps)) == 1 else f"{min(steps)} to {max(steps)}" if steps else ""

    def few(cell: str, limit: int = 3) -> str:
        return _few((m.get(cell) for m in members), limit)

    return RankGroup(
        ranks=text.ranges(ranks) or "?",
        few=text.ranges(ranks, view.SPANS) or "?",
        count=len(members),
        hosts=few("host"),
        state=state if state in view.STATES else "unknown",
        pids=few("pid"),
        exit=few("exit"),
        step=span,
        collective=few("last_collective", 2),
        last=view.address(lasts[0]) if lasts else "",
        why=_few(_reasons(members, lasts), 1),
    )


def _reasons(members: list[dict[str, Any]], lasts: list[dict[str, Any]]) -> list[str]:
    """Why each failed, without an address that the row has beside it, or that differs from rank to rank."""
    reasons = [view.known(m.get("why")) for m in members]
    if len(set(reasons)) > 1:
        return [_ADDRESS.sub("", reason) for reason in reasons]
    last = f" ({view.address(lasts[0])})" if lasts else ""
    return [reason.removesuffix(last) for reason in reasons]


def _few(values: Iterable[object], limit: int) -> str:
    """The first few distinct values, and the number of the others."""
    distinct = list(dict.fromkeys(str(value) for value in values if value not in (None, "")))
    rest = len(distinct) - limit
    return ", ".join(distinct[:limit]) + (f" and {rest} more" if rest > 0 else "")
