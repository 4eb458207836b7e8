"""Where the store is: a file for SQLite, or the URL of a PostgreSQL server.

place("fleet.db")                          -> sqlite, /home/alice/fleet.db
place("postgresql://ops@db/postmortem")    -> postgresql+psycopg, as SQLAlchemy calls it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from postmortem.errors import HistoryError

MOUNTS = Path("/proc/self/mountinfo")
# Locks of SQLite do not work between hosts there, and its write-ahead log needs shared memory.
NETWORK = (
    "nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "pvfs2", "orangefs", "panfs", "wekafs",
    "vastnfs", "glusterfs", "virtiofs", "fuse.",
)  # fmt: skip
LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.ntfs")
_PASSWORD = re.compile(r"(?<=://)([^/?#@]*?):[^@/]*@|(?<=[?&]password=)[^&]+")
_HINT = "name a file, or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class Place:
    """Address of a store."""

    url: str  # for SQLAlchemy
    shown: str  # without the password
    file: Path | None = None  # of SQLite

    @property
    def network(self) -> str:
        """The network file system of the file, such as `nfs4`; empty for a local disk."""
        try:
            return network(self.file, MOUNTS.read_text("utf-8", "replace")) if self.file else ""
        except OSError:  # a system without /proc
            return ""


def place(where: str) -> Place:
    """Parse the value of `--history`: a file, `sqlite:///file`, or `postgresql://user@host/database`."""
    scheme, colon, rest = where.partition("://")
    if colon and scheme.lower() in ("postgres", "postgresql", "postgresql+psycopg"):
        if not rest.strip("/"):
            raise HistoryError(f"{where} names no database", _HINT)
        shown = _PASSWORD.sub(lambda m: f"{m[1]}:***@" if m[1] is not None else "***", where)
        return Place(f"postgresql+psycopg://{rest}", shown)
    path = where.removeprefix("sqlite:///")
    scheme, colon, _ = path.partition("://")
    if colon and scheme.isascii() and scheme[1:] and scheme.replace("+", "").isalnum():
        raise HistoryError(f"no history can be stored in {scheme}://", _HINT)
    if not path or "\0" in path:
        raise HistoryError("the history has no name", _HINT)
    file = Path(path).expanduser().absolute()
    return Place(f"sqlite:///{file}", str(file), file)


def network(file: Path, mounts: str) -> str:
    """Return the type of the file's mount if it is a network file system, from the text of mountinfo."""
    path = _resolved(file)
    longest, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # a later mount on the same point hides the earlier one
            longest, kind = len(point), right.split(" ")[0]
    return kind if kind.startswith(NETWORK) and not kind.startswith(LOCAL_FUSE) else ""


def _resolved(file: Path) -> str:
    try:
        return str(file.resolve())
    except (OSError, RuntimeError):
        return str(file)
