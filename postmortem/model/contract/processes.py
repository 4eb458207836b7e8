"""The processes and runs of the incident document."""

from __future__ import annotations

from typing import Literal, TypedDict

from postmortem.model import Outcome
from postmortem.model.contract.words import Count, LineNumber, Time


class LastLine(TypedDict):
    """Address of a line."""

    source: str
    """`path` of its source"""
    line: LineNumber | None
    """Counts from 1; null in binary and JSON files"""


class Known(TypedDict):
    """How an identity is known."""

    strength: str
    """A word: `stated` by the line or the file's name, `joined` by pid or local rank, `file` by other lines of the
    file, `numbered` by the file's number, `listed` by the launcher's list, `guess`"""
    at: LastLine
    """The line that it is known by"""


class StopRequest(TypedDict):
    """A request to stop."""

    by: str
    """A word: `launcher`, `scheduler`, `user`, `unknown`"""
    at: LastLine
    """The line that reports it"""


class Process(TypedDict):
    """One process of the attempt that the verdict is about."""

    role: Literal["rank", "launcher", "dataloader-worker", "child"]
    """`child`: any other process that a rank started"""
    attempt: Count | None
    """Number of its attempt; null where no line numbers attempts"""
    rank: Count | None
    """Global rank; null for launchers and children"""
    local_rank: Count | None
    """Number of the rank on its host"""
    host: str | None
    """Null where no line names it"""
    pid: Count | None
    """Its first pid"""
    parent: Count | None
    """The rank that started it"""
    gpu: str | None
    """PCI bus and device of its GPU"""
    known: dict[str, Known]
    """How `rank`, `host` and `pid` are known, by the name of the cell"""
    first_seen: Time | None
    """Its first line with a time"""
    first_step: int | None
    """The lowest training step that it printed"""
    last_step: int | None
    """The highest"""
    last_collective: str | None
    """As in `ranks`"""
    last_line: LastLine | None
    """Its last line of progress or ordinary log"""
    stack: LastLine | None
    """Its last stack"""
    stop_requested: StopRequest | None
    """The request to stop that names it, else that for the whole job"""
    ended: Time | None
    """When its end was reported"""
    end_kind: str | None
    """A word: `clean`, `own`, `crash`, `kill`, `stop`, `limit`"""
    exit_code: int | None
    """Negative as Python reports signals, or above 128 as shells do"""
    signal: str | None
    """Name of the signal that ended it"""
    end_stated_by: LastLine | None
    """The line that reports its end"""
    error: LastLine | None
    """Its first exception or crash"""
    finished: bool
    """Whether it reported that it finished"""


class Run(TypedDict):
    """One launch of the job."""

    job: str | None
    """As `job.id`"""
    command: str | None
    """The command that started it; null if no line shows it"""
    launchers: list[Count]
    """Pids of its launchers, ascending"""
    attempts: list[Count]
    """Numbers of its attempts"""
    begin: Time | None
    """When it introduced itself; null where the logs start later"""
    end: Time | None
    """Its last line"""
    outcome: Outcome
    """That of its last attempt"""
    ended: str | None
    """How it ended, in words"""
    end_stated_by: LastLine | None
    """The line that reports it"""
