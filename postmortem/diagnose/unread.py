"""The ledger's losses -> a verdict that owns up to them: what was not read may hold the failure, so nothing
is healthy whose logs were not read to their end.

    healthy, and {"path": "rank0.log.bz2", "bytes": 33124, "reason": "read error ...", "lost": true}
        ->  undetermined: no failure in what was read, but 33,124 bytes of 65,843 were not read
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from postmortem.model.contract.incident import Ledger, Skipped
from postmortem.model.contract.verdict import Missing
from postmortem.model.vocabulary import WINDOW

NAMED = 5  # files
DENIED = "Permission denied"
OUR_OWN = "an internal error"
AGAIN = ("interrupted", "took too long", "stopped after")  # the file is not at fault


@dataclass(frozen=True)
class Unread:
    """Losses, and of how many bytes they are."""

    rows: tuple[Skipped, ...]
    total: int
    lead: str = "no failure in what was read, but"

    def __str__(self) -> str:
        return self.window or f"{self.lead} {self._what()}"

    @property
    def window(self) -> str:
        """Why `--since` and `--until` left nothing to read."""
        return next((str(row["reason"]) for row in self.rows if row["path"] == WINDOW), "")

    def _what(self) -> str:
        lost = sum(int(row["bytes"]) for row in self.rows)
        if lost:
            return f"{lost:,} bytes of {self.total:,} were not read"
        first = self.rows[0]
        if OUR_OWN in str(first["reason"]):
            return f"an internal error lost a part of {first['path']}"
        files = list(dict.fromkeys(str(row["path"]) for row in self.rows))
        return f"{files[0] if len(files) == 1 else f'{len(files)} files'} could not be read to the end"

    def told(self) -> list[str]:
        """A sentence for each of the first losses, and how many more there are."""
        said = [f"{row['path']}: {str(row['reason']).rstrip('.')}." for row in self.rows[:NAMED]]
        more = len(self.rows) - NAMED
        return [*said, f"{more:,} more losses are in the ledger."] if more > 0 else said

    def wanted(self) -> list[Missing]:
        """What to get: the same files, whole."""
        lost = {str(row["path"]): str(row["reason"]) for row in self.rows}
        return [_wanted(path, reason) for path, reason in lost.items() if OUR_OWN not in reason][:NAMED]


def _wanted(path: str, reason: str) -> Missing:
    if path == WINDOW:
        return {
            "what": "events in the time window",
            "would_tell": "whether something failed in it",
            "how": "choose --since and --until within the times of the logs, in UTC or with a time zone",
        }
    how = "copy it again from its source, and compare both with sha256sum"
    if any(word in reason for word in AGAIN):
        how = "analyze it again, by itself"
    if DENIED in reason:
        how = f"chmod a+r {shlex.quote(path)}   as its owner, and analyze again"
    why = reason.removeprefix("cannot be opened: ").rstrip(".")
    return {
        "what": f"{path}: {why[:1].lower()}{why[1:]}",
        "would_tell": "whether the unread part contains a failure",
        "how": how,
    }


def losses(ledger: Ledger, own: Iterable[str], others: Iterable[str]) -> Unread | None:
    """What may be missing of a job with the files `own`: all losses but those in files of other jobs."""
    skipped, total = ledger.get("skipped"), ledger.get("bytes")
    lost = [row for row in skipped if row.get("lost")] if isinstance(skipped, list) else []
    foreign = _files(others) - _files(own)
    rows = tuple(row for row in lost if _file(str(row["path"])) not in foreign)
    return Unread(rows, total if isinstance(total, int) else 0) if rows else None


def _files(paths: Iterable[str]) -> set[str]:
    return {_file(path) for path in paths}


def _file(path: str) -> str:
    """The file that a member of an archive lies in."""
    return path.partition("!/")[0]
