"""Incidents to render: the documents of tests/data/report, and the same with hostile text in every field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import pandas as pd

from conftest import table
from postmortem import report
from postmortem.model.frame import of_columns, plain

DATA = Path(__file__).parent / "data" / "report"
NAMES = ("oom", "undetermined", "healthy")
FOR_PROGRAMS = ("github", "csv", "ndjson", "trace", "junit", "brief")
RENDERS = [
    getattr(report, f"render_{form}") for form in ("html", "markdown", "json", "terminal", "verbose", *FOR_PROGRAMS)
]
HALVES = (  # of pairs, which no YAML file may have
    "\u202egnp.exe\u202c \u2066isolated\u2069 \u200fmark, tag\udb40\udc41\udb40\udc7f \ufeff \u200b \u2060",
    "half a pair \ud800 and \udfff, and a byte \udc80",
)
PAYLOADS = (*table("report_cases")["payloads"], *HALVES, "long " + "A" * 6000)
COLUMNS = ("time", "sigma", "host", "rank", "kind", "severity", "pattern", "text", "source", "line", "clock")


@dataclass(frozen=True)
class Case:
    document: dict[str, Any]
    timeline: pd.DataFrame | None = None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the timeline as values of COLUMNS."""
        assert self.timeline is not None
        return list(zip(*(plain(self.timeline[name]) for name in COLUMNS), strict=True))


def load(name: str) -> Case:
    document = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    events = DATA / f"{name}.events.json"
    return Case(document, framed(json.loads(events.read_text())["rows"]) if events.exists() else None)


def framed(rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    return of_columns(dict(zip(COLUMNS, zip(*rows, strict=True), strict=False)).get, len(rows))


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
    cell = {"seq": 7, "completed": 6, "op": "o", "place": "entered"}
    rows = [{"ranks": [n], "cells": [cell], "code": "c", "call": "c"} for n in (0, 1)]
    document["hang"] = {"text": "t", "groups": ["g"], "rows": rows}
    at = {"source": "s", "line": 3}
    slow = {"rank": 1, "text": "t", "at": at}
    slowest = [{"rank": 1, "seconds": [1.0, None]}]
    pace = {"measure": "m", "ranks": 3, "steps": [1, 2], "median": [0.5, 0.5], "slowest": slowest, "stragglers": [slow]}
    losses = {"rank": 0, "steps": [1, 2], "loss": [2.0, None], "grad_norm": [1.0, 1.0], "first_nan": 2, "at": at}
    memory = [{"name": "n", "used": 5, "limit": 10, "at": at}, {"name": "n", "used": 4, "limit": None, "at": at}]
    document["quantities"] = {"pace": pace, "losses": losses, "memory": memory}
    events = json.loads((DATA / "oom.events.json").read_text())
    severity = events["columns"].index("severity")
    for row in events["rows"]:
        row[:] = [
            next(texts) if isinstance(value, str) and place != severity else value for place, value in enumerate(row)
        ]
    return Case(_filled(document, texts), framed(events["rows"]))


def _filled(value: Any, texts: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    return {key: _filled(item, texts) for key, item in value.items()} if isinstance(value, dict) else value
