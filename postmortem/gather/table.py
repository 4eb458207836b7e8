"""What came, as a table for a terminal: a line for each item that did not come, a line for each host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postmortem.gather.here import Row

REASON = 100  # characters


def of_items(rows: Sequence[Row]) -> str:
    """Each item of one host, those that came first."""
    came = [row for row in rows if row["file"]]
    lines = [
        (str(row["file"]).partition("/")[2], _size(int(row["bytes"])), f"{row['seconds']:.1f} s", _note(row))
        for row in came
    ]
    lines += [
        (str(row["item"]), "–", f"{row['seconds']:.1f} s", _note(row)) for row in rows if not row["file"]
    ]
    return _columns([("item", "size", "time", ""), *lines])


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
