"""Errors that the user can fix.

PostmortemError
├── UsageError         the command line does not make sense           exit 2
│   └── PathMissing    a path on the command line does not exist      exit 2
├── NothingReadable    the paths have no readable log                 exit 3
├── PatternError       a pattern file is wrong; names file and line   exit 2
├── ReplayError        a replay could not be done here                exit 7
├── CollectError       an archive is incomplete                       exit 8
├── HistoryError       the history cannot be read or written          exit 9
└── TicketError        a ticket could not be written                  exit 14

Each error has one sentence for the user and, where there is one, the next step. The command line catches the root
of the tree once; nothing else in the package prints an error or exits.
"""

from __future__ import annotations

import os
import traceback
from pathlib import PurePath


class PostmortemError(Exception):
    """An error that the user can fix. `hint` is the next step."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PostmortemError):
    """The command line does not make sense."""

    exit_code = 2


class PathMissing(UsageError):
    """A path on the command line does not exist."""


class NothingReadable(PostmortemError):
    """The paths exist, but nothing under them could be read as a log."""

    exit_code = 3


class PatternError(PostmortemError):
    """A pattern file cannot be used. The message starts with `file:line: `."""

    exit_code = 2


class ReplayError(PostmortemError):
    """A replay could not be done on this machine."""

    exit_code = 7


class CollectError(PostmortemError):
    """An archive is incomplete: the disk was full, or a host did not answer."""

    exit_code = 8


class HistoryError(PostmortemError):
    """The history cannot be read or written: it is down, locked, too new, or not there."""

    exit_code = 9


class TicketError(PostmortemError):
    """A ticket could not be written: its tracker refused, redirected, or did not answer."""

    exit_code = 14


def refusal(error: BaseException) -> PostmortemError | None:
    """Return the error for a path that the system refused: a folder without permission, a failing file server."""
    if not isinstance(error, OSError) or not error.errno or not error.filename:
        return None
    where = os.fsdecode(error.filename)
    return PostmortemError(f"{where}: {os.strerror(error.errno)}", "make it readable, or name another")


def ours(error: BaseException) -> str:
    """Return the message for an unexpected exception: its place in this package, and its text."""
    if isinstance(error, MemoryError):
        return "it exceeds the memory limit of one source"
    frames = [PurePath(f.filename).parts + (f.lineno,) for f in traceback.extract_tb(error.__traceback__)]
    own = [parts for parts in frames if "postmortem" in parts]
    place = f" in {'/'.join(map(str, own[-1][-3:-1]))}:{own[-1][-1]}" if own else ""
    text = " ".join(str(error).split())[:160]
    return f"an internal error{place} ({type(error).__name__}: {text}), please report it"
