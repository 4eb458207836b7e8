"""One odd line never costs the analysis: digits become numbers in one place, an exception of a parser costs the
events of one line, and one in a later step costs that step."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import GOOD, ROOT, losses, solved, table
from postmortem import blocks as parsers
from postmortem import documents, reading, report, scan
from postmortem.align import Timeline
from postmortem.analyze import Options, analyze
from postmortem.blocks import torchrun, traceback
from postmortem.cli.app import run
from postmortem.formats import unwrap
from postmortem.input import collect
from postmortem.library import load
from postmortem.model import Source
from postmortem.model.digits import number, whole
from postmortem.report import columns, groups, html, lanes, markdown, svg, terminal, view

OOM = ROOT / "sample_logs" / "host-oom-cache-of-rank-2" / "logs"
LONG = "9" * 5000  # CPython's int() refuses more than 4,300 digits

ODD = {name: text.replace("LONG", LONG) for name, text in table("parser_errors")["odd"].items()}
ODD["time"] = json.dumps({"events": [{"timestamp": int("9" * 400), "message": "step 3"}]}, indent=4)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_number_costs_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(GOOD + ODD[name])
    (tmp_path / "agent.log").write_text(ODD[name] + GOOD)
    skipped = analyze([str(tmp_path)]).document["ledger"]["skipped"]
    assert not skipped


def test_an_odd_stamp_of_an_error_file_costs_nothing(tmp_path: Path) -> None:
    message = {"message": "ValueError: x", "extraInfo": {"py_callstack": "", "timestamp": "²"}}
    (tmp_path / "error.json").write_text(json.dumps({"message": message}))
    document = analyze([str(tmp_path)]).document
    assert document["verdict"]["outcome"] == "incident" and not document["ledger"]["skipped"]


@settings(max_examples=40)
@given(st.from_regex(r"\d+", fullmatch=True) | st.integers(1, 9999).map(lambda n: "9" * n))
def test_all_digits_that_a_regex_matches_are_a_number(digits: str) -> None:
    assert whole(digits) == (int(digits) if len(digits) < 20 else 0)


@given(st.text() | st.integers() | st.none())
def test_anything_is_a_number_or_none(value: object) -> None:
    found = number(value)
    assert found is None or isinstance(found, int)


@pytest.mark.parametrize("room", ["formats", "blocks", "diagnose", "input"])
def test_digits_become_numbers_in_one_place(room: str) -> None:
    """int() with one argument is for numbers, and where a regex bounds the digits (`times`, the tar header)."""
    allowed = {"times.py", "archives.py", "ledger.py", "progress.py", "unread.py", "wording.py"}
    assert (modules := [*(ROOT / "postmortem" / room).rglob("*.py")])
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if module.name not in allowed and isinstance(node, ast.Call):
                bare = ast.unparse(node.func) == "int" and len(node.args) == 1
                assert not bare, f"{module}:{node.lineno}: take digits.number or digits.whole"
                digit = isinstance(node.func, ast.Attribute) and node.func.attr in ("isdigit", "isnumeric")
                assert not digit, f"{module}:{node.lineno}: '²'.isdigit() is true, take isdecimal"


EXAMPLES = sorted({e.text for p in load().patterns.values() for e in (*p.matches, *p.no_matches)})
EVIL = [LONG, "²", "٣", "9" * 20, "1e999", "0" * 4400, "-"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.sampled_from(EXAMPLES),
    evil=st.sampled_from(EVIL),
    seed=st.randoms(use_true_random=False),
    kind=st.sampled_from(["console", "agent", "kernel", "stack", "process-table", "cgroup", "error-file"]),
)
def test_every_number_of_every_example_may_be_anything(text: str, evil: str, seed: Any, kind: str) -> None:
    data = re.sub(r"\d+", lambda m: evil if seed.random() < 0.5 else m[0], text).encode()
    library = load()
    source = Source("rank0.log", kind, len(data))
    stream = unwrap.of(source, io.BytesIO(data))
    content = kind in documents.KINDS
    parsers.parse(scan.scan(source, stream, parsers.engine(library), want_content=content), library)


# ── an exception of ours ────────────────────────────────────────────────────────────────────────────────────


def fails(*_args: object, **_kwargs: object) -> Any:
    raise ValueError("no such thing")


def fails_late(*_args: object) -> Iterator[object]:
    yield from ()
    raise ValueError("no such thing")


def test_a_parser_that_fails_costs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parsers._BY_OPENER, traceback.OPENER.id, fails_late)
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: x\n'
    kill = "[ 12.5] Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n"
    (tmp_path / "rank0.log").write_text(GOOD + trace + kill)
    (tmp_path / "rank1.log").write_text(GOOD.replace("rank0", "rank1"))
    document = analyze([str(tmp_path)]).document
    assert document["verdict"]["category"] == "host-oom"
    (reason,) = losses(document).values()
    assert list(losses(document)) == ["rank0.log"] and reason.startswith("line 52: an internal error in ")
    assert "(ValueError: no such thing), please report it" in reason


def test_the_row_names_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "whole", fails)
    document = analyze([str(OOM)]).document
    assert document["verdict"]["outcome"] in ("incident", "undetermined")
    assert all("blocks/torchrun.py:" in reason for reason in losses(document).values())


@pytest.mark.parametrize("step", ["scan.scan", "unwrap.of"])
def test_a_source_that_cannot_be_scanned_costs_itself(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = {"scan.scan": (scan, "scan"), "unwrap.of": (unwrap, "of")}[step]
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda s, *a, **k: fails() if s.path == "rank1.log" else real(s, *a, **k))
    (tmp_path / "rank0.log").write_text(GOOD)
    (tmp_path / "rank1.log").write_text(GOOD)
    document = analyze([str(tmp_path)], Options(workers=1)).document
    (row,) = document["ledger"]["skipped"]
    assert row["path"] == "rank1.log" and row["bytes"] == len(GOOD) and row["lost"]
    assert document["verdict"]["outcome"] == "undetermined"


def test_one_process_and_a_worker_report_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker calls `read_bundle`, this process the same function below it."""
    monkeypatch.setattr(parsers.progress, "parse", fails)
    (tmp_path / "rank0.log").write_text(GOOD)
    (job,) = reading._jobs(collect([str(tmp_path)]).containers, reading.Ways())
    here = reading._here([job], reading._Watch([job], None))
    assert here == reading.read_bundle((job,)) and here[0].skips  # type: ignore[union-attr]


