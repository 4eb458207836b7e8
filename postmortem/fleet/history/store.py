"""The store: one transaction for each incident that is filed, in SQLite or PostgreSQL.

    with opened("fleet.db") as store:
        store.file(row)                 True: it is new
        store.seen(row.uid, row.cause)  how often the same failure was filed

SQLite uses its write-ahead log and takes its lock at the beginning (`BEGIN IMMEDIATE`), so that writers queue
instead of failing half way. Every error is a HistoryError.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postmortem.errors import HistoryError
from postmortem.fleet.history.place import Place, create_file, guard, place
from postmortem.fleet.history.rows import Row, hours, stamp
from postmortem.model.contract.incident import Seen
from postmortem.model.fingerprint import SCHEME
from postmortem.report.text import line

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
    from sqlalchemy.dialects import postgresql, sqlite

    from postmortem.fleet.history.schema import HEAD, KNOWN, incidents, inputs, involved, notes, usual
except ImportError:
    raise HistoryError("a history needs SQLAlchemy", "pip install 'torch-postmortem[history]'") from None

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

PATIENCE_S = 30.0  # wait of a writer for others
CONNECT_S = 5
MIGRATING = 0x706D  # PostgreSQL's advisory lock of the one program that creates the tables
CHUNK = 500  # rows of a statement: SQLite of 2019 takes 999 values
READS = {"postmortem_reads": True}
ID = 12  # characters of an ID that are shown
NOTE = 400  # characters of a note quoted in a verdict


class Store:
    """An open store with tables of this program's version."""

    def __init__(self, engine: Engine, shown: str) -> None:
        self.engine, self.shown = engine, shown
        self.insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    @contextmanager
    def begun(self, reads: bool = False) -> Iterator[Connection]:
        with _sentences(self.shown), self.engine.connect() as connection:
            used = connection.execution_options(**READS) if reads else connection
            with used.begin():
                yield used

    def read(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        with self.begun(reads=True) as c:
            return [dict(each) for each in c.execute(query).mappings()]

    def file(self, row: Row) -> bool:
        """Write a row; True if the incident is new. A known one is updated, but keeps its notes and its filing date."""
        values, units = _values(row)
        update = {name: value for name, value in values.items() if name not in ("uid", "filed")}
        if row.report is None:  # analyzed again without a report: the earlier report still exists
            del update["report"]
        with self.begun() as c:
            known = c.execute(sa.select(incidents.c.uid).where(incidents.c.uid == row.uid)).first()
            c.execute(self.insert(incidents).values(values).on_conflict_do_update(index_elements=["uid"], set_=update))
            stored = c.execute(sa.select(incidents).where(incidents.c.uid == row.uid)).mappings().first()
            if stored is None or any(stored[name] != value for name, value in update.items()):
                hint = f"postmortem history check --history {self.shown}"
                raise HistoryError(f"{self.shown}: what was filed cannot be read back", hint)
            for table, parts in units.items():
                if known:
                    c.execute(sa.delete(table).where(table.c.uid == row.uid))
                for at in range(0, len(parts), CHUNK):
                    c.execute(self.insert(table).on_conflict_do_nothing(), parts[at : at + CHUNK])
        return known is None

    def extend(self, row: Row) -> bool:
        """Write one host's part of a run; True if the run is new. A known run gets its host and spans all parts."""
        values, units = _values(row)
        with self.begun() as c:
            there = incidents.c.uid == row.uid
            found = c.execute(sa.select(incidents.c.uid).where(there)).first()
            c.execute(self.insert(incidents).values(values).on_conflict_do_nothing())
            known = c.execute(sa.select(incidents).where(there).with_for_update()).mappings().one()
            begun = min(filter(None, (known["begun"], row.begun)), default=None)
            ended = max(filter(None, (known["ended"], row.ended)), default=None)
            update = {"begun": begun, "ended": ended, "happened": ended, "hours": hours(begun, ended)}
            if row.outcome != "healthy":
                update |= {name: values[name] for name in ("outcome", "headline", "lost_rank_hours")}
            c.execute(sa.update(incidents).where(there).values(update))
            c.execute(self.insert(involved).on_conflict_do_nothing(), units[involved])
        return found is None

    def forget(self, uids: Sequence[str] = (), before: str | None = None) -> int:
        """Delete these incidents, and all that happened before a moment; return their number."""
        deleted = 0
        with self.begun() as c:
            for at in range(0, len(uids), CHUNK):
                found = c.execute(sa.delete(incidents).where(incidents.c.uid.in_(uids[at : at + CHUNK])))
                deleted += found.rowcount
            if before is not None:
                deleted += c.execute(sa.delete(incidents).where(before > WHEN)).rowcount
        return deleted

    def note(self, uid: str, text: str, author: str | None = None) -> None:
        with self.begun() as c:
            c.execute(sa.insert(notes).values(uid=uid, noted=stamp(time.time()), author=author, text=text))

    def rows(self, limit: int | None = None, **conditions: Any) -> list[dict[str, Any]]:
        """Return rows of `incidents`, latest first, each with `when`; `conditions` are those of `_matching`."""
        query = sa.select(incidents, WHEN.label("when")).where(*_matching(**conditions))
        return self.read(query.order_by(WHEN.desc(), incidents.c.uid).limit(limit))

    def involved(self, **conditions: Any) -> list[dict[str, Any]]:
        """Return `uid`, `kind`, `name` and `fault` of the hosts and GPUs of these incidents."""
        query = sa.select(involved).join(incidents).where(*_matching(**conditions))
        return self.read(query.order_by(involved.c.uid, involved.c.fault.desc(), involved.c.name))

    def notes(self, **conditions: Any) -> list[dict[str, Any]]:
        """Return `uid`, `noted`, `author` and `text` of the notes of these incidents, oldest first."""
        query = sa.select(notes).join(incidents).where(*_matching(**conditions))
        return self.read(query.order_by(notes.c.noted, notes.c.number))

    def seen(self, uid: str, cause: str | None) -> Seen:
        """Count the other incidents, and those with the same cause. The database counts: a cause may have ten thousand
        incidents of a thousand hosts each."""
        count, first = sa.func.count(), sa.func.min(WHEN)
        same = (incidents.c.cause == cause, incidents.c.uid != uid)
        blamed = (
            sa.select(involved.c.name, count).join(incidents).where(*same, involved.c.kind == "host", involved.c.fault)
        )
        with self.begun(reads=True) as c:
            total, since = c.execute(sa.select(count, first)).one()
            found: Seen = {"incidents": max(total - 1, 0), "times": 0}
            if since:
                found["since"] = since
            if cause is None:
                return found
            scheme = incidents.c.cause.startswith(f"{SCHEME}.", autoescape=True)
            if other := c.execute(sa.select(count).where(sa.not_(scheme))).scalar_one():
                found["incomparable"] = other
            times, since = c.execute(sa.select(count, first).where(*same)).one()
            if not times:
                return found
            latest = sa.select(incidents.c.uid, WHEN).where(*same).order_by(WHEN.desc(), incidents.c.uid)
            last, when = c.execute(latest.limit(1)).one()
            found |= {"times": times, "since": since, "last": when, "id": last[:ID]}
            hosts = blamed.group_by(involved.c.name).order_by(count.desc(), involved.c.name)
            if times > 1 and (host := c.execute(hosts.limit(1)).first()):
                found |= {"host": host[0], "there": host[1]}
        if written := self.notes(cause=cause):
            found |= {"note": line(written[-1]["text"], NOTE), "noted": written[-1]["noted"]}
        return found

    def find(self, start: str) -> str:
        """Return the uid with this beginning. Raise HistoryError if there is none or more than one."""
        query = sa.select(incidents.c.uid).where(incidents.c.uid.startswith(start.lower(), autoescape=True))
        with self.begun(reads=True) as c:
            found = list(c.execute(query.limit(2)).scalars()) if start else []
        if len(found) != 1:
            problem = f"several incidents begin with {start}" if found else f"no incident {start!r} in {self.shown}"
            raise HistoryError(problem, "`postmortem history list` shows the IDs")
        return str(found[0])


WHEN = sa.func.coalesce(incidents.c.happened, incidents.c.filed)


def _values(row: Row) -> tuple[dict[str, Any], dict[sa.Table, list[dict[str, Any]]]]:
    """Return the row's values of `incidents`, and those of each other table."""
    values = asdict(replace(row, usual=(), inputs=()))
    del values["usual"], values["inputs"]
    units = {
        involved: [{"uid": row.uid, **each} for each in values.pop("involved")],
        usual: [{"uid": row.uid, "place": n, **each._asdict()} for n, each in enumerate(row.usual, 1)],
        inputs: [{"uid": row.uid, "digest": each} for each in row.inputs],
    }
    return {**values, "filed": stamp(time.time())}, units


def _matching(
    *, host: str | None = None, since: str | None = None, until: str | None = None, **equal: str | None
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield conditions: columns of `incidents` with a value, a host or GPU at fault, and a span of time."""
    for name, value in equal.items():
        if value is not None:
            yield incidents.c[name] == value
    if since is not None:
        yield since <= WHEN
    if until is not None:
        yield until > WHEN
    if host is not None:
        yield incidents.c.uid.in_(sa.select(involved.c.uid).where(involved.c.name == host, involved.c.fault))


@contextmanager
def opened(where: str, make: bool = False, patience: float = PATIENCE_S, reads: bool = False) -> Iterator[Store]:
    """Open the store at a file or URL; `make` creates a missing one. Older tables are upgraded, newer ones refused.
    With `reads` nothing is written, and older tables are refused too."""
    at = place(where)
    if at.file and not at.file.exists() and not make:
        raise HistoryError(
            f"there is no history in {at.shown}", f"begin one: postmortem analyze LOGS --history {at.shown}"
        )
    with _sentences(at.shown):
        if at.file and not reads:
            create_file(at.file)
            guard(at)
        engine = _engine(at, patience, reads)
    try:
        with _sentences(at.shown):
            with engine.connect().execution_options(**READS) as connection, connection.begin():
                found = _version(connection, at.shown)
            if reads and found != HEAD:
                raise HistoryError(
                    f"{at.shown} has tables of an older postmortem ({found or 'none'}, this one has {HEAD})",
                    f"a person may bring it up to date: postmortem history list -n 1 --history {at.shown}",
                )
            if at.file and not reads:
                _set_journal(engine, "delete" if at.network else "wal", patience)
            if found != HEAD:
                _prepare(engine, at.shown)
        yield Store(engine, at.shown)
    finally:
        engine.dispose()


def _engine(at: Place, patience: float, reads: bool) -> Engine:
    more: dict[str, Any] = {"connect_args": {"timeout": patience}}
    if at.file is None:
        options = f"-c lock_timeout={int(patience * 1000)} -c statement_timeout={int(patience * 2000)}"
        options += " -c default_transaction_read_only=on" if reads else ""
        more = {"connect_args": {"connect_timeout": CONNECT_S, "options": options}}
    elif reads:
        uri = f"{at.file.as_uri()}?{_read_mode(at.file)}"
        more = {"creator": lambda: sqlite3.connect(uri, timeout=patience, uri=True)}
    engine = sa.create_engine(at.url, poolclass=sa.pool.NullPool, hide_parameters=True, **more)
    if at.file:
        sa.event.listen(engine, "connect", _connected)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _read_mode(file: Path) -> str:
    """Return how SQLite opens a file without writing. A file in WAL mode that no program has open (it has no WAL
    beside it) would get two files beside it, which fails in a folder without write permission."""
    with file.open("rb") as opened:
        write_ahead = opened.read(20)[18:] == b"\2\2"
    alone = write_ahead and not file.with_name(f"{file.name}-wal").exists()
    return "immutable=1" if alone else "mode=ro"


def _connected(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # `_begin` sends BEGIN: Python's own comes too late
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")  # no function that the file itself names


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("postmortem_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _set_journal(engine: Engine, mode: str, patience: float) -> None:
    """Set the journal mode. While another program does so SQLite refuses at once, whatever the timeout."""
    end = time.monotonic() + patience
    while True:
        connection = engine.raw_connection()
        try:
            found = connection.cursor().execute("PRAGMA journal_mode").fetchone()
            if found and found[0] != mode:
                connection.cursor().execute(f"PRAGMA journal_mode = {mode}")
            return
        except Exception as e:
            if "locked" not in str(e) or time.monotonic() > end:
                raise
            time.sleep(0.02)
        finally:
            connection.close()


def _prepare(engine: Engine, shown: str) -> None:
    """Create or upgrade the tables."""
    from alembic import command
    from alembic.config import Config

    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATING})")
        if _version(connection, shown) != HEAD:  # no other program did it meanwhile
            config = Config(attributes={"connection": connection})
            folder = str(Path(__file__).parent / "migrations")
            config.set_main_option("script_location", folder.replace("%", "%%"))
            command.upgrade(config, "head")


def _version(connection: Connection, shown: str) -> str | None:
    """Return the version of the tables; None without tables. Raise HistoryError for another program's database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        if connection.dialect.name == "sqlite" and sa.inspect(connection).get_table_names():
            raise HistoryError(f"{shown} is a database of another program", "name another file")
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found is not None and found not in KNOWN:
        raise HistoryError(
            f"{shown} was written by a newer postmortem (tables {found}, this program knows {HEAD})",
            "pip install --upgrade 'torch-postmortem[history]'",
        )
    return found


@contextmanager
def _sentences(shown: str) -> Iterator[None]:
    """Turn errors of the database into HistoryError."""
    try:
        yield
    except (exc.SQLAlchemyError, OSError, ImportError) as error:
        raise _explained(error, shown) from None
    except Exception as error:  # of the driver itself
        if type(error).__module__.split(".")[0] in ("sqlite3", "psycopg"):
            raise _explained(error, shown) from None
        raise


def _explained(error: Exception, shown: str) -> HistoryError:
    if isinstance(error, ImportError):
        return HistoryError(f"{shown} needs psycopg", "pip install 'torch-postmortem[history]'")
    if isinstance(error, exc.ArgumentError):
        return HistoryError(f"{shown} is not a database address", "postgresql://USER@HOST/DATABASE")
    reason = " ".join(str(getattr(error, "orig", None) or error).split()).partition(" Is the server")[0][:300]
    if "locked" in reason or "lock timeout" in reason:
        return HistoryError(f"{shown} is locked by another program", "try again: postmortem history add REPORT")
    if "not a database" in reason or "malformed" in reason:
        hint = f"name another file, or postmortem history repair --history {shown}"
        return HistoryError(f"{shown} is not a SQLite database ({reason})", hint)
    if "readonly" in reason or "read-only" in reason or "unable to open" in reason:
        return HistoryError(f"{shown} cannot be opened or written", "name a file in a folder that you may write")
    return HistoryError(f"{shown}: {reason}", "file it later: postmortem history add REPORT")
