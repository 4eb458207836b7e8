"""A row of `--format ndjson`; without the last three columns, of `--format csv` and `--format parquet`."""

from __future__ import annotations

from typing import TypedDict

from postmortem.model import Severity
from postmortem.model.contract.words import Count, LineNumber, Seconds, Time


class EventRow(TypedDict):
    """One event of the timeline. Rows are sorted by time, those without a time last."""

    time: Time | None
    """On the job's one clock, UTC, to the microsecond; null where no clock places the event"""
    uncertainty_s: Seconds | None
    """One standard deviation of `time`, in seconds; null where `time` is"""
    rank: Count | None
    """Global rank; null if unknown"""
    host: str | None
    """Null if unknown"""
    kind: str | None
    """`pattern`, `exception`, `stack`, `line`, …; null where the rows come from a document alone"""
    severity: Severity
    """How bad the line is"""
    pattern: str | None
    """Id of the pattern that matched; null where none did"""
    text: str
    """The decisive line, secrets masked"""
    file: str
    """As `path` of a source in the incident document"""
    line: LineNumber | None
    """Counts from 1; null in binary and JSON files"""
    message: str
    """For Timesketch: `text`, or the pattern's id where the text is empty"""
    datetime: Time | None
    """For Timesketch: `time`"""
    timestamp_desc: str
    """For Timesketch: `kind`, or `line` where that is null"""
