"""Where the store is: a file for SQLite, or the URL of a PostgreSQL server.

place("fleet.db")                          -> sqlite, /home/alice/fleet.db
place("postgresql://ops@db/postmortem")    -> postgresql+psycopg, as SQLAlchemy calls it

fleet.db.backup     a copy of the store of the day, after `PRAGMA quick_check`
fleet.db.damaged    what `history repair` has put aside
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from postmortem.errors import HistoryError, UsageError

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


# ── a copy of a SQLite store beside it, and what is done with a damaged one ─────────────────────────────────

DAY_S = 86_400.0
TABLES = ("incidents", "involved", "notes", "usual", "resolutions", "inputs")


def copy_of(file: Path, suffix: str) -> Path:
    return file.with_name(f"{file.name}.{suffix}")


def create_file(file: Path) -> None:
    """Create an empty file that only its owner may read."""
    with suppress(OSError):  # it is there; or SQLite reports what is wrong
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def guard(at: Place, how: str = "quick_check") -> None:
    """Check a store that will be written, and copy it once a day. Raise HistoryError if it is damaged."""
    if at.file is None or not at.file.exists() or not at.file.stat().st_size:
        return
    with closing(sqlite3.connect(f"{at.file.as_uri()}?mode=ro", uri=True)) as store:
        if found := damage(store, how):
            hint = f"postmortem history repair --history {at.shown}"
            raise HistoryError(f"{at.shown} is not a SQLite database any more ({found})", hint)
        copy, new = copy_of(at.file, "backup"), copy_of(at.file, f"backup.{os.getpid()}")
        with suppress(OSError, sqlite3.Error):  # a full disk, a folder that may not be written
            if not copy.exists() or time.time() - copy.stat().st_mtime > DAY_S:
                try:
                    create_file(new)
                    with closing(sqlite3.connect(new)) as target:
                        store.backup(target)
                    new.replace(copy)
                finally:
                    new.unlink(missing_ok=True)


def damage(store: sqlite3.Connection, how: str = "quick_check") -> str:
    """Return the first fault that SQLite finds; empty if it finds none."""
    try:
        store.execute("PRAGMA trusted_schema = OFF")
        found = str(store.execute(f"PRAGMA {how}(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise
        found = str(error)
    return "" if found == "ok" else " ".join(found.split())[:200]


def restore(at: Place) -> None:
    """Put a damaged store aside, and its copy, if that is whole, in its place."""
    if at.file is None:
        raise UsageError(f"{at.shown} is not a file", "repair is for SQLite")
    aside, copy = copy_of(at.file, "damaged"), copy_of(at.file, "backup")
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            at.file.with_name(at.file.name + suffix).replace(aside.with_name(aside.name + suffix))
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro", uri=True)) as old:
        if copy.exists() and not damage(old):
            create_file(at.file)
            with closing(sqlite3.connect(at.file)) as target:
                old.backup(target)


def salvage(file: Path) -> tuple[int, int]:
    """Add the rows of the damaged store that can be read; return the number of incidents, and of those added."""
    with closing(sqlite3.connect(file)) as new:
        before, aside = _count(new), copy_of(file, "damaged")
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{aside.as_uri()}?mode=ro", uri=True)) as old:
            for table in TABLES:
                _take(new, old, table)
        new.commit()
        return _count(new), _count(new) - before


def _count(store: sqlite3.Connection) -> int:
    return int(store.execute("SELECT count(*) FROM incidents").fetchone()[0])


def _take(new: sqlite3.Connection, old: sqlite3.Connection, table: str) -> None:
    """Add the rows of a table that can be read, from both ends up to the damage."""
    names = [row[1] for row in new.execute(f"PRAGMA table_info({table})")]
    into = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error):
            new.executemany(into, _rows(old, f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid {order}"))


def _rows(old: sqlite3.Connection, query: str) -> Iterator[tuple[object, ...]]:
    with suppress(sqlite3.Error):
        yield from old.execute(query)
