"""Incidents to render: the documents of tests/data/report, and the same with hostile text in every field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

from conftest import table

DATA = Path(__file__).parent / "data" / "report"
NAMES = ("oom", "undetermined", "healthy")

PAYLOADS = (*table("report_cases")["payloads"], "long " + "A" * 6000)


@dataclass(frozen=True)
class Frames:
    """A timeline for a report."""

    table: list[tuple[Any, ...]]

    def columns(self, ordered: bool = True) -> list[tuple[Any, ...]]:
        return list(zip(*self.table, strict=True)) or [()] * 11


@dataclass(frozen=True)
class Case:
    document: dict[str, Any]
    timeline: Frames | None = None


def load(name: str) -> Case:
    document = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    events = DATA / f"{name}.events.json"
    return Case(document, frames(json.loads(events.read_text())) if events.exists() else None)


def frames(events: dict[str, Any]) -> Frames:
    return Frames([tuple(row) for row in events["rows"]])


def poisoned(text: str) -> Case:
    """Return the OOM incident with `text` in every text field and in keys of free mappings."""
    return _poisoned(repeat(text))


def mixed(start: int, texts: tuple[str, ...] = PAYLOADS) -> Case:
    """Return the same with a different text in each field, from number `start` on."""
    return _poisoned(islice(cycle(texts), start, None))


def _poisoned(texts: Iterator[str]) -> Case:
    document = json.loads((DATA / "oom.json").read_text(encoding="utf-8"))
    document["replay"] = {"scenario": "s", "arguments": {next(texts): "v"}, "result": {"text": "t"}}
    attempt = dict.fromkeys(("begin", "end", "outcome", "category", "pattern", "why", "ended"), "t")
    document["attempts"] = [attempt | {"number": n, "ranks": [n], "hosts": ["h"]} for n in (0, 1)]
    collective = {"op": "o", "seq": 7, "group": "g", "numel_in": 2, "dtype": "d", "entered": [0], "missing": [1]}
    document["verdict"]["collective"] = collective | {"elsewhere": {"2": "c"}, "completed": {"1": 6}}
    document["clocks"].append({"host": "h", "reason": "r", "state": "s"})
    events = json.loads((DATA / "oom.events.json").read_text())
    severity = events["columns"].index("severity")
    for row in events["rows"]:
        row[:] = [
            next(texts) if isinstance(value, str) and place != severity else value for place, value in enumerate(row)
        ]
    return Case(_filled(document, texts), frames(events))


def _filled(value: Any, texts: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    return {key: _filled(item, texts) for key, item in value.items()} if isinstance(value, dict) else value
