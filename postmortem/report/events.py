"""The events of an incident without secrets, one row each.

    Row(time=1795209228.704, sigma=0.004, host="node-b", rank=3, severity="fatal", text="… Killed …", …)

They come from the timeline or, if there is only a document, from its evidence. The page uses rows, outputs of all
events the frame.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from postmortem.model import vocabulary
from postmortem.model.frame import of_columns, plain, renamed, used
from postmortem.privacy import Redactor
from postmortem.report import text, view

SEVERITIES = vocabulary.SEVERITIES[::-1]  # from the least to the worst
_MARK = re.compile(r"\[REDACTED:([a-z0-9-]+):\d+\]")
Place = tuple[str, int | None]  # source and line


class Row(NamedTuple):
    """An event for the picture. `time` is NaN where it is not known."""

    time: float
    sigma: float
    host: str
    rank: int | None
    severity: str
    pattern: str
    text: str
    source: str
    line: int | None
    kind: str = ""

    @property
    def place(self) -> Place:
        return self.source, self.line

    @property
    def badness(self) -> tuple[int, str]:
        return SEVERITIES.index(self.severity), self.pattern

    @property
    def address(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


def read_events(incident: view.Incident) -> list[Row]:
    """Return all events, in their order; only those of the evidence where there is no timeline."""
    rows = frame(incident)
    columns = {name: plain(rows[name]) for name in Row._fields}
    for name in ("time", "sigma"):
        columns[name] = rows[name].tolist()
    for name in ("host", "pattern", "kind"):
        columns[name] = [value or "" for value in columns[name]]
    return list(map(Row, *columns.values()))  # three times as fast as row by row


def frame(incident: view.Incident) -> pd.DataFrame:
    """Return the same as a frame: the timeline, or of a document alone its evidence, by time, without secrets."""
    timeline = incident.timeline
    if timeline is None:
        verdict = view.part(incident.document, "verdict")
        severities = ["info"] if verdict.get("outcome") == "healthy" else ["fatal", "warning"]
        cited = enumerate(view.rows(verdict.get("evidence")))
        rows = [_from_evidence(item, severities[min(place, len(severities) - 1)]) for place, item in cited]
        columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True)) if rows else {}
        return _redacted(of_columns(columns.get, len(rows)).sort_values("time", kind="stable"))
    # as_written: with --no-redact
    done = getattr(incident, "as_written", False) or getattr(incident, "redacted", False)
    return timeline if done else _redacted(timeline)


def _redacted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without secrets.

    Marks have no numbers, which would count other texts than those of the document.
    """
    rows, redactor = rows.copy(deep=False), Redactor()
    names = ("host", "text", "source")
    words = list(dict.fromkeys(word for name in names for word in used(rows[name])))
    redactor.texts(words)
    # again: a secret that was learned from its name may be alone in an earlier line
    new = {
        word: _MARK.sub(r"[REDACTED:\1]", found) if word != found else word
        for word, found in zip(words, redactor.texts(words), strict=True)
    }
    for name in names:
        rows[name] = renamed(rows[name], [new.get(word, "") for word in rows[name].cat.categories])
    return rows


def _from_evidence(item: Mapping[str, Any], severity: str) -> Row:
    moment = text.epoch(item.get("time"))
    return Row(
        time=math.nan if moment is None else moment,
        sigma=text.finite(item.get("uncertainty_s")),
        host=view.known(item.get("host")),
        rank=view.whole(item.get("rank")),
        severity=severity,
        pattern=view.known(item.get("pattern")),
        text=view.known(item.get("text")),
        source=view.known(item.get("source")),
        line=view.whole(item.get("line")),
    )
