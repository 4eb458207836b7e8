"""The store: one transaction for each incident that is filed, in SQLite or PostgreSQL.

    with opened("fleet.db") as store:
        store.file(row)                 True: it is new
        store.seen(row)                 the incidents of the same cause

SQLite writes in its WAL and takes its lock at the beginning (`BEGIN IMMEDIATE`), so that writers queue
instead of failing half way. Every error is a sentence (`HistoryError`); who files a verdict prints it and
goes on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postmortem.errors import HistoryError
from postmortem.fleet.history.place import Place, place
from postmortem.fleet.history.rows import Row, hours, stamp
from postmortem.model.fingerprint import SCHEME

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
    from sqlalchemy.dialects import postgresql, sqlite

    from postmortem.fleet.history.schema import HEAD, KNOWN, incidents, involved, notes
except ImportError:
    raise HistoryError(
        "a history needs SQLAlchemy", "pip install 'torch-postmortem[history]', or leave --history out"
    ) from None

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

PATIENCE_S = 30.0  # how long a writer waits for the others
CONNECT_S = 5
MIGRATING = 0x706D  # the advisory lock of PostgreSQL under which one program makes the tables
CHUNK = 500  # rows of a statement: SQLite of 2019 takes 999 values
READS = {"postmortem_reads": True}
COLUMNS = tuple(f.name for f in fields(Row) if f.name != "involved")


class Store:
    """An open store, its tables made and of this program's version."""

    def __init__(self, engine: Engine, shown: str) -> None:
        self.engine, self.shown = engine, shown
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    @contextmanager
    def _begun(self, reads: bool = False) -> Iterator[Connection]:
        with _sentences(self.shown), self.engine.connect() as connection:
            held = connection.execution_options(**READS) if reads else connection
            with held.begin():
                yield held

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def file(self, row: Row) -> bool:
        """Keep a row; True where the incident is new. One that is here gets what the later analysis says,
        and keeps its notes and the day when it was filed."""
        values = {name: value for name, value in asdict(row).items() if name in COLUMNS}
        values["filed"] = stamp(time.time())
        told = {name: value for name, value in values.items() if name not in ("uid", "filed")}
        if row.report is None:  # analyzed once more without a report: the old one is still there
            del told["report"]
        with self._begun() as c:
            known = c.execute(sa.select(incidents.c.uid).where(incidents.c.uid == row.uid)).first()
            c.execute(self._insert(incidents).values(values).on_conflict_do_update(index_elements=["uid"], set_=told))
            if known:
                c.execute(sa.delete(involved).where(involved.c.uid == row.uid))
            own = [{"uid": row.uid, **asdict(each)} for each in row.involved]
            for at in range(0, len(own), CHUNK):
                c.execute(self._insert(involved).on_conflict_do_nothing(), own[at : at + CHUNK])
        return known is None

    def extend(self, row: Row) -> bool:
        """Keep a run of which several hosts file their parts; True where it is new. One that is here gets
        their hosts, and the time of all."""
        values = {name: value for name, value in asdict(row).items() if name in COLUMNS}
        values["filed"] = stamp(time.time())
        own = [{"uid": row.uid, **asdict(each)} for each in row.involved]
        with self._begun() as c:
            there = incidents.c.uid == row.uid
            found = c.execute(sa.select(incidents.c.uid).where(there)).first()
            c.execute(self._insert(incidents).values(values).on_conflict_do_nothing())
            known = c.execute(sa.select(incidents).where(there).with_for_update()).mappings().one()
            begun = min(filter(None, (known["begun"], row.begun)), default=None)
            ended = max(filter(None, (known["ended"], row.ended)), default=None)
            told = {"begun": begun, "ended": ended, "happened": ended, "hours": hours(begun, ended)}
            if row.outcome != "healthy":
                told |= {name: values[name] for name in ("outcome", "headline", "lost_rank_hours")}
            c.execute(sa.update(incidents).where(there).values(told))
            c.execute(self._insert(involved).on_conflict_do_nothing(), own)
        return found is None

    def forget(self, uids: Sequence[str] = (), before: str | None = None) -> int:
        """Delete these incidents, or all that happened before a moment; return how many there were."""
        gone = 0
        with self._begun() as c:
            for at in range(0, len(uids), CHUNK):
                found = c.execute(sa.delete(incidents).where(incidents.c.uid.in_(uids[at : at + CHUNK])))
                gone += found.rowcount
            if before is not None:
                gone += c.execute(sa.delete(incidents).where(before > _WHEN)).rowcount
        return gone

    def note(self, uid: str, text: str, author: str | None = None) -> None:
        with self._begun() as c:
            told = {"uid": uid, "noted": stamp(time.time()), "author": author, "text": text}
            c.execute(sa.insert(notes).values(told))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, **asked: Any) -> list[dict[str, Any]]:
        """Rows of `incidents`, latest first, each with `when`; `asked` is what `_wanted` takes, and
        `limit`."""
        limit = asked.pop("limit", None)
        query = sa.select(incidents, _WHEN.label("when")).where(*_wanted(**asked))
        with self._begun(reads=True) as c:
            found = c.execute(query.order_by(_WHEN.desc(), incidents.c.uid).limit(limit))
            return [dict(each) for each in found.mappings()]

    def involved(self, **asked: Any) -> list[dict[str, Any]]:
        """`uid`, `kind`, `name` and `fault` of the hosts and GPUs of these incidents."""
        query = sa.select(involved).join(incidents, incidents.c.uid == involved.c.uid).where(*_wanted(**asked))
        with self._begun(reads=True) as c:
            ordered = query.order_by(involved.c.uid, involved.c.fault.desc(), involved.c.name)
            return [dict(each) for each in c.execute(ordered).mappings()]

    def notes(self, **asked: Any) -> list[dict[str, Any]]:
        """`uid`, `noted`, `author` and `text` of the notes of these incidents, oldest first."""
        query = sa.select(notes).join(incidents, incidents.c.uid == notes.c.uid).where(*_wanted(**asked))
        with self._begun(reads=True) as c:
            ordered = query.order_by(notes.c.noted, notes.c.number)
            return [dict(each) for each in c.execute(ordered).mappings()]

    def span(self) -> tuple[int, str | None]:
        """How many incidents there are, and since when."""
        with self._begun(reads=True) as c:
            count, first = c.execute(sa.select(sa.func.count(), sa.func.min(_WHEN)).select_from(incidents)).one()
        return int(count), first

    def incomparable(self) -> int:
        """How many incidents have a fingerprint of another scheme, which equals none of today's."""
        other = sa.not_(incidents.c.cause.startswith(f"{SCHEME}.", autoescape=True))
        with self._begun(reads=True) as c:
            return int(c.execute(sa.select(sa.func.count()).where(other)).scalar_one())

    def same(self, cause: str, but: str) -> tuple[int, str | None, tuple[str, int] | None]:
        """How many others have this cause, since when, and the host most often at fault in them. Counted by
        the database: a cause may have ten thousand incidents of a thousand hosts each."""
        own = (incidents.c.cause == cause, incidents.c.uid != but)
        times = sa.func.count().label("times")
        blamed = (
            sa.select(involved.c.name, times)
            .join(incidents, incidents.c.uid == involved.c.uid)
            .where(*own, involved.c.kind == "host", involved.c.fault)
            .group_by(involved.c.name)
            .order_by(times.desc(), involved.c.name)
        )
        with self._begun(reads=True) as c:
            count, first = c.execute(sa.select(sa.func.count(), sa.func.min(_WHEN)).where(*own)).one()
            host = c.execute(blamed.limit(1)).first()
        return int(count), first, (host[0], int(host[1])) if host else None

    def find(self, start: str) -> str:
        """The uid that begins so, as `list` shows it."""
        query = sa.select(incidents.c.uid).where(incidents.c.uid.startswith(start.lower(), autoescape=True))
        with self._begun(reads=True) as c:
            found = list(c.execute(query.limit(2)).scalars()) if start else []
        if len(found) != 1:
            what = f"several incidents begin with {start}" if found else f"no incident {start!r} in {self.shown}"
            raise HistoryError(what, "`postmortem history list` shows the IDs")
        return str(found[0])


