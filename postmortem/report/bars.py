"""The numbers of the document as small pictures: bars beside their numbers, and lines over steps.

    memory cgroup   ██████████████   1.46 GiB of 1.46 GiB          rank 2      ███████████▍   1,056, 1 behind
    python3         ██████████       1.0 GiB                       ranks 0–1   ███████████▌   1,057

A bar is a share of the widest one; a line is the `points` of a polyline in a box of 100 by 30 that the page stretches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postmortem.report import text, view

WIDTH, HEIGHT = 100.0, 30.0
STEP_ROWS, FEWEST = 6, 2
PLACES = {"missing": "○ not entered", "elsewhere": "◇ elsewhere", "entered": "● waits", "done": "✓ done"}
NAMED = {"between": "time from step to step, by the timestamps"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: the filled part of 100, and the tone of its color."""

    label: str
    filled: float
    number: str
    tone: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A polyline for each part without a gap."""

    label: str
    tone: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over steps; `mark` is the place of a moment to show, and `table` has a row for each step."""

    title: str
    sentences: tuple[str, ...]
    lines: tuple[Line, ...]
    top: str
    bottom: str
    first: str
    last: str
    mark: float | None
    head: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]


def memory(document: view.Document) -> list[Bar]:
    """Return the use of memory: of a limit, or of the largest use."""
    rows = view.rows(view.part(document, "quantities").get("memory"))
    widest = max((max(row.get("limit") or 0, row["used"]) for row in rows), default=0)
    return [
        Bar(
            view.known(row.get("name")),
            _share(row["used"], row.get("limit") or widest),
            _of_limit(row),
            "cause" if _is_full(row) else "unknown",
            view.address(view.part(row, "at")),
        )
        for row in rows
    ]


def snapshot(row: dict[str, Any]) -> list[Bar]:
    """Return the lines of code that hold the memory of one GPU."""
    reserved = row.get("reserved") or 0
    return [
        Bar(view.known(item.get("code")), _share(item["bytes"], reserved), text.size(item["bytes"]), "unknown")
        for item in view.rows(row.get("held"))
    ]


def hang(document: view.Document) -> dict[str, Any] | None:
    """Return the matrix of ranks and process groups; None where one row has no other to compare with."""
    found = view.part(document, "hang")
    rows = [row for row in view.rows(found.get("rows")) if view.numbers(row.get("ranks"))]
    if len(rows) < FEWEST:
        return None
    groups, kept = view.words(found.get("groups")), ("ranks", "code", "call")
    shown = [{name: row.get(name) for name in kept} | {"cells": _cells(row, len(groups))} for row in rows]
    return {"text": view.known(found.get("text")), "groups": groups, "rows": shown}


def _cells(row: dict[str, Any], count: int) -> list[dict[str, Any]]:
    cells = row.get("cells")
    known = [cell if isinstance(cell, dict) else {} for cell in (cells if isinstance(cells, list) else [])]
    names = ("seq", "op", "place")
    whole = [{name: cell.get(name) for name in names} for cell in (*known, *[{}] * count)][:count]
    return [cell | {"place": cell["place"] if cell["place"] in PLACES else ""} for cell in whole]


def _of_limit(row: dict[str, Any]) -> str:
    """`716,800 of 716,800 kB`: as the kernel writes it, so that equal sizes are seen to be equal."""
    if row.get("limit") is None or ":" in row["name"]:
        return text.size(row["used"])
    if row["limit"] % 1024 == 0 == row["used"] % 1024 and row["name"] == "memory cgroup":
        return f"{row['used'] // 1024:,} of {row['limit'] // 1024:,} kB"
    return f"{text.size(row['used'])} of {text.size(row['limit'])}"


def _is_full(row: dict[str, Any]) -> bool:
    return ":" not in row["name"] and row.get("limit") is not None and row["used"] >= 0.9 * row["limit"]


def _share(value: float, whole: float) -> float:
    return round(100 * min(max(value / whole, 0.0), 1.0), 1) if whole else 0.0


