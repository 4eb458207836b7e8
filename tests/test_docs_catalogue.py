"""The catalogue, the question pages and the coverage: up to date with the patterns, complete, with real lines."""

from __future__ import annotations

import importlib
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT, python
from postmortem.library import load
from postmortem.replay.catalogue import SCENARIOS

DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "catalogue").glob("*.md")), *sorted((DOCS / "questions").glob("*.md"))]
QUESTIONS = sorted((DOCS / "questions").glob("*.md"))
LIBRARY = load()
COMMANDS = ("postmortem ", "nc ", "dmesg ", "journalctl ", "ss ", "ps ", "df ", "ulimit ", "python ")


def script(name: str) -> ModuleType:
    return importlib.import_module(f"scripts.{name}")


def without_blocks(text: str) -> str:
    """Return Markdown without its verbatim parts: log lines have brackets and backticks of their own."""
    text = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(`+)[^`\n](?:.*?[^`\n])?\1(?!`)", "", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.+)$", without_blocks(page.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings)


def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["pattern_catalogue.py", "--check"])
    assert script("pattern_catalogue").main() == 0, capsys.readouterr().out


def test_every_pattern_has_its_section_in_the_catalogue() -> None:
    there = {p.id for p in LIBRARY.patterns.values() if p.id in anchors(DOCS / "catalogue" / f"{p.family}.md")}
    assert there == set(LIBRARY.patterns)


def test_wordings_are_listed_under_their_version() -> None:
    """Torch prints `ms` since 2.1, and printed `s` before."""
    page = script("pattern_catalogue")
    shown = {label: [e.text for e in examples] for label, _, examples in page.wordings(LIBRARY["tcp-client-timeout"])}
    assert any("timed out after 900s" in text for text in shown["torch <2.1"])
    assert not any("timed out after 900s" in text for text in shown[""])


def test_log_lines_and_prose_are_escaped() -> None:
    page = script("pattern_catalogue")
    assert page.block("a line with ``` in it") == ["````text", "a line with ``` in it", "````"]
    assert page.block("colour \x1b[31m and bell \x07") == ["```text", "colour \\x1b[31m and bell \\x07", "```"]
    prose = page.prose("a <file> and *.py, `x < y`, __init__")
    assert prose == "a \\<file> and \\*.py, `x < y`, \\_\\_init\\_\\_"


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
def test_question_pages_name_patterns_and_samples(page: Path) -> None:
    text = page.read_text().partition("<!-- links -->")[0]
    mentioned = set(re.findall(r"\[([^\]]+)\](?!\()", without_blocks(text)))
    assert mentioned and mentioned <= set(LIBRARY.patterns), mentioned - set(LIBRARY.patterns)
    causes = text.split("\n## ")[1:]
    assert len(causes) >= 7
    for cause in causes:
        assert "\nPatterns: [" in cause, cause.splitlines()[0]
        assert re.search(r"<!-- samples: .+ -->\n(Samples: \[|No sample yet)", cause), cause.splitlines()[0]


def test_every_marker_names_something() -> None:
    incidents = {s.folder.name for s in script("pattern_catalogue").samples(LIBRARY)}
    known = {s.id for s in SCENARIOS} | set(LIBRARY.patterns) | incidents
    markers = [(page, words) for page in QUESTIONS for words in re.findall("<!-- samples: (.+?) -->", page.read_text())]
    assert markers
    for page, words in markers:
        assert set(words.split()) <= known, (page.name, words)


def shape(text: str) -> str:
    """Return a text that lines have in common which differ in numbers and spaces only."""
    return re.sub(r"\d+", "0", " ".join(text.split()))


@cache
def seen() -> str:
    """Return all real lines of patterns and samples."""
    shown = [e.text for p in LIBRARY.patterns.values() for e in p.matches + p.no_matches]
    files = (f for f in (ROOT / "sample_logs").glob("*/logs/**/*") if f.is_file() and f.suffix not in (".pkl", ".gz"))
    return shape("\n".join(shown + [f.read_text(errors="replace") for f in files]))


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda p: p.stem)
def test_quoted_lines_are_real(page: Path) -> None:
    """Text in `code` with a space in it is a piece of a log line, with `…` for omissions, or a command."""
    body = page.read_text().partition("<!-- links -->")[0]
    quotes = [q for q in re.findall(r"`([^`\n]+)`", body) if " " in q and not q.startswith(COMMANDS)]
    pieces = [(q, piece) for q in quotes for piece in re.split(r"…", q) if len(piece.strip()) > 3]
    invented = [f"{q}: nowhere is {piece!r}" for q, piece in pieces if shape(piece) not in seen()]
    assert len(quotes) > 10
    assert not invented, "\n".join(invented)


def test_every_signature_and_every_xid_is_accounted_for() -> None:
    done = python("scripts/pattern_coverage.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^357 signatures: \d+ covered, \d+ merged, \d+ left out$", done.stdout, re.MULTILINE)
    assert re.search(
        r"^ +79  ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS +xid-79-gpu-fell-off-bus$", done.stdout, re.MULTILINE
    )
