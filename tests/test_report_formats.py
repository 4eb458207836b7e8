"""The outputs for other programs: each has the fields of that program, and log text acts in none."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import FOR_PROGRAMS, NAMES, PAYLOADS, RENDERS, Case, load, poisoned
from test_report_timeline import many

from conftest import SAMPLES
from postmortem import analyze, report
from postmortem.cli.app import run
from postmortem.report import json as plain
from postmortem.report import view
from postmortem.report.events import read_events
from postmortem.report.exports import iso, moments

ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
EVERY = RENDERS[-len(FOR_PROGRAMS) :]


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_no_log_text_acts_where_it_is_shown(payload: str) -> None:
    case = poisoned(payload)
    for render in EVERY:
        shown = render(case)
        assert not ACTING.search(shown.replace("\n", "")), render.__name__
        if render in (report.render_ndjson, report.render_trace, report.render_brief):
            for line in shown.splitlines() if render is report.render_ndjson else [shown]:
                json.loads(line)
    rows = pd.read_parquet(io.BytesIO(report.render_parquet(case)))
    assert not any(ACTING.search(word.replace("\n", "")) for word in rows["text"])
    suites = ET.fromstring(report.render_junit(case).encode())
    assert [element.tag for element in suites.iter()] == ["testsuites", "testsuite", "testcase", "failure"]


@pytest.mark.parametrize("render", EVERY, ids=lambda f: f.__name__)
def test_the_same_incident_gives_the_same_bytes(render: Any) -> None:
    assert render(load("oom")) == render(load("oom"))


# ── GitHub ──────────────────────────────────────────────────────────────────────────────────────────────────


def unescaped(words: str) -> str:
    """As the runner reads it."""
    return words.replace("%0A", "\n").replace("%0D", "\r").replace("%3A", ":").replace("%2C", ",").replace("%25", "%")


def commands(shown: str) -> list[tuple[str, dict[str, str], str]]:
    found = [re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line) for line in shown.splitlines()]
    assert all(found), shown
    return [(m[1], dict(item.split("=", 1) for item in m[2].split(",")), unescaped(m[3])) for m in found if m]


def test_an_annotation_is_at_the_culprits_code_line() -> None:
    case = load("oom")
    case.document["verdict"]["culprit"]["code"] = "src/train.py:412"
    (level, properties, message), (second, _, actions) = commands(report.render_github(case))
    assert (level, properties["file"], properties["line"]) == ("error", "src/train.py", "412")
    assert message.splitlines()[0] == view.lead(case.document)[0]
    assert "node-b/kernel/dmesg.txt:81" in message
    assert second == "notice" and actions.startswith("1. ")


@pytest.mark.parametrize(
    "payload", ["::error::forged", "a\n::add-mask::b", "%0A::warning::x", "##[group]x", "x::y,z=1:2"]
)
def test_a_log_line_never_becomes_a_command_of_the_runner(payload: str) -> None:
    found = commands(report.render_github(poisoned(payload)))
    assert len(found) == 2
    assert all(set(properties) <= {"file", "line", "title"} for _, properties, _ in found)


def test_the_level_follows_the_outcome() -> None:
    case = load("oom")
    levels = {"incident": "error", "recovered": "warning", "undetermined": "error", "healthy": "notice"}
    for outcome, level in levels.items():
        case.document["verdict"]["outcome"] = outcome
        assert commands(report.render_github(case))[0][0] == level


# ── ndjson ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_event_is_a_line_that_timesketch_takes() -> None:
    """Its importer wants message, datetime and timestamp_desc in each (timesketch:
    docs/guides/user/import-from-json-csv.md)."""
    lines = [json.loads(line) for line in report.render_ndjson(load("oom")).splitlines()]
    assert len(lines) == len(read_events(load("oom")))
    timed = [line for line in lines if line["time"]]
    assert all(line["message"] and line["timestamp_desc"] for line in lines)
    assert [line["datetime"] for line in timed] == sorted(line["time"] for line in timed)
    assert all(datetime.fromisoformat(line["datetime"]).tzinfo for line in timed)
    assert lines[len(timed) :] == [line for line in lines if not line["time"]], "events without a time come last"
    killed = next(line for line in lines if "Killed process" in line["text"])
    assert (killed["file"], killed["line"], killed["severity"]) == ("node-b/kernel/dmesg.txt", 81, "fatal")


@given(st.lists(st.floats(-1e14, 1e14) | st.sampled_from([float("nan"), 0.5, 1795209228.7040005]), min_size=1))
def test_a_moment_is_written_as_datetime_writes_it(times: list[float]) -> None:
    """To the microsecond; null without a time, or with a year outside of the calendar."""

    def one(moment: float) -> str | None:
        if not -62_135_596_800 <= moment < 253_402_300_800:
            return None
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    assert iso(moments(pd.Series(times))) == [one(moment) for moment in times]


# ── CSV ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("evil", ['=cmd|"/c calc"!A1', "  +1+1", "-2", "@SUM(A1)", 'a,b"c\nd'])
def test_a_log_line_is_no_formula_and_no_row_of_its_own(evil: str) -> None:
    (before,), (after,) = (
        {len(list(csv.reader(io.StringIO(report.render_csv(case)))))} for case in (load("oom"), poisoned(evil))
    )
    assert before == after
    cells = [cell for row in csv.reader(io.StringIO(report.render_csv(poisoned(evil)))) for cell in row]
    assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in cells)


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_parquet_and_csv_have_the_rows_of_ndjson() -> None:
    lines = [json.loads(line) for line in report.render_ndjson(load("oom")).splitlines()]
    rows = pd.read_parquet(io.BytesIO(report.render_parquet(load("oom"))))
    assert str(rows["time"].dtype) == "datetime64[us, UTC]" and str(rows["rank"].dtype) == "Int64"
    assert iso(rows["time"]) == [line["time"] for line in lines]
    for name in ("rank", "line", "host", "severity", "file", "uncertainty_s"):
        assert [None if pd.isna(value) else value for value in rows[name]] == [line[name] for line in lines]
    table = list(csv.DictReader(io.StringIO(report.render_csv(load("oom")))))
    for name in ("time", "rank", "line", "severity", "file"):
        assert [row[name] for row in table] == ["" if line[name] is None else str(line[name]) for line in lines]


def test_without_pyarrow_the_error_has_a_hint(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(["analyze", LOGS, "--format", "parquet"]) == 1
    assert "needs pyarrow" in (error := capfd.readouterr().err) and "pip install" in error


# ── Perfetto ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_trace_has_hosts_as_processes_and_ranks_as_threads() -> None:
    trace = json.loads(report.render_trace(many(16, 4)))
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    hosts = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert set(hosts.values()) == {"n000", "n001", "n004"} and "rank 9" in names.values()
    assert all(e["ts"] >= 0 and isinstance(e["ts"], int) for e in events if e["ph"] != "M")
    lifetimes = {(e["pid"], e["tid"]): (e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"}
    assert (moments := [e for e in events if e["ph"] == "i" and e["tid"]])
    for event in moments:
        first, last = lifetimes[event["pid"], event["tid"]]
        assert first <= event["ts"] <= last
    assert [e["args"]["text"] for e in events if e.get("s") == "g"] == ["Killed process 9"]


def test_lines_without_a_host_are_those_of_the_launcher_in_a_trace() -> None:
    case = many(4, 4)
    assert case.timeline is not None
    unnamed = case.timeline["host"].where(case.timeline["host"].isna())
    rows = case.timeline.assign(host=unnamed, rank=case.timeline["rank"].where(case.timeline["rank"] != 2))
    for path, name in (("agent", "launcher"), ("stdout", "no rank")):
        sources = [{"path": source, "kind": path} for source in dict.fromkeys(rows["source"].astype(str))]
        trace = json.loads(report.render_trace(Case({**case.document, "sources": sources}, rows)))
        names = {(e["name"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
        assert names["process_name", 0] == "ranks" and names["thread_name", 0] == name


# ── JUnit ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "failures"), [("oom", "1"), ("undetermined", "1"), ("healthy", "0")])
def test_the_verdict_is_one_test_case(name: str, failures: str) -> None:
    case = load(name)
    suites = ET.fromstring(report.render_junit(case).encode())
    assert suites.get("failures") == failures and len(suites.findall(".//testcase")) == 1
    failure = suites.find(".//failure")
    if failures == "1":
        assert failure is not None and failure.get("message") == view.lead(case.document)[0]
        assert case.document["verdict"]["evidence"][0]["source"] in (failure.text or "")
    else:
        assert failure is None


# ── brief ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_the_brief_has_verdict_proof_and_actions(name: str) -> None:
    case = load(name)
    found = json.loads(report.render_brief(case))
    verdict = case.document["verdict"]
    assert (found["schema"], found["outcome"], found["headline"]) == (
        "postmortem/brief/1",
        verdict["outcome"],
        " ".join(filter(None, view.lead(case.document))),
    )
    if verdict["evidence"]:
        assert found["evidence"][0]["where"] == f"{verdict['evidence'][0]['source']}:{verdict['evidence'][0]['line']}"
    assert len(found.get("actions", [])) == len(verdict["actions"])


def test_the_brief_is_brief_whatever_the_incident() -> None:
    case = load("oom")
    verdict = case.document["verdict"]
    verdict["evidence"] = [{**verdict["evidence"][0], "line": n, "text": "ü" * 3000} for n in range(400)]
    verdict["because"] = ["ü" * 3000] * 50
    verdict["actions"] = [{"kind": "fix-code", "text": "ü" * 3000}] * 50
    case.document["chain"] = case.document["chain"] * 40
    shown = report.render_brief(case)
    assert len(shown.encode()) <= plain.LIMIT
    assert json.loads(shown)["more"]["evidence"] > 300


# ── the command line ────────────────────────────────────────────────────────────────────────────────────────

LOGS = str(SAMPLES / "oom-on-second-host" / "logs")


def test_the_suffix_of_the_file_chooses_the_format(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    suffixes = {
        "html": b"<!doctype",
        "json": b"{",
        "xml": b"<?xml",
        "jsonl": b"{",
        "ndjson": b'{"time":',
        "md": b"# Rank 3",
    }
    suffixes |= {"csv": b"time,", "parquet": b"PAR1"}
    outputs = [word for suffix in suffixes for word in ("--output", str(tmp_path / f"out.{suffix}"))]
    assert run(["analyze", LOGS, *outputs, "--format", "github"]) == 0
    for suffix, begins in suffixes.items():
        assert (tmp_path / f"out.{suffix}").read_bytes().startswith(begins)
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"::error ") and all(f"out.{suffix}".encode() in err for suffix in suffixes)


def test_an_earlier_report_beside_the_logs_is_not_read_as_a_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A JUnit file once made rank 1 the only one that logged a sentence of ours."""
    logs = tmp_path / "logs"
    shutil.copytree(SAMPLES / "skipped-collective" / "logs", logs)
    before = analyze([str(logs)]).document
    for name in ("report.html", "r.json", "r.jsonl", "r.csv", "r.parquet", "r.xml", "r.md"):
        assert run(["analyze", str(logs), "--output", str(logs / name)]) == 0
    assert run(["analyze", str(logs), "--format", "trace", "--output", str(logs / "trace.json")]) == 0
    capfd.readouterr()
    assert run(["analyze", str(logs), "--format", "json", "--brief"]) == 0
    (logs / "brief.json").write_text(capfd.readouterr().out)
    after = analyze([str(logs)])
    assert after.document["verdict"] == before["verdict"]
    assert len(after.timeline) == len(analyze([str(SAMPLES / "skipped-collective" / "logs")]).timeline)
    assert "Not everything was read" not in report.render_terminal(after)


def test_brief_and_anonymize_together(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["analyze", LOGS, "--format", "json", "--brief", "--anonymise"]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert found["evidence"][0]["where"] == "host-2/kernel/dmesg.txt:85"
    assert run(["analyze", LOGS, "--brief"]) == 2
    assert run(["analyze", LOGS, "--brief", "--format", "md", "--anonymise"]) == 0
    shown = capfdbinary.readouterr().out.decode()
    assert "`host-2/kernel/dmesg.txt:85`" in shown and len(shown) <= 3000


def test_a_step_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["analyze", LOGS, "--format", "github", "--output", str(tmp_path / "out.txt")]) == 0
    assert summary.read_text().startswith("# before\n# Rank 3 on node-b")


def test_the_terminal_verdict_gives_the_runner_no_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runner reads commands from standard error too, and skips blanks before them."""
    from postmortem.system import output

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    output.say("proof\n   ::add-mask::x\n##[group]y a::b")
    assert [line for line in capsys.readouterr().err.splitlines() if line.lstrip().startswith(("::", "##["))] == []
