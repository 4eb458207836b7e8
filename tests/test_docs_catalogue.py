"""The catalogue, the question pages and the coverage: written from today's patterns, complete,
and true to the lines they quote."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT
from postmortem.library import Library, load
from postmortem.replay.catalogue import SCENARIOS

DOCS = ROOT / "docs"
PAGES = [
    DOCS / "index.md",
    *sorted((DOCS / "catalogue").glob("*.md")),
    *sorted((DOCS / "questions").glob("*.md")),
]
QUESTIONS = sorted((DOCS / "questions").glob("*.md"))
LIBRARY = load()
COMMANDS = ("postmortem ", "nc ", "dmesg ", "journalctl ", "ss ", "ps ", "df ", "ulimit ", "python ")


@cache
def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)


def without_blocks(text: str) -> str:
    """Markdown without what it shows verbatim: log lines hold brackets and backticks of their own."""
    text = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(`+)[^`\n](?:.*?[^`\n])?\1(?!`)", "", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.+)$", without_blocks(page.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings)


# ── written from today's patterns ───────────────────────────────────────────────────────────────────────────


def test_generated_pages_are_up_to_date() -> None:
    done = run("scripts/pattern_catalogue.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_pattern_has_its_section_in_the_catalogue() -> None:
    there = {p.id for p in LIBRARY.patterns.values() if p.id in anchors(DOCS / "catalogue" / f"{p.family}.md")}
    assert there == set(LIBRARY.patterns)


def test_a_wording_stands_under_its_version() -> None:
    """Torch says `ms` since 2.1 and said `s` before; the reader of an old log has to find the old line."""
    page = script("pattern_catalogue")
    shown = {label: [e.text for e in examples] for label, _, examples in page.wordings(LIBRARY["tcp-client-timeout"])}
    assert any("timed out after 900s" in text for text in shown["torch <2.1"])
    assert not any("timed out after 900s" in text for text in shown[""])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a line with ``` in it", ["````text", "a line with ``` in it", "````"]),
        ("colour \x1b[31m and bell \x07", ["```text", "colour \\x1b[31m and bell \\x07", "```"]),
    ],
)
def test_log_lines_cannot_break_out_of_their_block(text: str, shown: list[str]) -> None:
    assert script("pattern_catalogue").block(text) == shown


def test_prose_keeps_its_words() -> None:
    assert (
        script("pattern_catalogue").prose("a <file> and *.py, `x < y`, __init__")
        == "a \\<file> and \\*.py, `x < y`, \\_\\_init\\_\\_"
    )


# ── links ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_link_leads_to_something() -> None:
    broken = []
    for page in PAGES:
        text = without_blocks(page.read_text())
        for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE):
            path, _, anchor = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            if not target.startswith("http") and not (goal.exists() and (not anchor or anchor in anchors(goal))):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda p: p.stem)
def test_every_pattern_on_a_question_page_exists(page: Path) -> None:
    body = without_blocks(page.read_text().partition("<!-- links -->")[0])
    mentioned = set(re.findall(r"\[([^\]]+)\](?!\()", body))
    assert mentioned and mentioned <= set(LIBRARY.patterns), mentioned - set(LIBRARY.patterns)


def test_every_marker_names_something() -> None:
    incidents = {s.folder.name for s in script("pattern_catalogue").samples(LIBRARY)}
    known = {s.id for s in SCENARIOS} | set(LIBRARY.patterns) | incidents
    for page in QUESTIONS:
        for words in re.findall(r"<!-- samples: (.+?) -->", page.read_text()):
            assert set(words.split()) <= known, (page.name, words)


# ── the five questions ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda p: p.stem)
def test_every_cause_has_patterns_and_samples(page: Path) -> None:
    causes = page.read_text().partition("<!-- links -->")[0].split("\n## ")[1:]
    assert len(causes) >= 7
    for cause in causes:
        assert "\nPatterns: [" in cause, cause.splitlines()[0]
        assert re.search(r"<!-- samples: .+ -->\n(Samples: \[|No sample yet)", cause), cause.splitlines()[0]


def shape(text: str) -> str:
    """Two lines of one shape differ in numbers and spaces only."""
    return re.sub(r"\d+", "0", " ".join(text.split()))


@cache
def seen() -> str:
    """All that patterns and samples show of real lines."""
    shown = [e.text for p in LIBRARY.patterns.values() for e in p.matches + p.no_matches]
    files = (f for f in (ROOT / "sample_logs").glob("*/logs/**/*") if f.is_file() and f.suffix not in (".pkl", ".gz"))
    return shape("\n".join(shown + [f.read_text(errors="replace") for f in files]))


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda p: p.stem)
def test_quoted_lines_are_real(page: Path) -> None:
    """What stands in `code` with a space in it is a piece of a log line,
    `…` for what was left out; commands apart."""
    body = page.read_text().partition("<!-- links -->")[0]
    quotes = [q for q in re.findall(r"`([^`\n]+)`", body) if " " in q and not q.startswith(COMMANDS)]
    pieces = [(q, piece) for q in quotes for piece in re.split(r"…", q) if len(piece.strip()) > 3]
    invented = [f"{q}: nowhere is {piece!r}" for q, piece in pieces if shape(piece) not in seen()]
    assert len(quotes) > 10
    assert not invented, "\n".join(invented)


# ── coverage ────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_signature_and_every_xid_is_accounted_for() -> None:
    done = run("scripts/pattern_coverage.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^357 signatures: \d+ covered, \d+ merged, \d+ left out$", done.stdout, re.MULTILINE)
    assert re.search(
        r"^ +79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS +xid-79-gpu-fell-off-bus$",
        done.stdout,
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("some_line\tno-such-pattern\t", "some_line is mapped to no-such-pattern, which does not exist"),
        ("some_line\t\t", "some_line has neither a pattern nor a reason"),
        ("some_line\txid-other\t\nsome_line\txid-other\t", "some_line stands 2 times"),
    ],
)
def test_a_gap_in_the_table_fails(
    tmp_path: Path,
    row: str,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "coverage.tsv"
    table.write_text(f"signature\tpatterns\tnote\n{row}\n")
    monkeypatch.setattr(sys, "argv", ["pattern_coverage.py", "--mapping", str(table)])
    assert script("pattern_coverage").main() == 1
    assert fault in capsys.readouterr().err


def test_an_xid_that_nothing_reads_is_a_fault() -> None:
    coverage = script("pattern_coverage")
    fewer = Library({i: p for i, p in LIBRARY.patterns.items() if i != "xid-79-gpu-fell-off-bus"}, "fewer")
    _, wrong = coverage.report([], fewer)
    assert wrong == ["Xid 79 is read as no pattern"]


def test_a_signature_is_merged_only_where_no_pattern_is_its_own() -> None:
    coverage = script("pattern_coverage")
    table = coverage.rows("one\tshared\t\ntwo\tshared, own\t\nthree\t\tnot a line\n")
    names = {title: [row.signature for row in members] for title, members in coverage.sections(table).items()}
    assert names == {"covered by": ["two"], "merged into": ["one"], "left out because": ["three"]}
