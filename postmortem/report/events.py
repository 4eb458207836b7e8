"""The events of an incident, one row each, as they may be shown.

    Row(time=1795209228.704, sigma=0.004, host="node-b", rank=3, severity="fatal", text="… Killed …", …)

They come from the timeline or, where a report is made from a document alone, from its evidence. The page
takes rows; outputs that hold all events take a frame, and so pay for the import of pandas (0.3 s), which the
page of a small incident need not.
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
    """An event as the picture needs it. `time` is NaN where no clock places it."""

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
    def address(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


_NOTHING: dict[str, list[Any]] = {name: [] for name in Row._fields}


def read_events(incident: view.Incident) -> list[Row]:
    """All events as they may be shown, in no order;
    those of the evidence alone where the timeline is no longer at hand."""
    return list(map(Row, *_shown(incident, ordered=False).values()))  # three times as fast as row by row


def frame(incident: view.Incident) -> pd.DataFrame:
    """The same as a frame, for outputs that hold all of them: by time, those without one last, lines of one
    file in their order. Columns are the fields of `Row`; `time` is NaN and `rank` and `line` are missing
    where they are not known, and no text is.
    """
    found = framed(_shown(incident, ordered=True))
    return found.sort_values("time", kind="stable", ignore_index=True)


def _shown(incident: view.Incident, ordered: bool) -> dict[str, list[Any]]:
    columns = _columns(incident, ordered)
    # as written: the user asked for it (`--no-redact`)
    done = getattr(incident, "as_written", False) or getattr(incident, "redacted", False)
    return columns if done else _redacted(columns)


def _columns(incident: view.Incident, ordered: bool) -> dict[str, list[Any]]:
    """The fields of `Row`, a list each."""
    timeline = incident.timeline
    if timeline is None:
        verdict = view.part(incident.document, "verdict")
        severities = ["info"] if verdict.get("outcome") == "healthy" else ["fatal", "warning"]
        cited = enumerate(view.rows(verdict.get("evidence")))
        rows = [_from_evidence(item, severities[min(place, len(severities) - 1)]) for place, item in cited]
        return dict(zip(Row._fields, map(list, zip(*rows, strict=True)), strict=True)) if rows else _NOTHING
    time, sigma, host, rank, kind, severity, pattern, said, source, line, _ = timeline.columns(ordered)
    return {
        "time": [float(value) if isinstance(value, int | float) else math.nan for value in time],
        "sigma": [float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0 for value in sigma],
        "host": _words(host),
        "rank": _numbers(rank),
        "severity": [value if value in SEVERITIES else "info" for value in severity],
        "pattern": _words(pattern),
        "text": _words(said),
        "source": _words(source),
        "line": _numbers(line),
        "kind": _words(kind),
    }


def _words(values: Iterable[Any]) -> list[str]:
    return [value if isinstance(value, str) else "" for value in values]


def _numbers(values: Iterable[Any]) -> list[int | None]:
    """A column of numbers with a gap in it comes back as floats, its gaps as NaN."""
    return [
        value if type(value) is int else int(value) if isinstance(value, int | float) and math.isfinite(value) else None
        for value in values
    ]


def _redacted(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns as they may be shown. Unlike the document, a timeline holds the logs' own words.

    New marks have no numbers: they would be counted over other texts than the document's,
    and equal numbers would lie.
    """
    said = list(dict.fromkeys(word for name in ("host", "text", "source") for word in columns[name]))
    redactor = Redactor()
    cleaned = redactor.texts(said)
    if cleaned == said:
        return columns
    # what was learnt where a secret is named may stand bare in an earlier line
    cleaned = redactor.texts(said)
    new = {
        word: _MARK.sub(r"[REDACTED:\1]", found) if word != found else word
        for word, found in zip(said, cleaned, strict=True)
    }
    return columns | {name: [new[word] for word in columns[name]] for name in ("host", "text", "source")}


def _from_evidence(item: Mapping[str, Any], severity: str) -> Row:
    moment = text.epoch(item.get("time"))
    sigma = item.get("uncertainty_s")
    host, pattern, said = _words(map(item.get, ("host", "pattern", "text")))
    return Row(
        time=math.nan if moment is None else moment,
        sigma=float(sigma) if isinstance(sigma, int | float) and math.isfinite(sigma) else 0.0,
        host=host,
        rank=_numbers([item.get("rank")])[0],
        severity=severity,
        pattern=pattern,
        text=said,
        source=view.known(item.get("source")),
        line=view.whole(item.get("line")),
    )
