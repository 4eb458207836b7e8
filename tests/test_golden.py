"""Golden incidents: every folder of sample_logs/ is a real run with its story, and the verdict agrees with that story.

Those under tests/incidents/synthetic/ need GPUs or a cluster that were not at hand and are built from format strings.

A truth.json accepts outcomes and categories where honest engineers differ; the ranks named must be those at
fault, and one of the first five evidence lines must be a line that the truth names.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from conftest import SAMPLES, solved
from postmortem import report

SYNTHETIC = Path(__file__).parent / "incidents" / "synthetic"
CASES = sorted(p.parent for folder in (SAMPLES, SYNTHETIC) for p in folder.glob("*/truth.json"))


def squash(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_document_agrees_with_the_truth(case: Path) -> None:
    truth = json.loads((case / "truth.json").read_text())
    document = solved(case).document
    agrees(truth, document["verdict"])
    evidence_is_in_the_logs(case / "logs", document)
    every_rank_is_accounted_for(document)
    trace_is_complete(case, document)


def agrees(truth: dict[str, Any], verdict: dict[str, Any]) -> None:
    assert verdict["outcome"] in truth["outcomes"], verdict["headline"]
    if truth["outcomes"] != ["healthy"]:
        if verdict["outcome"] == "incident":
            assert verdict["category"] in truth["categories"], verdict["headline"]
        if truth.get("ranks") is not None and (truth["ranks"] or verdict["culprit"]["ranks"]):
            assert verdict["culprit"]["ranks"], verdict["headline"]
            assert set(verdict["culprit"]["ranks"]) <= set(truth["ranks"]), verdict["headline"]
        if truth.get("hosts"):
            assert set(verdict["culprit"]["hosts"]) <= set(truth["hosts"]), verdict["headline"]
    if truth.get("evidence"):  # else the story is a silence, not a line
        shown = [squash(e["text"]) for e in verdict["evidence"][:5]]
        wanted = [squash(e["text"])[:90] for e in truth["evidence"]]
        assert any(w in s or (len(s) >= 40 and s in w) for w in wanted for s in shown), shown


def evidence_is_in_the_logs(logs: Path, document: dict[str, Any]) -> None:
    for item in document["verdict"]["evidence"]:
        path = logs / item["source"]
        assert path.is_file()
        if item["line"] is not None and "[REDACTED" not in item["text"]:
            line = path.read_bytes().split(b"\n")[item["line"] - 1].decode("utf-8", "backslashreplace")
            assert squash(item["text"])[:80] in squash(re.sub(r"\x1b\[[0-9;]*m", "", line))  # Ray colors its prefixes
    for row in document["chain"]:
        assert all(0 <= n < len(document["verdict"]["evidence"]) for n in row["evidence"])


def every_rank_is_accounted_for(document: dict[str, Any]) -> None:
    rows = {row["rank"]: row for row in document["ranks"]}
    assert all(rows[rank]["state"] == "cause" for rank in document["verdict"]["culprit"]["ranks"])
    assert all(
        row["state"] in ("cause", "victim", "silent", "healthy", "unknown") and row["why"] for row in rows.values()
    )


def trace_is_complete(case: Path, document: dict[str, Any]) -> None:
    """`--verbose` lists the findings, which of them explains which, each step, and the rejected alternatives."""
    shown: dict[str, list[str]] = {}  # the indented lines under each title
    for line in filter(None, report.render_verbose(solved(case)).split("\n")):
        shown.setdefault(line if not line.startswith("  ") else list(shown)[-1], []).append(line)
    shown = {title: lines[1:] for title, lines in shown.items()}
    findings = [[f["id"], f["role"], f["pattern"]] for f in document["findings"]]
    assert [line.split()[:3] for line in shown["Seen"]] == (findings or [["nothing"]])
    patterns = {row["id"]: row["pattern"] for row in document["chain"]}
    edges = [[row["pattern"], "explains", patterns[o]] for row in document["chain"] for o in row["explains"]]
    assert [line.replace(":", " ").split()[:3] for line in shown["Explained"]] == (edges or [["nothing"]])
    for title, key, reason in (("Steps", "trace", "text"), ("Rejected", "alternatives", "why_not")):
        for item, line in zip(document[key], shown[title], strict=bool(document[key])):
            assert squash(item[reason])[:200] in squash(line)
    headline = squash(document["verdict"]["headline"])
    assert headline in squash(report.render_terminal(solved(case), color=False))


def test_the_synthetic_incidents_are_those_that_their_script_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(SAMPLES.parent / "scripts" / "synthetic_incidents.py"))
    monkeypatch.setitem(script["write"].__globals__, "ROOT", tmp_path)
    for name in script["INCIDENTS"]:
        script["write"](name)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {p.relative_to(SYNTHETIC): p.read_bytes() for p in SYNTHETIC.rglob("*") if p.is_file()}
