"""The store of verdicts: the same incident once, with many writers, and never at the cost of a verdict."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import postgres
from conftest import SAMPLES, Command, needs, python, solved, table
from postmortem.cli.history import age
from postmortem.errors import HistoryError, UsageError
from postmortem.fleet.history import filing, store
from postmortem.fleet.history.place import network, place
from postmortem.fleet.history.rows import Involved, Row, row, stamp, uid
from postmortem.fleet.history.schema import KNOWN, metadata
from postmortem.fleet.history.store import opened
from postmortem.report import summary
from postmortem.system import output

OOM = SAMPLES / "oom-on-second-host"
FORK = multiprocessing.get_context("fork")
ON_BOTH = [pytest.param("sqlite", id="sqlite"), pytest.param("postgresql", id="postgresql", marks=needs("postgresql"))]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with postgres.cluster() as url:
        yield url


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "fleet.db")
    url: str = request.getfixturevalue("server")
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
    return url


both = pytest.mark.parametrize("where", ON_BOTH, indirect=True)


def incident(number: int, **more: Any) -> Row:
    """One of many: the sample's verdict on another day, on two hosts."""
    hosts = (Involved("host", "node-b", True), Involved("host", f"node-{number}", False))
    own = replace(row(solved(OOM).document), uid=f"{number:064x}", involved=hosts)
    return replace(own, happened=stamp(1_795_000_000 + 86_400 * number), **more)


@both
def test_an_incident_is_filed_once_and_a_later_analysis_corrects_the_row(where: str) -> None:
    """A nightly job analyzes the same folder again, with a newer postmortem that knows better."""
    document = solved(OOM).document
    verdict = {**document["verdict"], "category": "storage", "headline": "The disk was full."}
    better = {**document, "verdict": verdict, "tool": {"version": "9", "library": "f"}}
    with opened(where, make=True) as history:
        assert history.file(row(document, report="a.html"))
        history.note(uid(document), "batch of 8 fits")
        assert not history.file(row(document))
        assert not history.file(row(better))
        (row_,) = history.rows()
        assert (row_["category"], row_["report"]) == ("storage", "a.html")  # it lies there still
        assert [n["text"] for n in history.notes()] == ["batch of 8 fits"]
        fault = [(i["name"], i["fault"]) for i in history.involved(uid=row_["uid"])]
        assert fault == [("node-b", True), ("node-a", False)]


def test_the_content_identifies_an_incident_and_not_its_folder() -> None:
    """Crash loops write logs of the same names and sizes, an hour later; an archive of the folder is the same."""
    document = solved(OOM).document
    moved = [{**s, "path": "bundle.tar.gz!/" + s["path"]} for s in document["sources"]]
    assert uid({**document, "sources": moved[::-1]}) == uid(document)
    later = [{**a, "begin": a["begin"] and "2026-11-22" + a["begin"][10:]} for a in document["attempts"]]
    later[0]["end"] = "2026-11-22T13:18:42.796Z"
    assert uid({**document, "attempts": later}) != uid(document)
    timeless = {**document, "attempts": [{"begin": None, "end": None}]}
    pid = [{**e, "text": e["text"].replace("11721", "4711")} for e in document["verdict"]["evidence"]]
    other = {**timeless, "verdict": {**document["verdict"], "evidence": pid}}
    assert uid(timeless) != uid(other)  # no line has a time: then the lines decide


@both
def test_characters_that_a_database_rejects_are_replaced(where: str) -> None:
    """NUL breaks PostgreSQL, half of a surrogate pair breaks both, and integers of a document have no end."""
    document: Any = {
        "verdict": {"outcome": "\0", "headline": "a\0b\udcff" * 900, "category": 3, "culprit": {"hosts": ["h\0"]}},
        "job": {"id": "\ud800", "world_size": 10**30, "hosts": ["h\0", "h\0", "x" * 9999]},
        "attempts": [{"begin": "0001-01-01T00:00:00Z", "end": 7}, 3],
        "ranks": None,
        "fingerprint": ["\0"],
    }
    with opened(where, make=True) as history:
        assert history.file(row(document, "r\0", "l\udc80"))
        (row_,) = history.rows()
        assert row_["headline"].startswith("a\ufffdb\ufffd") and len(row_["headline"]) == 1000
        assert row_["job"] == "\ufffd" and row_["world_size"] is None and row_["outcome"] == "undetermined"
        assert sorted(len(i["name"]) for i in history.involved()) == [2, 255]


