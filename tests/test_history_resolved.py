"""True causes in the history: recorded, counted, weighed; and what changed since the last report of a job."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import SAMPLES, Command, solved
from postmortem.causes import rows, weigh
from postmortem.causes.facts import Facts, Text
from postmortem.fleet.history import resolved
from postmortem.fleet.history.rows import Usual, row
from postmortem.fleet.history.schema import HEAD
from postmortem.fleet.history.store import opened

KILLED = SAMPLES / "sigkill-from-outside"
OOM = SAMPLES / "host-oom-cache-of-rank-2"
BY_ID = {symptom.id: symptom for symptom in rows.symptoms()}
NOTHING = Facts({}, Text((), ()))


def order(counts: Mapping[str, int]) -> list[str]:
    return [w.cause.id for w in weigh.weighed(BY_ID["killed"], NOTHING, counts)]


def test_a_site_without_resolutions_and_with_two_changes_little() -> None:
    """The order of the files remains, but for a neighbor that the site has seen twice."""
    plain = {w.cause.id: w.score for w in weigh.weighed(BY_ID["killed"], NOTHING)}
    assert order({}) == list(plain)
    for cause in plain:
        two = {w.cause.id: w.score for w in weigh.weighed(BY_ID["killed"], NOTHING, {cause: 2})}
        assert all(0 <= (two[i] or 0) - (plain[i] or 0) <= (i == cause) for i in plain)


@given(st.dictionaries(st.sampled_from([c.id for c in BY_ID["hang"].causes]), st.integers(0, 10**6)))
def test_the_effect_of_a_site_is_bounded_and_stated(counts: dict[str, int]) -> None:
    plain = {w.cause.id: w.score for w in weigh.weighed(BY_ID["hang"], NOTHING)}
    assert plain
    for w in weigh.weighed(BY_ID["hang"], NOTHING, counts):
        effect = (w.score or 0) - (plain[w.cause.id] or 0)
        signs = [sign for sign, _ in (*w.for_, *w.against) if sign.fact == "site"]
        assert abs(effect) <= weigh.BOUND and [s.effect for s in signs] == [effect] * bool(effect)


def test_a_cause_that_a_site_has_often_comes_first() -> None:
    counts = {"scheduler-stop": 30}
    assert order(counts)[0] == "scheduler-stop"
    first = weigh.weighed(BY_ID["killed"], NOTHING, counts)[0]
    assert first.for_[0][0].says == "it was the cause of 30 of 30 resolved incidents of this kind at this site"


def test_a_resolved_incident_is_counted_and_later_reports_are_weighed_by_it(
    in_process: Command, tmp_path: Path
) -> None:
    path = tmp_path / "fleet.db"
    own = row(solved(KILLED).document)
    with opened(str(path), make=True) as history:
        for number in range(30):
            history.file(replace(own, uid=f"{number:064x}", inputs=(f"{number:032x}",)))
            assert resolved.resolve(history, f"{number:064x}", "killed-by-person") == 1
        assert resolved.counts(history) == {"external-signal": {"killed-by-person": 30}}
        assert resolved.table(history)[0] == {"cause": "killed-by-person", "true": 30, "first": 0, "both": 0}
    plain = json.loads(in_process("analyze", KILLED / "logs", "-f", "json", "-q").stdout)
    found = json.loads(in_process("analyze", KILLED / "logs", "--history", path, "-f", "json", "-q").stdout)
    assert found["history"]["resolved"] == 30
    ids = [[each["id"] for each in document["causes"]] for document in (plain, found)]
    assert ids[1].index("killed-by-person") < ids[0].index("killed-by-person")
    printed = " ".join(
        in_process("analyze", KILLED / "logs", "--history", path, "-o", tmp_path / "a.html").stderr.split()
    )
    assert "usual causes weighed by 30 resolved incidents of this site" in printed
    assert in_process("history", "report", "--history", path, "-o", tmp_path / "site").returncode == 0
    assert "Usual causes, as resolved" in (tmp_path / "site" / "index.html").read_text()


def test_an_unknown_cause_suggests_a_known_one(in_process: Command, tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    in_process("analyze", KILLED / "logs", "--history", path, "-q", "-f", "json")
    uid = row(solved(KILLED).document).uid
    wrong = in_process("history", "resolve", uid, "--cause", "host-memry", "--history", path)
    assert wrong.returncode == 2 and "did you mean host-memory" in wrong.stderr
    assert in_process("history", "resolve", uid, "--cause", "host-memory", "--history", path).returncode == 0
    assert "resolved     host-memory" in in_process("history", "show", uid, "--history", path).stdout


def test_a_report_with_more_logs_states_what_changed(in_process: Command, tmp_path: Path) -> None:
    """The kernel log is collected after the first report; its lines prove what was the first row of the list."""
    path, logs, more = tmp_path / "fleet.db", tmp_path / "logs", tmp_path / "more"
    shutil.copytree(OOM / "logs", logs)
    (logs / "kernel").rename(more)
    first = json.loads(in_process("analyze", logs, "--history", path, "-f", "json", "-q").stdout)
    assert "changes" not in first["history"]
    again = json.loads(in_process("analyze", logs, "--history", path, "-f", "json", "-q").stdout)
    assert "changes" not in again["history"]
    done = in_process("analyze", logs, more, "--history", path, "-f", "md", "-o", tmp_path / "a.md")
    assert "changed" in done.stderr and "Confirmed: The host ran out of memory" in " ".join(done.stderr.split())
    assert "**since the last report of this job**" in (tmp_path / "a.md").read_text()
    with opened(str(path)) as history:
        newest = next(r["uid"] for r in history.rows() if r["category"] == "host-oom")
        assert resolved.resolve(history, newest, "host-memory") == 2  # both reports of the job


def test_changes_of_the_list() -> None:
    now = replace(row(solved(KILLED).document), usual=(Usual("lock", "A lock"), Usual("slow-rank", "A slow rank")))
    before = {"headline": now.headline, "confidence": now.confidence, "category": now.category}
    listed = [Usual("slow-rank", "A slow rank"), Usual("input-stall", "Data")]
    assert list(resolved.changes(before, listed, now)) == [
        "No longer listed: Data.", "New on the list: A lock.", "Now the first: A lock.",
    ]  # fmt: skip
    assert not list(resolved.changes(before, list(now.usual), now))


def test_tables_of_version_1_are_extended(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    own = row(solved(KILLED).document)
    with opened(str(path), make=True) as history:
        history.file(own)
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in ("usual", "resolutions", "inputs"):
            connection.execute(f"DROP TABLE {name}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    with opened(str(path)) as history:
        assert resolved.resolve(history, own.uid, "host-memory") == 1
        assert resolved.of(history, own.uid) == "host-memory"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)


@pytest.mark.parametrize("cause", [cause for ids in resolved.CONFIRMS.values() for cause in ids])
def test_the_confirmed_causes_exist(cause: str) -> None:
    assert any(cause == each.id for symptom in rows.symptoms() for each in symptom.causes)