_WHEN = sa.func.coalesce(incidents.c.happened, incidents.c.filed)


def _wanted(
    *,
    uid: str | None = None,
    cause: str | None = None,
    fingerprint: str | None = None,
    category: str | None = None,
    outcome: str | None = None,
    job: str | None = None,
    host: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Iterator[sa.ColumnElement[bool]]:
    own = {"uid": uid, "cause": cause, "fingerprint": fingerprint}
    own |= {"category": category, "outcome": outcome, "job": job}
    for name, value in own.items():
        if value is not None:
            yield incidents.c[name] == value
    if since is not None:
        yield since <= _WHEN
    if until is not None:
        yield until > _WHEN
    if host is not None:
        at_fault = sa.select(involved.c.uid).where(involved.c.name == host, involved.c.fault)
        yield incidents.c.uid.in_(at_fault)


# ── opening ─────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def opened(where: str, make: bool = False, patience: float = PATIENCE_S, reads: bool = False) -> Iterator[Store]:
    """Open the store at a file or URL. With `make`, one that is not there is made; tables of an older
    program are brought up to date; those of a newer one are left alone, with a sentence. Who only `reads`
    writes nothing: older tables are left alone, too."""
    at = place(where)
    if at.file and not at.file.exists() and not make:
        raise HistoryError(
            f"there is no history in {at.shown}", f"begin one: postmortem analyze LOGS --history {at.shown}"
        )
    with _sentences(at.shown):
        engine = _engine(at, patience, reads)
    try:
        with _sentences(at.shown):
            found = _found(engine, at.shown)
            if reads and found != HEAD:
                raise HistoryError(
                    f"{at.shown} has tables of an older postmortem ({found or 'none'}, this one has {HEAD})",
                    f"a person may bring it up to date: postmortem history list -n 1 --history {at.shown}",
                )
            if at.file and not reads:
                _write_ahead(engine, bool(at.network), patience)
            if found != HEAD:
                _prepare(engine, at.shown)
        yield Store(engine, at.shown)
    finally:
        engine.dispose()


def _engine(at: Place, patience: float, reads: bool) -> Engine:
    more: dict[str, Any] = {"connect_args": {"timeout": patience}}
    if at.file is None:
        waits = f"-c lock_timeout={int(patience * 1000)} -c statement_timeout={int(patience * 2000)}"
        waits += " -c default_transaction_read_only=on" if reads else ""
        more = {"connect_args": {"connect_timeout": CONNECT_S, "options": waits}}
    elif reads:
        name = f"{at.file.as_uri()}?{_untouched(at.file)}"
        more = {"creator": lambda: sqlite3.connect(name, timeout=patience, uri=True)}
    engine = sa.create_engine(at.url, poolclass=sa.pool.NullPool, hide_parameters=True, **more)
    if at.file:
        sa.event.listen(engine, "connect", _connected)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _untouched(file: Path) -> str:
    """How SQLite opens a file to read alone. Of one in WAL mode that nobody has open (no WAL lies beside it)
    it would leave two files there, and in a folder that we may not write it would fail."""
    with file.open("rb") as opened:
        write_ahead = opened.read(20)[18:] == b"\2\2"
    alone = write_ahead and not file.with_name(f"{file.name}-wal").exists()
    return "immutable=1" if alone else "mode=ro"


def _connected(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves; Python's own comes too late
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("postmortem_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _write_ahead(engine: Engine, network: bool, patience: float) -> None:
    """Writers and readers beside each other, but on a network file system, which has no shared memory. Who
    comes while another switches it is refused at once, whatever the timeout."""
    wanted = "delete" if network else "wal"
    end = time.monotonic() + patience
    while True:
        connection = engine.raw_connection()
        try:
            found = connection.cursor().execute("PRAGMA journal_mode").fetchone()
            if found and found[0] != wanted:
                connection.cursor().execute(f"PRAGMA journal_mode = {wanted}")
            return
        except Exception as e:
            if "locked" not in str(e) or time.monotonic() > end:
                raise
            time.sleep(0.02)
        finally:
            connection.close()


def _found(engine: Engine, shown: str) -> str | None:
    """The version of the tables, if there are any. A database that is none of ours is left as it is."""
    with engine.connect().execution_options(**READS) as connection, connection.begin():
        return _version(connection, shown)


def _prepare(engine: Engine, shown: str) -> None:
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATING})")
        if _version(connection, shown) != HEAD:  # nobody else did it while we waited
            _migrate(connection)


def _version(connection: Connection, shown: str) -> str | None:
    """Of the tables; None where there are none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        if connection.dialect.name == "sqlite" and sa.inspect(connection).get_table_names():
            raise HistoryError(f"{shown} is a database of something else", "name another file")
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found is not None and found not in KNOWN:
        raise HistoryError(
            f"{shown} was written by a newer postmortem (tables {found}, this program knows {HEAD})",
            "pip install --upgrade 'torch-postmortem[history]'",
        )
    return found


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    command.upgrade(config, "head")


@contextmanager
def _sentences(shown: str) -> Iterator[None]:
    """Errors of the database as what they mean to whoever filed a verdict."""
    try:
        yield
    except (exc.SQLAlchemyError, OSError, ImportError) as error:
        raise _told(error, shown) from None
    except Exception as error:  # the driver's own, where no SQLAlchemy stood between
        if type(error).__module__.split(".")[0] in ("sqlite3", "psycopg"):
            raise _told(error, shown) from None
        raise


def _told(error: Exception, shown: str) -> HistoryError:
    if isinstance(error, ImportError):
        return HistoryError(f"{shown} needs psycopg", "pip install 'torch-postmortem[history]'")
    if isinstance(error, exc.ArgumentError):
        return HistoryError(f"{shown} is no address of a database", "postgresql://USER@HOST/DATABASE")
    said = " ".join(str(getattr(error, "orig", None) or error).split())
    said = said.partition(" Is the server")[0][:300]
    if "locked" in said or "lock timeout" in said:
        return HistoryError(f"{shown} is locked by another program", "try again: postmortem history add REPORT")
    if "not a database" in said or "malformed" in said:
        return HistoryError(f"{shown} is no SQLite database ({said})", "name another file")
    if "readonly" in said or "read-only" in said or "unable to open" in said:
        return HistoryError(f"{shown} cannot be opened or written", "name a file in a folder that you may write")
    return HistoryError(f"{shown}: {said}", "file it later: postmortem history add REPORT")