def _part(where: str, number: int, gate: Any) -> None:
    """File one host's part of a run of eight."""
    begun, ended = stamp(1_795_000_000 + number), stamp(1_795_003_600 + number)
    gate.wait()
    with opened(where, make=True) as history:
        own = (Involved("host", f"node-{number}", False),)
        history.extend(incident(7, outcome="healthy", begun=begun, ended=ended, involved=own))
    os._exit(0)


def _add(where: str, number: int, gate: Any) -> None:
    gate.wait()
    with opened(where, make=True) as history:
        history.file(incident(number))
        history.file(incident(999))  # each of them has this one, too
    os._exit(0)


def concurrently(work: Callable[[str, int, Any], None], where: str, count: int) -> None:
    """Run as many processes at once; they create the store, too."""
    incident(0)
    gate = FORK.Barrier(count)
    tasks = [FORK.Process(target=work, args=(where, n, gate)) for n in range(count)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(120)
    assert [task.exitcode for task in tasks] == [0] * count


@both
def test_hosts_that_end_at_once_make_one_run(where: str) -> None:
    concurrently(_part, where, 8)
    with opened(where) as history:
        (row,) = history.rows()
        assert (row["begun"], row["ended"]) == (stamp(1_795_000_000), stamp(1_795_003_607))
        assert row["hours"] == pytest.approx(1 + 7 / 3600, abs=1e-4)
        assert [each["name"] for each in history.involved()] == [f"node-{n}" for n in range(8)]


@both
def test_processes_that_add_at_once_lose_nothing(where: str) -> None:
    concurrently(_add, where, 20)
    with opened(where) as history:
        assert {r["uid"] for r in history.rows()} == {f"{n:064x}" for n in (*range(20), 999)}
        assert len(history.involved()) == 2 * 21


def _add_until_killed(where: str, first: int, out: int) -> None:
    with opened(where, make=True) as history:
        for number in range(first, first + 1000):
            history.file(incident(number))
            os.write(out, f"{number}\n".encode())


def killed(where: str, times: int) -> set[int]:
    """Kill a writer at so many random moments: while it opens, creates the tables, or writes its first incidents.
    Return the numbers that it reported as filed."""
    chance, filed = random.Random(19), set[int]()
    for turn in range(times):
        reader, writer = os.pipe()
        child = FORK.Process(target=_add_until_killed, args=(where, 1000 * turn, writer))
        child.start()
        os.close(writer)
        with os.fdopen(reader) as lines:
            first = [lines.readline() for _ in range(chance.randrange(4))]
            time.sleep(chance.uniform(0.0, 0.02))
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            filed |= {int(line) for line in (*first, *lines)}
    return filed


@pytest.mark.release
@pytest.mark.parametrize(
    "where",
    [ON_BOTH[0], pytest.param("postgresql", id="postgresql", marks=[needs("postgresql"), pytest.mark.slow])],
    indirect=True,
)
def test_a_writer_killed_at_any_of_100_moments_corrupts_nothing(where: str) -> None:
    incident(0)
    filed = killed(where, 100)
    assert len(filed) > 20, "they were killed before they wrote anything"
    with opened(where) as history:
        found = {int(r["uid"], 16) for r in history.rows()}
        assert filed <= found  # all that was reported is there, and the rest is complete
        assert len(history.involved()) == 2 * len(found)
        assert history.file(incident(999_999))
    if not where.startswith("postgresql"):
        with closing(sqlite3.connect(where)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def broken_store(path: Path, how: str) -> str:
    """Make a store that cannot be used, and return what is reported of it."""
    if how != "something else":
        with opened(str(path), make=True) as history:
            history.file(incident(1))
    with closing(sqlite3.connect(path)) as connection, connection:
        if how == "newer":
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
            return "was written by a newer postmortem (tables 9999, this program knows 0002)"
        if how == "something else":
            connection.execute("CREATE TABLE photos (name TEXT)")
            return "is a database of another program"
    path.write_bytes(b"step 1 loss 2\n" * 1000 if how == "text" else path.read_bytes()[:512] + b"\xff" * 9000)
    return "is not a SQLite database"


@pytest.mark.parametrize("how", ["newer", "something else", "text", "cut"])
def test_a_broken_store_changes_neither_the_verdict_nor_the_exit_code(
    how: str, in_process: Command, tmp_path: Path
) -> None:
    path = tmp_path / "fleet.db"
    message = broken_store(path, how)
    before = path.read_bytes()
    done = in_process("analyze", OOM / "logs", "--history", path, "--exit-code", "-f", "json", "-q")
    assert done.returncode == 10 and "history" not in json.loads(done.stdout)
    assert "not filed in the history" in done.stderr and message in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2
    assert path.read_bytes() == before
    asked = in_process("history", "list", "--history", path)
    assert asked.returncode == 9 and message in asked.stderr


def test_a_damaged_store_is_reported_and_repaired_from_its_copy(in_process: Command, tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    for at in range(0, 90, 30):
        with opened(str(path), make=True) as store:
            for number in range(at, at + 30):
                store.file(incident(number))
        os.utime(path.with_name("fleet.db.backup"), (0, 0)) if at == 30 else None
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert "90 incidents, no damage" in in_process("history", "check", "--history", path).stdout
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 8192)
    for words in (("check",), ("add", OOM)):
        done = in_process("history", *words, "--history", path)
        assert done.returncode == 9 and "history repair" in done.stderr
    assert "fleet.db: " in in_process("history", "repair", "--history", path).stdout
    assert 60 <= int(in_process("history", "check", "--history", path).stdout.split()[1]) <= 90
    assert path.with_name("fleet.db.damaged").exists()


def test_a_row_that_is_not_stored_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with opened(str(path), make=True) as history, closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TRIGGER t BEFORE INSERT ON incidents BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(HistoryError, match="cannot be read back"):
            history.file(replace(incident(1), involved=()))


def test_a_store_that_is_locked_or_down_does_not_change_them_either(
    in_process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the password of a server is not printed."""
    monkeypatch.setattr(filing, "PATIENCE_S", 0.2)
    path = tmp_path / "fleet.db"
    with opened(str(path), make=True), closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = in_process("analyze", OOM / "logs", "--history", path, "-f", "json", "-q")
    assert done.returncode == 0 and "is locked by another program" in done.stderr
    assert json.loads(done.stdout)["verdict"]["category"] == "host-oom"
    url = "postgresql://ops:hunter2@127.0.0.1:1/postmortem"
    done = in_process("analyze", OOM / "logs", "--history", url, "-f", "json", "-q")
    assert done.returncode == 0 and "onnection refused" in done.stderr
    assert "ops:***@127.0.0.1" in done.stderr and "hunter2" not in done.stdout + done.stderr


@both
def test_a_reader_writes_nothing(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An agent's question neither upgrades the tables of an older program nor leaves a file beside them."""
    with opened(where, make=True) as history:
        history.file(incident(1))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with opened(where, reads=True) as history:
        assert [each["uid"] for each in history.rows()] == [f"{1:064x}"]
        with pytest.raises(HistoryError):
            history.note(f"{1:064x}", "what an agent thinks")
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.setattr(store, "HEAD", "0003")
    monkeypatch.setattr(store, "KNOWN", (*KNOWN, "0003"))
    monkeypatch.setattr(store, "_prepare", lambda *_: pytest.fail("it would have been brought up to date"))
    with pytest.raises(HistoryError, match="older postmortem") as error, opened(where, reads=True):
        pass
    assert "postmortem history list -n 1 --history" in str(error.value.hint)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_reader_sees_what_a_writer_beside_it_files(tmp_path: Path) -> None:
    where = str(tmp_path / "fleet.db")
    with opened(where, make=True) as writer:
        for number in range(3):
            with sqlite3.connect(where) as held:  # so the log of the writers stays
                writer.file(incident(number))
                with opened(where, reads=True) as reader:
                    assert len(reader.rows()) == number + 1
            held.close()


@pytest.mark.slow
def test_without_the_extra_its_installation_is_named_and_without_a_history_nothing_is_imported(tmp_path: Path) -> None:
    code = "import sys; sys.modules['sqlalchemy'] = None; from postmortem.__main__ import main; main()"
    words = ("analyze", OOM / "logs", "-q", "-o", tmp_path / "a.html")
    done = python("-c", code, *words, env={"POSTMORTEM_HISTORY": str(tmp_path / "fleet.db")}, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "a.html").exists()
    assert "pip install 'torch-postmortem[history]'" in done.stderr
    code = "import sys; from postmortem.cli.app import run; run(sys.argv[1:]); "
    code += "print({'sqlalchemy', 'alembic', 'psycopg', 'sqlite3'} & set(sys.modules))"
    done = python("-c", code, *words, cwd=tmp_path, check=True)
    assert done.stdout.split() == ["set()"]


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:1 - nfs4 filer:/home rw
31 30 8:2 / /home/scratch\\040disk rw - xfs /dev/nvme0n1 rw
32 22 0:41 / /lustre rw - lustre mds@o2ib:/fs rw
33 22 0:42 / /mnt/ssh rw - fuse.sshfs me@host: rw
garbage
"""


def test_a_network_file_system_is_recognized() -> None:
    for path, kind in table("history_store")["file_systems"].items():
        assert network(Path(path), MOUNTS) == kind, path


def test_sqlite_on_a_network_file_system_is_used_with_a_warning(
    in_process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a write-ahead log, which needs shared memory."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:4 / {tmp_path} rw - nfs4 filer:/x rw\n")
    monkeypatch.setattr("postmortem.fleet.history.place.MOUNTS", mounts)
    path = tmp_path / "fleet.db"
    done = in_process("analyze", OOM / "logs", "--history", path, "-q", "-f", "json")
    assert "is on nfs4, where SQLite is not safe for writers on several hosts" in done.stderr
    assert "use a PostgreSQL URL" in done.stderr and "history" in json.loads(done.stdout)
    for found, mode in ((mounts, "delete"), (tmp_path / "none", "wal")):
        monkeypatch.setattr("postmortem.fleet.history.place.MOUNTS", found)
        with opened(str(path)), closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)


def test_other_addresses_are_refused() -> None:
    for where in ("mysql://db/x", "", "http://host/fleet.db"):
        with pytest.raises(HistoryError):
            place(where)


@both
def test_the_migrations_create_the_tables_of_the_program(where: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    folder = Path(store.__file__).parent / "migrations"
    config = Config()
    config.set_main_option("script_location", str(folder))
    script = ScriptDirectory.from_config(config)
    assert [r.revision for r in script.walk_revisions()][::-1] == list(KNOWN)
    with opened(where, make=True) as history, history.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_verdict_counts_earlier_incidents_and_quotes_the_note(in_process: Command, tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    cause = row(solved(OOM).document).cause
    with opened(str(path), make=True) as history:
        for number, host in enumerate(("gpu-017", "gpu-017", "gpu-4", "gpu-017", "gpu-017", "node-b")):
            own = (Involved("host", host, True),)
            history.file(replace(incident(number), involved=own, cause=cause))
        history.file(replace(incident(7), cause="another"))
    noted = in_process("history", "note", f"{0:064x}", "batch of 8 fits", "--history", path)
    assert noted.returncode == 0, noted.stderr
    asked = ("analyze", OOM / "logs", "--history", path, "-o", tmp_path / "a.html", "-f", "html")
    printed = " ".join(in_process(*asked).stderr.split())
    assert "seen 6 times since 18 November 2026, 4 of them on gpu-017; last on 23 November 2026" in printed
    assert "last time: batch of 8 fits" in printed
    assert "4 of them on gpu-017" in (tmp_path / "a.html").read_text()
    brief = in_process("analyze", OOM / "logs", "--history", path, "-f", "json", "--brief", "-q")
    assert "seen 6 times" in json.loads(brief.stdout)["history"]  # and not 7: it is no history of itself
    shown = in_process("history", "show", f"{0:064x}"[:40], "--history", path)
    assert shown.returncode == 9 and "several incidents begin with" in shown.stderr


def test_the_first_incident_is_new(in_process: Command, tmp_path: Path) -> None:
    asked = ("analyze", OOM / "logs", "--history", tmp_path / "fleet.db", "-f", "json", "-q")
    first = json.loads(in_process(*asked).stdout)
    assert first["history"]["times"] == 0 and first["history"]["incidents"] == 0
    assert summary.history(first) == "not seen before in the history (it begins with this one)"
    assert json.loads(in_process(*asked).stdout)["history"] == first["history"]


def test_fingerprints_of_an_older_version_are_counted_apart(in_process: Command, tmp_path: Path) -> None:
    """Scheme 1 had no number in front. Its values cannot be compared; a new analysis of the logs replaces them."""
    path, own = tmp_path / "fleet.db", row(solved(OOM).document)
    old = "591c3021e7074691"
    with opened(str(path), make=True) as history:
        history.file(replace(own, fingerprint=old, cause=old))
        history.file(replace(incident(1), fingerprint=old, cause=old))
        history.file(replace(incident(2), fingerprint=None, cause=None))  # a run that went well
    asked = ("analyze", OOM / "logs", "--history", path, "-f", "json", "-q")
    found = json.loads(in_process(*asked).stdout)
    assert (found["history"]["times"], found["history"]["incomparable"]) == (0, 1)
    assert "; 1 filed with another version's fingerprints cannot be compared" in summary.history(found)
    with opened(str(path)) as history:  # its own row is of today
        assert [r["cause"] for r in history.rows(uid=own.uid)] == [own.cause]


def test_old_reports_are_added_listed_and_forgotten(in_process: Command, tmp_path: Path) -> None:
    folder, path = tmp_path / "old", tmp_path / "fleet.db"
    folder.mkdir()
    for name in ("oom-on-second-host", "skipped-collective"):
        in_process("analyze", SAMPLES / name / "logs", "-q", "-o", folder / f"{name}.html")
    (folder / "notes.json").write_text("{}")
    history = ("--history", path)
    assert "2 incidents added" in in_process("history", "add", folder, *history).stderr
    assert "0 incidents added, 2 known already" in in_process("history", "add", folder, *history).stderr
    assert in_process("history", "add", folder / "notes.json", *history).returncode == 2
    listed = in_process("history", "list", "--category", "host-oom", *history).stdout.splitlines()
    assert len(listed) == 2 and "Rank 3 on node-b was killed" in listed[1]
    assert in_process("history", "list", "--host", "node-b", *history).stdout.splitlines() == listed
    assert in_process("history", "list", "--host", "node-a", *history).stdout == "no incidents\n"
    shown = in_process("history", "show", listed[1][:12], *history).stdout
    assert "at fault" in shown and str(folder / "oom-on-second-host.html") in shown
    assert "1 incident forgotten" in in_process("history", "forget", listed[1][:12], *history).stderr
    assert "0 incidents forgotten" in in_process("history", "forget", "--keep", "100y", *history).stderr
    assert "1 incident forgotten" in in_process("history", "forget", "--keep", "0h", *history).stderr
    assert in_process("history", "list", *history).stdout == "no incidents\n"


@both
def test_forgetting_deletes_notes_and_hosts_too(where: str) -> None:
    with opened(where, make=True) as history:
        for number in range(3):
            history.file(incident(number))
            history.note(f"{number:064x}", "reseated")
        assert history.forget(before=incident(1).happened) == history.forget([f"{1:064x}"]) == 1
        assert {n["uid"] for n in history.notes()} == {i["uid"] for i in history.involved()} == {f"{2:064x}"}


def test_an_age_is_a_number_and_a_unit() -> None:
    assert age("180d") == 180 * 86400
    for words in ("180", "d", "-3d", "3 months", "999999d"):
        with pytest.raises(UsageError):
            age(words)


def test_an_export_is_read_by_pandas_as_it_was_written(in_process: Command, tmp_path: Path) -> None:
    import pandas as pd

    path = tmp_path / "fleet.db"
    with opened(str(path), make=True) as history:
        for number in range(3):
            history.file(incident(number, headline='a, "b"\nc', hours=1.5))
        history.note(f"{0:064x}", "reseated")
    ndjson = partial(pd.read_json, lines=True)
    for form, read in {"parquet": pd.read_parquet, "csv": pd.read_csv, "ndjson": ndjson}.items():
        out = tmp_path / f"all.{form}"
        done = in_process("history", "export", "-o", out, "--history", path)
        assert done.returncode == 0, done.stderr
        found: Any = read(out)
        assert list(found["hosts"]) == ["node-b node-2", "node-b node-1", "node-b node-0"]
        assert list(found["headline"]) == ['a, "b"\nc'] * 3 and list(found["hours"]) == [1.5] * 3
        assert pd.to_datetime(found["time"], utc=True).is_monotonic_decreasing
        assert found["note"].iloc[2] == "reseated" and list(found["hosts_at_fault"]) == ["node-b"] * 3


def test_an_anonymized_export_has_one_pseudonym_per_host(in_process: Command, tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with opened(str(path), make=True) as history:
        for number in range(3):
            history.file(incident(number, report="/home/alice/runs/a.html"))
    out = in_process("history", "export", "-o", "-", "--anonymise", "--history", path).stdout
    assert "node-" not in out and "alice" not in out
    rows = [json.loads(line) for line in out.splitlines()]
    assert len({r["hosts_at_fault"] for r in rows}) == 1 and len({r["hosts"] for r in rows}) == 3
    assert all(r["hosts_at_fault"] in r["headline"] for r in rows)


def test_a_store_without_names_recognizes_a_host(in_process: Command, tmp_path: Path) -> None:
    """Two incidents with node-b at fault: pseudonyms of a report count from 1 each time, those of a store do not."""
    path = tmp_path / "fleet.db"
    for name in ("oom-on-second-host", "sigkill-on-second-host"):
        logs = SAMPLES / name / "logs"
        done = in_process("analyze", logs, "--anonymise", "--history", path, "-f", "json", "-q")
        assert "not filed" not in done.stderr and "history" in json.loads(done.stdout)
    with opened(str(path)) as history:
        assert "node-" not in json.dumps([history.rows(), history.involved()])
        hosts = [i["name"] for i in history.involved() if i["fault"]]
    assert len(hosts) == 2 and len(set(hosts)) == 1 and hosts[0].startswith("host-")
    key = tmp_path / "fleet.db.key"
    assert key.stat().st_mode & 0o007 == 0 and len(key.read_text()) > 32


def test_the_environment_files_every_analysis(
    in_process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTMORTEM_HISTORY", str(tmp_path / "fleet.db"))
    monkeypatch.setattr(output, "width", lambda: 200)
    in_process("analyze", OOM / "logs", "-q", "-f", "json")
    assert "Rank 3 on node-b" in in_process("history", "list").stdout
    monkeypatch.delenv("POSTMORTEM_HISTORY")
    asked = in_process("history", "list")
    assert asked.returncode == 2 and "--history FILE or URL, or set POSTMORTEM_HISTORY" in asked.stderr