def last_steps(document: view.Document) -> list[Bar]:
    """Return the last step of the ranks, those with the same one together, the one behind first; empty where all came
    equally far or the run went well."""
    by_step: dict[int, list[int]] = {}
    for rank, item in view.by_rank(document):
        if rank is not None and (step := view.whole(item.get("last_step"))) is not None:
            by_step.setdefault(step, []).append(rank)
    if len(by_step) < FEWEST or view.part(document, "verdict").get("outcome") == "healthy":
        return []
    most, blamed = max(by_step), view.numbers(view.part(view.part(document, "verdict"), "culprit").get("ranks"))
    chosen = sorted(by_step)[: STEP_ROWS - 1] + ([most] if len(by_step) >= STEP_ROWS else [])
    return [
        Bar(
            text.ranks(by_step[step], view.SPANS),
            _share(step, most),
            f"step {step:,}" + (f", {most - step:,} behind" if step < most else ""),
            "cause" if step < most and set(blamed) & set(by_step[step]) else "unknown",
        )
        for step in chosen
    ]


def pace(document: view.Document) -> Chart | None:
    """Return the time of a step of the slowest ranks beside the median; None where no rank is slow."""
    row = view.part(view.part(document, "quantities"), "pace")
    slowest = view.rows(row.get("slowest"))
    if not slowest:
        return None
    slow = {item["rank"] for item in view.rows(row.get("stragglers"))}
    rows = [
        (f"rank {item['rank']}", "cause" if item["rank"] in slow else "unknown", item["seconds"]) for item in slowest
    ]
    rows.append((f"median of {text.plural(row['ranks'], 'rank')}", "healthy", row["median"]))
    measure = NAMED.get(row["measure"], f'the "{row["measure"]}" time that each rank prints')
    return _chart(
        f"Slow ranks: {measure}", [item["text"] for item in view.rows(row.get("stragglers"))], row["steps"], rows, " s"
    )


def losses(document: view.Document) -> Chart | None:
    """Return loss and gradient norm with the first value that is not a number."""
    row = view.part(view.part(document, "quantities"), "losses")
    if not row:
        return None
    who = "" if row.get("rank") is None else f" of rank {row['rank']}"
    rows = [(name, tone, row[key]) for key, name, tone in LOSSES if key in row and any(n is not None for n in row[key])]
    sentence = f"The first NaN or infinity is at step {row['first_nan']:,} ({view.address(view.part(row, 'at'))})."
    return _chart(f"Loss{who}", [sentence], row["steps"], rows, "", row["first_nan"])


LOSSES = (("loss", "loss", "unknown"), ("grad_norm", "gradient norm", "silent"))


def _chart(
    title: str,
    sentences: list[str],
    steps: Sequence[int],
    rows: list[tuple[str, str, list[float | None]]],
    unit: str,
    mark: int | None = None,
) -> Chart:
    known = [n for _, _, values in rows for n in values if n is not None]
    low, high = (min(known), max(known)) if unit == "" and known else (0.0, max(known, default=1.0))
    table = zip(steps, *(values for _, _, values in rows), strict=True)
    return Chart(
        title=title,
        sentences=tuple(sentences),
        lines=tuple(Line(name, tone, tuple(_parts(steps, values, low, high))) for name, tone, values in rows),
        top=f"{high:.4g}{unit}",
        bottom=f"{low:.4g}{unit}",
        first=f"{steps[0]:,}",
        last=f"{steps[-1]:,}",
        mark=None if mark is None else _x(steps, mark),
        head=("step", *(name for name, _, _ in rows)),
        table=tuple((f"{step:,}", *("" if n is None else f"{n:g}" for n in values)) for step, *values in table),
    )


def _x(steps: Sequence[int], step: int) -> float:
    return round(WIDTH * (step - steps[0]) / max(steps[-1] - steps[0], 1), 2)


def _parts(steps: Sequence[int], values: Sequence[float | None], low: float, high: float) -> list[str]:
    """Return the points between gaps; a single point is a short line."""
    parts: list[list[str]] = [[]]
    for step, value in zip(steps, values, strict=True):
        if value is None:
            parts.append([])
            continue
        y = HEIGHT - HEIGHT * (value - low) / ((high - low) or 1.0)
        parts[-1].append(f"{_x(steps, step):g},{y:.2f}")
    return [" ".join(part if len(part) > 1 else part * 2) for part in parts if part]