@pytest.mark.parametrize("step", ["align.align", "diagnose.diagnose"])
def test_a_step_that_fails_costs_itself(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"postmortem.{step}", fails)
    target = tmp_path / "report.html"
    assert run(["analyze", str(OOM), "--output", str(target), "--exit-code"]) in (10, 11)
    document = analyze([str(OOM)]).document
    named = {"align.align": "the alignment of the clocks", "diagnose.diagnose": "the diagnosis"}[step]
    assert "please report it" in losses(document)[named]
    assert named in target.read_text()
    if step == "diagnose.diagnose":
        headline = "Undetermined: the logs were read, but an internal error lost a part of the diagnosis."
        assert document["verdict"]["headline"] == headline


SECTIONS = [
    (columns, "block"), (lanes, "picture"), (svg, "draw"), (view, "steps"), (groups, "rank_groups"),
    (view, "proofs"), (html, "read_events"), (view, "lead"), (html, "template"),
    (markdown, "_section"), (groups, "stacks"), (view, "incomplete"), (groups, "states"), (terminal, "_missing"),
    (view, "actions"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name"), SECTIONS, ids=lambda x: getattr(x, "__name__", x))
def test_a_section_that_fails_costs_itself(
    module: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = solved(OOM.parent).document["verdict"]
    monkeypatch.setattr(module, name, fails)
    target = tmp_path / "report.html"
    assert run(["analyze", str(OOM), "--output", str(target)]) == 0
    page = target.read_text()
    assert verdict["title"] in unescape(page) or verdict["headline"] in unescape(page)
    if module is not terminal:
        assert "please report it" in page
    assert 'id="postmortem-incident"' in page


def test_no_timeline_is_still_a_timeline() -> None:
    assert Timeline.of([]).events == []


@pytest.mark.parametrize("name", table("parser_errors")["halves"])
def test_half_a_letter_in_json_is_written_out(name: str, tmp_path: Path) -> None:
    """JSON can name a half of a UTF-16 pair, and no encoding has it: hashing the line raised."""
    (tmp_path / name).write_text(table("parser_errors")["halves"][name])
    incident = analyze([str(tmp_path)])
    assert not [row for row in incident.document["ledger"]["skipped"] if row.get("lost")]
    report.render_json(incident).encode()
    assert not any(0xD800 <= ord(letter) < 0xE000 for letter in json.dumps(incident.document, ensure_ascii=False))
