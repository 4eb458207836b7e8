"""What came, as a table for a terminal: a line for each item that did not come, a line for each host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row

REASON = 100  # characters
ALONE = 4  # rows of one item that have a line each


def of_items(rows: Sequence[Row]) -> str:
    """Each item of one host, those that came first. Where many ranks have the same one, it has one line."""
    by_item: dict[str, list[Row]] = {}
    for row in rows:
        by_item.setdefault(str(row["item"]), []).append(row)
    alone = [row for same in by_item.values() if len(same) <= ALONE for row in same]
    many = [same for same in by_item.values() if len(same) > ALONE]
    came = [row for row in alone if row["file"]]
    hosts = {str(row["file"]).partition("/")[0] for row in came}
    own = f"{hosts.pop()}/" if len(hosts) == 1 else ""  # of one host its name is no news
    lines = [
        (str(row["file"]).removeprefix(own), _size(int(row["bytes"])), f"{row['seconds']:.1f} s", _note(row))
        for row in came
    ]
    lines += map(_together, many)
    lines += [(str(row["item"]), "–", f"{row['seconds']:.1f} s", _note(row)) for row in alone if not row["file"]]
    return _columns([("item", "size", "time", ""), *lines])


def _together(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    came = sum(bool(row["file"]) for row in rows)
    notes = list(dict.fromkeys(filter(None, map(_note, rows))))
    more = f"; {len(notes) - 1} more reasons are in the index" if len(notes) > 1 else ""
    longest = max(float(row["seconds"]) for row in rows)
    name = f"{rows[0]['item']}: {came} of {len(rows)}"
    return name, _size(sum(int(row["bytes"]) for row in rows)), f"{longest:.1f} s", "".join(notes[:1]) + more


def of_hosts(rows: Sequence[tuple[str, int, int, int, float, str]]) -> str:
    """Each host: its name, items that came, items that did not, bytes, seconds, and why it is not whole."""
    lines = [
        (name, str(came), str(failed), _size(size), f"{seconds:.1f} s", why[:REASON])
        for name, came, failed, size, seconds, why in rows
    ]
    return _columns([("host", "came", "failed", "size", "time", ""), *lines])


def _note(row: Row) -> str:
    cut = "cut: it was larger" if row.get("cut") else ""
    return "; ".join(filter(None, (cut, str(row.get("why") or "")[:REASON])))


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """The first column to the left, numbers to the right, the reason as it is."""
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        numbers = (f"{cell:>{w}}" for cell, w in zip(row[1:-1], wide[1:-1], strict=True))
        lines.append("  ".join((f"{row[0]:{wide[0]}}", *numbers, row[-1])).rstrip())
    return "\n".join(lines)


def _size(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n = n / 1024  # type: ignore[assignment]
    return f"{n:.1f} GiB"
