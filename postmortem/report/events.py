"""The events of an incident without secrets, one row each.

    Row(time=1795209228.704, sigma=0.004, host="node-b", rank=3, severity="fatal", text="… Killed …", …)

They come from the timeline or, if there is only a document, from its evidence. The page uses rows; outputs of all
events use a frame, which costs the import of pandas (0.3 s).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from postmortem.model import vocabulary
from postmortem.model.frame import framed
from postmortem.privacy import Redactor
from postmortem.report import text, view

if TYPE_CHECKING:
    import pandas as pd

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


_NOTHING: dict[str, list[Any]] = {name: [] for name in Row._fields}


def read_events(incident: view.Incident, ordered: bool = False) -> list[Row]:
    """Return all events, lines of one file in their order if `ordered`; only those of the evidence where there is no
    timeline."""
    return list(map(Row, *_shown(incident, ordered).values()))  # three times as fast as row by row


def frame(incident: view.Incident) -> pd.DataFrame:
    """Return the same as a frame by time, events without one last, lines of one file in their order. Columns are the
    fields of `Row`; an unknown `time` is NaN, an unknown `rank` or `line` is missing."""
    found = framed(_shown(incident, ordered=True))
    return found.sort_values("time", kind="stable", ignore_index=True)


def _shown(incident: view.Incident, ordered: bool) -> dict[str, list[Any]]:
    columns = _columns(incident, ordered)
    # as_written: with --no-redact
    done = getattr(incident, "as_written", False) or getattr(incident, "redacted", False)
    return columns if done else _redacted(columns)


def _columns(incident: view.Incident, ordered: bool) -> dict[str, list[Any]]:
    """Return the fields of `Row`, a list each."""
    timeline = incident.timeline
    if timeline is None:
        verdict = view.part(incident.document, "verdict")
        severities = ["info"] if verdict.get("outcome") == "healthy" else ["fatal", "warning"]
        cited = enumerate(view.rows(verdict.get("evidence")))
        rows = [_from_evidence(item, severities[min(place, len(severities) - 1)]) for place, item in cited]
        return dict(zip(Row._fields, map(list, zip(*rows, strict=True)), strict=True)) if rows else _NOTHING
    time, sigma, host, rank, kind, severity, pattern, words, source, line, _ = timeline.columns(ordered)
    return {
        "time": [float(value) if isinstance(value, int | float) else math.nan for value in time],
        "sigma": [text.finite(value) for value in sigma],
        "host": _words(host),
        "rank": _numbers(rank),
        "severity": [value if value in SEVERITIES else "info" for value in severity],
        "pattern": _words(pattern),
        "text": _words(words),
        "source": _words(source),
        "line": _numbers(line),
        "kind": _words(kind),
    }


def _words(values: Iterable[Any]) -> list[str]:
    return [value if isinstance(value, str) else "" for value in values]


def _numbers(values: Iterable[Any]) -> list[int | None]:
    """Convert a column of numbers, which has floats if a number is missing (NaN)."""
    return [
        value if type(value) is int else int(value) if isinstance(value, int | float) and math.isfinite(value) else None
        for value in values
    ]


def _redacted(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the columns without secrets.

    Marks have no numbers, which would count other texts than those of the document.
    """
    words = list(dict.fromkeys(word for name in ("host", "text", "source") for word in columns[name]))
    redactor = Redactor()
    cleaned = redactor.texts(words)
    if cleaned == words:
        return columns
    cleaned = redactor.texts(words)  # a secret that was learned from its name may be alone in an earlier line
    new = {
        word: _MARK.sub(r"[REDACTED:\1]", found) if word != found else word
        for word, found in zip(words, cleaned, strict=True)
    }
    return columns | {name: [new[word] for word in columns[name]] for name in ("host", "text", "source")}


def _from_evidence(item: Mapping[str, Any], severity: str) -> Row:
    moment = text.epoch(item.get("time"))
    host, pattern, words = _words(map(item.get, ("host", "pattern", "text")))
    return Row(
        time=math.nan if moment is None else moment,
        sigma=text.finite(item.get("uncertainty_s")),
        host=host,
        rank=_numbers([item.get("rank")])[0],
        severity=severity,
        pattern=pattern,
        text=words,
        source=view.known(item.get("source")),
        line=view.whole(item.get("line")),
    )
