"""Containers and their results -> the ledger: every byte of every file once, scanned, or skipped with a reason.

    {"bytes": 5120, "scanned": 5008, "skipped": [{"path": "rank0.log.gz", "bytes": 112, "reason": "...", "lost": true}]}

Bytes are counted as they are stored. The framing of an archive counts as scanned. A row without bytes is a loss
that takes no room: the rest of a cut file, a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from postmortem.input.container import Container
from postmortem.model import Scanned, Skip
from postmortem.model.contract import incident as contract

STORED_AS_IS = ("plain", "tar", "zip")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account of all bytes: `bytes` is `scanned` plus the bytes of the rows in `skipped`."""

    bytes: int
    scanned: int
    skipped: tuple[Skip, ...]

    def to_json(self) -> contract.Ledger:
        """Return the ledger of the incident document."""
        return {"bytes": self.bytes, "scanned": self.scanned, "skipped": [_row(row) for row in self.skipped]}


def _row(skip: Skip) -> contract.Skipped:
    row: contract.Skipped = {"path": skip.path, "bytes": skip.bytes, "reason": skip.reason}
    return row if skip.meant else {**row, "lost": True}


def build(containers: Sequence[Container], scanned: Iterable[Scanned], skips: Iterable[Skip]) -> Ledger:
    """Account for all containers, and for the `skips` of files that never became one.

    A skip belongs to the container with its label, or with the part of it before `!/`. It counts stored bytes: on
    disk for the container itself, in the archive for a member.
    """
    accounts = {container.label: _Account(container) for container in containers}
    outside: list[Skip] = []
    for one in scanned:
        if account := _find(accounts, one.source.path):
            account.scanned(one)
    for skip in skips:
        found = _find(accounts, skip.path)
        if found is None:
            outside.append(skip)
        else:
            found.rows.append(skip)
    rows = outside + [row for account in accounts.values() for row in account.settle()]
    total = sum(c.size for c in containers) + sum(max(s.bytes, 0) for s in outside)
    rows.sort(key=lambda row: row.path)
    return Ledger(total, total - sum(row.bytes for row in rows), tuple(rows))


def _find(accounts: Mapping[str, _Account], path: str) -> _Account | None:
    if path in accounts:
        return accounts[path]
    at = path.find("!/")
    while at >= 0:
        if path[:at] in accounts:
            return accounts[path[:at]]
        at = path.find("!/", at + 1)
    return None


class _Account:
    """One container's bytes."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.rows: list[Skip] = []
        self.members: dict[str, int] = {}
        self.seen = False

    def scanned(self, one: Scanned) -> None:
        self.seen = True
        self.rows.extend(one.skips)
        if one.source.path != self.container.label:
            self.members[one.source.path] = one.source.size

    def settle(self) -> list[Skip]:
        """Return the rows of this container, of its size at most."""
        size = self.container.size
        if not self.seen and not self.rows:
            return [Skip(self.container.label, size, "not scanned")] if size else []
        own = [row for row in self.rows if row.path == self.container.label]
        members = [row for row in self.rows if row.path != self.container.label]
        settled = list(_capped(own, size))
        left = size - sum(row.bytes for row in settled)
        return [*settled, *_capped(members, left, self._share(members, left))]

    def _share(self, members: Sequence[Skip], left: int) -> float:
        """Return the bytes on disk for each byte of a member; a compressed archive's are divided by size."""
        if self.container.form in STORED_AS_IS:
            return 1.0
        unknown = sum(max(row.bytes, 0) for row in members if row.path not in self.members)
        total = sum(self.members.values()) + unknown
        return left / total if total else 0.0


def _capped(rows: Iterable[Skip], left: int, share: float = 1) -> Iterator[Skip]:
    """Yield the rows with their share of the bytes, `left` in all at most."""
    for row in rows:
        counted = min(int(max(row.bytes, 0) * share), left)
        left -= counted
        yield replace(row, bytes=counted)
