"""Golden incidents: every folder of sample_logs/ is a real run with its story,
and the verdict must tell that story.

Those under tests/incidents/synthetic/ need GPUs or a cluster that were not at hand and are
built from format strings.

A truth.json accepts outcomes and categories where honest engineers differ; the ranks named must be those at
fault, and one of the first five evidence lines must be a line that the truth names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import solved
from postmortem import report
from postmortem.analyze import analyze

SAMPLES = Path(__file__).parent.parent / "sample_logs"
SYNTHETIC = Path(__file__).parent / "incidents" / "synthetic"
CASES = sorted(p.parent for folder in (SAMPLES, SYNTHETIC) for p in folder.glob("*/truth.json"))


def squash(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def ids(case: Path) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_verdict_tells_the_story(case: Path) -> None:
    truth = json.loads((case / "truth.json").read_text())
    verdict = solved(case).document["verdict"]
    assert verdict["outcome"] in truth["outcomes"], verdict["headline"]
    if truth["outcomes"] == ["healthy"]:
        return
    if verdict["outcome"] == "incident":
        assert verdict["category"] in truth["categories"], verdict["headline"]
    if truth.get("ranks") is not None and (truth["ranks"] or verdict["culprit"]["ranks"]):
        assert verdict["culprit"]["ranks"], verdict["headline"]
        assert set(verdict["culprit"]["ranks"]) <= set(truth["ranks"]), verdict["headline"]
    if truth.get("hosts"):
        assert set(verdict["culprit"]["hosts"]) <= set(truth["hosts"]), verdict["headline"]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_proof_is_the_line_a_human_would_underline(case: Path) -> None:
    truth = json.loads((case / "truth.json").read_text())
    if not truth.get("evidence"):
        pytest.skip("this story is told by silence, not by a line")
    shown = [squash(e["text"]) for e in solved(case).document["verdict"]["evidence"][:5]]
    wanted = [squash(e["text"])[:90] for e in truth["evidence"]]
    assert any(w in s or (len(s) >= 40 and s in w) for w in wanted for s in shown), shown


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_every_claim_stands_on_a_line_that_is_there(case: Path) -> None:
    document: dict[str, Any] = solved(case).document
    logs = case / "logs"
    for item in document["verdict"]["evidence"]:
        path = logs / item["source"]
        assert path.is_file()
        if item["line"] is not None:
            line = path.read_bytes().split(b"\n")[item["line"] - 1].decode("utf-8", "backslashreplace")
            if "[REDACTED" not in item["text"]:
                # Ray colours its prefixes
                assert squash(item["text"])[:80] in squash(re.sub(r"\x1b\[[0-9;]*m", "", line))
    for row in document["chain"]:
        assert all(0 <= n < len(document["verdict"]["evidence"]) for n in row["evidence"])


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_every_rank_is_accounted_for(case: Path) -> None:
    document = solved(case).document
    rows = {row["rank"]: row for row in document["ranks"]}
    for rank in document["verdict"]["culprit"]["ranks"]:
        assert rows[rank]["state"] == "cause"
    for row in rows.values():
        assert row["state"] in ("cause", "victim", "silent", "healthy", "unknown")
        assert row["why"]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_how_the_verdict_came_about_can_be_read(case: Path) -> None:
    """`--verbose` says what was seen, which of it explains which, each step, and what was set aside."""
    document = solved(case).document
    told = blocks(report.render_verbose(solved(case)))
    seen = [line.split()[:3] for line in told["Seen"]]
    findings = document["findings"]
    assert seen == ([[f["id"], f["role"], f["pattern"]] for f in findings] or [["nothing"]])
    patterns = {row["id"]: row["pattern"] for row in document["chain"]}
    edges = [[row["pattern"], "explains", patterns[o]] for row in document["chain"] for o in row["explains"]]
    assert [line.replace(":", " ").split()[:3] for line in told["Explained"]] == (edges or [["nothing"]])
    for title, key, told_by in (("Steps", "trace", "text"), ("Rejected", "alternatives", "why_not")):
        for item, line in zip(document[key], told[title], strict=bool(document[key])):
            assert squash(item[told_by])[:200] in squash(line)
    headline = squash(document["verdict"]["headline"])
    assert headline in squash(report.render_terminal(solved(case), color=False))


def blocks(text: str) -> dict[str, list[str]]:
    """The indented lines under each title."""
    found: dict[str, list[str]] = {}
    for line in filter(None, text.split("\n")):
        if not line.startswith("  "):
            found[line] = []
        else:
            found[list(found)[-1]].append(line)
    return found


def test_the_synthetic_incidents_are_what_their_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    script = runpy.run_path(str(SAMPLES.parent / "scripts" / "synthetic_incidents.py"))
    monkeypatch.setitem(script["write"].__globals__, "ROOT", tmp_path)
    for name in script["INCIDENTS"]:
        script["write"](name)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {p.relative_to(SYNTHETIC): p.read_bytes() for p in SYNTHETIC.rglob("*") if p.is_file()}


def test_an_abort_on_a_watchdog_exception_is_no_native_crash(tmp_path: Path) -> None:
    """With @record, faulthandler prints `Fatal Python error: Aborted` after every
    NCCL watchdog's exception."""
    work = (
        "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600041 "
        "milliseconds before timing out."
    )
    what = (
        "[Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught "
        "collective operation timeout"
    )
    lines = [
        (
            f"[rank1]:[E304 10:12:21.001551208 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught "
            f"collective operation timeout: {work}"
        ),
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  {what}",
        "Fatal Python error: Aborted",
        "",
        "Thread 0x00007fe99c1d5b80 (most recent call first):",
        '  File "/opt/train/train.py", line 9 in log_metrics',
    ]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert (verdict["outcome"], verdict["category"], verdict["culprit"]["ranks"]) == (
        "incident",
        "hang",
        [],
    )
