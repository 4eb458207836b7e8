"""Golden incidents: every folder of sample_logs/ is a real run with its story, and the verdict agrees with that story.

Those under tests/incidents/synthetic/ need GPUs or a cluster that were not at hand and are built from format strings.

A truth.json accepts outcomes and categories where honest engineers differ; the ranks named must be those at
fault, and one of the first five evidence lines must be a line that the truth names. The checker of documents finds each
contradiction that it knows, planted in a document that has none.
"""

from __future__ import annotations

import copy
import json
import re
import runpy
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_cases import Case

from conftest import SAMPLES, solved, typed_rows
from postmortem import report
from postmortem.analyze import Incident, analyze
from postmortem.diagnose.wording import INHERITED, iso
from postmortem.fleet.history.rows import uid
from postmortem.report import view
from postmortem.say.consistency import contradictions
from postmortem.say.headline import MOST_CHARACTERS

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
    if case.parent == SAMPLES:
        assert [*contradictions(document), *useless_requests(document)] == []
        assert ranks_of_the_collective(document) <= {row["rank"] for row in document["ranks"]}
        assert list(double_times(solved(case))) == []


def test_samples_are_different_incidents() -> None:
    cases = [case for case in CASES if case.parent == SAMPLES]
    assert len({uid(solved(case).document) for case in cases}) == len(cases) > 80


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
    assert len(view.lead(document)[0]) <= MOST_CHARACTERS
    headline = squash(" ".join(view.lead(document)))
    assert headline in squash(report.render_terminal(solved(case), color=False))


# ── no statement contradicts or repeats another ──────────────────────────────────────────────────────────────


def ranks_of_the_collective(document: dict[str, Any]) -> set[int]:
    row = document["verdict"].get("collective")
    return {*row["entered"], *row["missing"], *map(int, row["elsewhere"])} if row else set()


# requests in any action or in `missing`, and the sources that fulfill them
STACKS = re.compile(r"\bpy-spy dump --pid|\b[Tt]ake (?:the )?stacks|^stacks of ")
DUMPS = re.compile(r"FR_BUFFER_SIZE|TRACE_BUFFER_SIZE|^flight-recorder dumps")
KERNEL = re.compile(r"[Ss]ave the kernel log|^kernel log of|journalctl -k")
NUMBERS = re.compile(r"ranks? ([\d, and–]+?) (?:while|during)")
OPEN = ("hang", "collective-mismatch")


def useless_requests(document: dict[str, Any]) -> Iterator[str]:
    """Yield requests for logs that are present or cannot help, and fixes of code that is not named."""
    verdict, kinds = document["verdict"], {row["kind"] for row in document["sources"]}
    died = {"SIGKILL", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"} & {row["exit"] for row in document["ranks"]}
    missing = verdict.get("missing", [])
    culprits = set(verdict["culprit"]["ranks"])
    asked = [item["what"] for item in missing] + [a["text"] for a in verdict.get("actions", [])]
    for request in asked:
        if DUMPS.search(request) and "flight-recorder" in kinds:
            yield f"dumps of the flight recorder are here: {request}"
        if DUMPS.search(request) and culprits and culprits <= stacked(document):
            yield f"the place of ranks {sorted(culprits)} is known: {request}"
        if KERNEL.search(request) and "kernel" in kinds:
            yield f"a kernel log is here: {request}"
        if STACKS.search(request):
            yield from (
                f"the stack of rank {r} is here: {request}" for r in stacked(document) & named(request, document)
            )
        if KERNEL.search(request) and verdict["category"] in OPEN and not died:
            yield f"no process died: {request}"
    for action in verdict.get("actions", []):
        if action["kind"] == "fix-code" and verdict["category"] == "hang" and not verdict["culprit"]["code"]:
            yield f"no code can be named: {action['text']}"
        if action["kind"] == "fix-code" and verdict["confidence"] == "hypothesis":
            yield f"the cause is a guess: {action['text']}"
    for item in missing:
        if not (item["what"] and item["would_tell"] and re.search(r"[A-Z_]{4,}=|--?\w|> |\w\(|/", item["how"])):
            yield f"no command and no switch: {item}"


def stacked(document: dict[str, Any]) -> set[int]:
    """Return ranks with a stack; a traceback shows only the place of the exception."""
    return {rank for row in document["stacks"] if row["how"] != "traceback" for rank in row["ranks"]}


def named(request: str, document: dict[str, Any]) -> set[int]:
    """Return the ranks of the requested stacks; all of them if none is named."""
    found = NUMBERS.search(request)
    if "DataLoader workers" in request or "the other ranks" in request:
        return set()
    if found is None:
        return {row["rank"] for row in document["ranks"]}
    spans = re.findall(r"(\d+)(?:–(\d+))?", found[1])
    return {rank for first, last in spans for rank in range(int(first), int(last or first) + 1)}


def double_times(incident: Incident) -> Iterator[str]:
    """Yield lines with different times in the evidence and in the timeline."""
    at: dict[tuple[str, int | None], set[str | None]] = defaultdict(set)
    for e in typed_rows(incident):
        at[e.where.source, e.where.shown].add(iso(e.at) if e.at_sigma <= INHERITED else None)
    for place, times in at.items():
        if len(times) > 1 and place[1] is not None:
            yield f"{place}: {times}"
    evidence = incident.document["verdict"]["evidence"]
    for row in evidence:
        here = at.get((row["source"], row["line"]), set())  # the frame of a stack is no event of its own
        if here and row["time"] not in here:
            yield f"{row['source']}:{row['line']} at {row['time']}, in the timeline at {here}"


def test_an_unknown_world_size_is_not_made_up(tmp_path: Path) -> None:
    """Rank 3 alone gives no number of ranks; ranks 0 to 2 are at least three, and all that are known."""
    raised = (
        "[rank{0}]: Traceback (most recent call last):\n"
        '[rank{0}]:   File "/work/train.py", line 9, in <module>\n[rank{0}]:     main()\n'
        "[rank{0}]: ValueError: bad shard {0}\n"
    )
    for ranks, size in (((3,), None), ((0, 1, 2), 3), ((0, 2), None)):
        (tmp_path / "job.log").write_text("".join(raised.format(r) for r in ranks))
        document = analyze([str(tmp_path)]).document
        assert document["job"]["world_size"] == size and list(contradictions(document)) == []


def test_a_missing_rank_is_not_on_the_host_of_the_complaint(tmp_path: Path) -> None:
    for host, rank in (("node-a", 0), ("node-b", 1)):
        (tmp_path / host).mkdir()
        error = "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/1\n"
        text = f"2026-11-21 13:10:4{rank},288 INFO [rank{rank}] train: rank {rank} of 2 starts\n"
        (tmp_path / host / f"rank{rank}.log").write_text(text + (error if rank == 0 else ""))
    assert list(contradictions(analyze([str(tmp_path)]).document)) == []


def test_the_synthetic_incidents_are_those_that_their_script_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(SAMPLES.parent / "scripts" / "synthetic_incidents.py"))
    monkeypatch.setitem(script["write"].__globals__, "ROOT", tmp_path)
    for name in script["INCIDENTS"]:
        script["write"](name)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {p.relative_to(SYNTHETIC): p.read_bytes() for p in SYNTHETIC.rglob("*") if p.is_file()}


