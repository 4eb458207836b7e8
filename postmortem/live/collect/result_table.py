"""Results as a table for a terminal: a line for each item, or a line for each host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postmortem.report.text import size

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row
    from postmortem.live.collect.hosts import Answer

REASON = 100  # characters
ALONE = 4  # rows of one item that get a line each


def of_items(rows: Sequence[Row]) -> list[str]:
    """Return the items of one host, missing ones last; one line for an item that many ranks have."""
    by_item: dict[str, list[Row]] = {}
    for row in rows:
        by_item.setdefault(str(row["item"]), []).append(row)
    hosts = {str(row["file"]).partition("/")[0] for row in rows if row["file"]}
    own = f"{hosts.pop()}/" if len(hosts) == 1 else ""
    collected: list[tuple[str, str, str, str]] = [("item", "size", "time", "")]
    missing: list[tuple[str, str, str, str]] = []
    for item, same in by_item.items():
        if len(same) > ALONE:
            collected.append(_together(same))
            continue
        for row in same:
            name, seconds = str(row["file"] or item).removeprefix(own), f"{row['seconds']:.1f} s"
            cells = (name, size(row["bytes"]) if row["file"] else "–", seconds, _note(row))
            (collected if row["file"] else missing).append(cells)
    return _columns([*collected, *missing])


def _together(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    collected = sum(bool(row["file"]) for row in rows)
    notes = list(dict.fromkeys(filter(None, map(_note, rows))))
    more = f"; {len(notes) - 1} more reasons are in the index" if len(notes) > 1 else ""
    longest = max(row["seconds"] for row in rows)
    name = f"{rows[0]['item']}: {collected} of {len(rows)}"
    return name, size(sum(row["bytes"] for row in rows)), f"{longest:.1f} s", "".join(notes[:1]) + more


def of_hosts(answers: Sequence[Answer]) -> list[str]:
    """Return a line for each host."""
    lines = [("host", "received", "failed", "size", "time", "")]
    for a in sorted(answers, key=lambda a: a.asked):
        collected = sum(bool(row["file"]) for row in a.items)
        name = a.asked if a.host in ("", a.asked) else f"{a.asked} ({a.host})"
        failed = str(len(a.items) - collected)
        lines.append((name, str(collected), failed, size(a.bytes), f"{a.seconds:.1f} s", a.why[:REASON]))
    return _columns(lines)


def _note(row: Row) -> str:
    cut = "cut: it was larger" if row.get("cut") else ""
    return "; ".join(filter(None, (cut, str(row.get("why") or "")[:REASON])))


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers, last in rows:
        aligned = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=False)]
        lines.append("  ".join((first.ljust(widths[0]), *aligned, last)).rstrip())
    return lines
