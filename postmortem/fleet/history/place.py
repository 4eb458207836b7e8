"""Where the store is: a file for SQLite, or the URL of a PostgreSQL server.

place("fleet.db")                          -> sqlite, /home/alice/fleet.db
place("postgresql://ops@db/postmortem")    -> postgresql+psycopg, as SQLAlchemy calls it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from postmortem.errors import HistoryError
from postmortem.system import lazy as late

MOUNTS = Path("/proc/self/mountinfo")
# Locks of SQLite do not hold between hosts there, and the shared memory of its WAL does not exist.
NETWORK = late.regex(
    r"nfs\d?|cifs|smb\d?|smbfs|lustre|gpfs|beegfs|ceph|9p|afs|pvfs2|orangefs|panfs|wekafs|vastnfs|glusterfs|virtiofs"
    r"|fuse\.(?!fuse-overlayfs|lxcfs|ntfs).+"
)
_POSTGRES = late.regex(r"(?i)postgres(?:ql)?(?:\+psycopg)?://")
_SCHEME = late.regex(r"(?i)([a-z][a-z0-9+.-]{1,40})://")
_PASSWORD = late.regex(r"(?<=://)([^/?#@]*?):[^@/]*@|(?<=[?&]password=)[^&]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A store by its address."""

    url: str  # as SQLAlchemy has it
    shown: str  # without a password
    file: Path | None = None  # of SQLite

    @property
    def network(self) -> str:
        """The network file system that the file lies on, such as `nfs4`; empty where it is a local disk."""
        return network(self.file, _mounts()) if self.file else ""


def place(where: str) -> Place:
    """What `--history` names: a file, `sqlite:///file`, or `postgresql://user@host/database`."""
    if _POSTGRES.match(where):
        url = _POSTGRES.sub("postgresql+psycopg://", where, count=1)
        return Place(url, _PASSWORD.sub(lambda m: f"{m[1]}:***@" if m[1] is not None else "***", where))
    path = where.removeprefix("sqlite:///")
    if scheme := _SCHEME.match(path):
        raise HistoryError(
            f"no history can be kept in {scheme[1]}://", "name a file, or postgresql://USER@HOST/DATABASE"
        )
    if not path or "\0" in path:
        raise HistoryError("the history has no name", "name a file, or postgresql://USER@HOST/DATABASE")
    file = Path(path).expanduser().absolute()
    return Place(f"sqlite:///{file}", str(file), file)


def network(file: Path, mounts: str) -> str:
    """The type of the mount that holds the file, where that is a network's."""
    held = _resolved(file)
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        inside = held == point or held.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # a later mount on the same point hides the earlier
            best, kind = len(point), right.split(" ")[0]
    return kind if NETWORK.fullmatch(kind) else ""


def _resolved(file: Path) -> str:
    try:
        return str(file.resolve())
    except (OSError, RuntimeError):
        return str(file)


def _mounts() -> str:
    try:
        return MOUNTS.read_text("utf-8", "replace")
    except OSError:  # no /proc: another system
        return ""
