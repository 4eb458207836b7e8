"""The document's ranks -> groups of ranks that behaved the same way, and how many are in which state.

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
    """Ranks of identical behaviour together:
    causes first, then the silent, then small groups before large ones."""
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
    numbers = [n for n in (view.whole(m.get("last_step")) for m in members) if n is not None]
    span = (
        "" if not numbers else str(numbers[0]) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
    )
    return RankGroup(
        ranks=text.ranges(ranks) or "?",
        few=text.ranges(ranks, view.SPANS) or "?",
        count=len(members),
        hosts=_few(m.get("host") for m in members),
        state=state if state in view.STATES else "unknown",
        pids=_few((m.get("pid") for m in members), 3),
        exit=_few(m.get("exit") for m in members),
        step=span,
        collective=_few((m.get("last_collective") for m in members), 2),
        last=view.address(lasts[0]) if lasts else "",
        why=_few(_whys(members, lasts), 1),
    )


def _whys(members: list[dict[str, Any]], lasts: list[dict[str, Any]]) -> list[str]:
    """Why each failed, without an address that the row has beside it, or that differs from rank to rank."""
    whys = [view.known(m.get("why")) for m in members]
    if len(set(whys)) > 1:
        return [_ADDRESS.sub("", why) for why in whys]
    last = f" ({view.address(lasts[0])})" if lasts else ""
    return [why.removesuffix(last) for why in whys]


def _few(values: Iterable[object], limit: int = 3) -> str:
    """The distinct values, the first few of them spelled out."""
    distinct = list(dict.fromkeys(str(value) for value in values if value is not None and value != ""))
    rest = len(distinct) - limit
    return ", ".join(distinct[:limit]) + (f" and {rest} more" if rest > 0 else "")
