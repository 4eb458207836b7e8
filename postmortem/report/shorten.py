"""An incident document of thousands of ranks -> one that a page can carry:
the odd ranks first, of long tables the first rows.

    {"ranks": [16,384 rows], …}  ->  {"ranks": [500 rows], …, "cut": {"ranks": 16384, "clocks": 2048}}

`cut` says how many rows there were. A document that fits is returned as it is; the JSON output is never cut.
"""

from __future__ import annotations

from typing import Any

from postmortem.report import text, view

ROOM = 3000  # rows of ranks, sources and clocks together that are embedded whole
MOST = {"ranks": 500, "sources": 300, "clocks": 200}
NAMES = {"ranks": "rank", "sources": "file", "clocks": "clock"}
FEW = 8  # sources named for each clock


def fitting(document: view.Document) -> dict[str, Any]:
    """Return the document, or a shorter copy of it."""
    lengths = {name: len(view.rows(document.get(name))) for name in MOST}
    if sum(lengths.values()) <= ROOM:
        return dict(document)
    short = dict(document)
    for name, most in MOST.items():
        rows = view.rows(document.get(name))
        if name == "ranks":
            rows = sorted(rows, key=view.oddness)
        short[name] = [_clock(row) for row in rows[:most]] if name == "clocks" else rows[:most]
    short["cut"] = {name: length for name, length in lengths.items() if length > MOST[name]}
    return short


def said(document: view.Document) -> str:
    """Say in a sentence what `fitting` left out; empty where that is nothing."""
    cut = view.part(fitting(document), "cut")
    if not cut:
        return ""
    parts = ", ".join(f"{MOST[name]} of {text.plural(number, NAMES[name])}" for name, number in cut.items())
    return f"The embedded document has {parts}; `postmortem analyze --format json` writes all of them."


def _clock(row: dict[str, Any]) -> dict[str, Any]:
    sources = row.get("sources")
    return {**row, "sources": sources[:FEW]} if isinstance(sources, list) else row