Change = Callable[[Any], object]
PLANTED: dict[str, Change] = {
    "no reason is given for an incident": lambda d: d["verdict"].update(because=[]),
    "undetermined, and nothing is missing": lambda d: d["verdict"].update(outcome="undetermined", missing=[]),
    "healthy, with a category or a culprit": lambda d: d["verdict"].update(outcome="healthy"),
    "the cause is not known, and ranks [2] are": lambda d: d["verdict"].update(headline="the cause is not in these logs"),
    "established, and no rank is at fault": lambda d: d["verdict"].update(category="hang", culprit={"ranks": []}),
    "rank 2 of a job of 2": lambda d: d["job"].update(world_size=2),
    "is on node-x, not on": lambda d: (d["ranks"][0].update(host="node-x"), d["chain"][0].update(entity={"rank": d["ranks"][0]["rank"], "host": "b"})),
    "is a cause and no culprit": lambda d: d["verdict"]["culprit"].update(ranks=[0]),
    "has no line, and its last line": lambda d: d["ranks"][1].update(state="silent", why="no line in these logs is known to be its own"),
    "rank 1 is listed 2 times": lambda d: d["verdict"].update(collective={"entered": [0, 1], "missing": [1], "elsewhere": {}}),
    "stated 2 times": lambda d: d["verdict"]["because"].extend(d["verdict"]["because"]),
    "cut: ": lambda d: d["verdict"].update(headline="Ranks 0, 1 … (+3 more) failed."),
    "its lines at": lambda d: d["chain"][0].update(time="2026-01-01T00:00:00Z"),
    "the headline is about this rank": lambda d: d["verdict"].update(headline="An error hit this rank (x)."),
    "0 and 1 timed out in the headline, 0 in": lambda d: d["verdict"].update(headline="Ranks 0 and 1 timed out.", because=["Rank 0 timed out."]),
    "and no zone is known": lambda d: (d["verdict"].update(missing=[{"what": "a log", "how": "--since '2026-01-01 00:00:00 UTC'"}]), [c.update(kind="naive", zone_s=None) for c in d["clocks"]]),
    "printed no reason, and an error": lambda d: (d["verdict"].update(headline="Rank 2 printed no reason."), d["processes"][0].update(error={"source": "a", "line": 1})),
}  # fmt: skip


@pytest.mark.parametrize("expected", PLANTED)
def test_a_contradiction_is_found(expected: str) -> None:
    document: Any = copy.deepcopy(solved(SAMPLES / "host-oom-cache-of-rank-2").document)
    assert list(contradictions(document)) == []
    PLANTED[expected](document)
    assert any(expected in found for found in contradictions(document))
    assert expected in report.render_verbose(Case(document))


def test_a_document_of_another_version_is_not_checked() -> None:
    assert "not checked" in report.render_verbose(Case({"verdict": {}}))
