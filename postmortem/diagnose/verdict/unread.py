"""Losses by the ledger: an unread part may hold the failure, so a job with unread logs is not healthy.

healthy, and {"path": "rank0.log.bz2", "bytes": 33124, "reason": "read error ...", "lost": true}
    ->  undetermined: no failure in what was read, but 33,124 bytes of 65,843 were not read
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from postmortem.model.contract.incident import Ledger, Skipped
from postmortem.model.vocabulary import WINDOW

NAMED = 5  # files
OUR_OWN = "an internal error"


@dataclass(frozen=True)
class Unread:
    """The losses, and the number of bytes of all logs."""

    rows: tuple[Skipped, ...]
    total: int
    opening: str = "no failure in what was read, but"

    def __str__(self) -> str:
        return self.window or f"{self.opening} {self._extent()}"

    @property
    def window(self) -> str:
        """Why `--since` and `--until` left nothing to read."""
        return next((str(row["reason"]) for row in self.rows if row["path"] == WINDOW), "")

    def _extent(self) -> str:
        lost = sum(int(row["bytes"]) for row in self.rows)
        if lost:
            return f"{lost:,} bytes of {self.total:,} were not read"
        first = self.rows[0]
        if OUR_OWN in str(first["reason"]):
            return f"an internal error lost a part of {first['path']}"
        files = list(dict.fromkeys(str(row["path"]) for row in self.rows))
        return f"{files[0] if len(files) == 1 else f'{len(files)} files'} could not be read to the end"

    def sentences(self) -> list[str]:
        """A sentence for each of the first losses, and the number of further ones."""
        sentences = [f"{row['path']}: {str(row['reason']).rstrip('.')}." for row in self.rows[:NAMED]]
        more = len(self.rows) - NAMED
        return [*sentences, f"{more:,} more losses are in the ledger."] if more > 0 else sentences


def losses(ledger: Ledger, own: Iterable[str], others: Iterable[str]) -> Unread | None:
    """The losses that may concern a job with the files `own`: all but those in files of other jobs."""
    skipped, total = ledger.get("skipped"), ledger.get("bytes")
    lost = [row for row in skipped if row.get("lost")] if isinstance(skipped, list) else []
    foreign = {_archive(path) for path in others} - {_archive(path) for path in own}
    rows = tuple(row for row in lost if _archive(str(row["path"])) not in foreign)
    return Unread(rows, total if isinstance(total, int) else 0) if rows else None


def _archive(path: str) -> str:
    """The file that holds a member of an archive."""
    return path.partition("!/")[0]
