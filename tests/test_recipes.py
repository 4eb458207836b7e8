"""Every recipe has its row in a page of docs/how-to that states how it was tested."""

from __future__ import annotations

import re
from pathlib import Path

from recipe_runs import RECIPES

from conftest import ROOT

ALL = sorted(p for p in RECIPES.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
FILES = [p for p in ALL if p.parent.name != "slurm"]  # its page has sentences
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
ROW = re.compile(r"^\| \[`[^`]+`\]\(([^)]+)\) \| .+ \| (.+) \|$", re.MULTILINE)
WORDS = re.compile(r"(commands )?run(; (manifest|file) validated|; \w+ itself did not)?|file validated")


def linked(pattern: re.Pattern[str]) -> dict[Path, tuple[str, ...]]:
    """Return the files that the pages link to in this way, and the other groups of the pattern."""
    return {
        (page.parent / found[1]).resolve(): found.groups()[1:]
        for page in PAGES
        for found in pattern.finditer(page.read_text())
    }


def test_each_recipe_has_a_page() -> None:
    assert {*ALL} <= linked(re.compile(r"\]\(([^)#]+)")).keys()


def test_page_states_how_each_recipe_was_tested() -> None:
    """Run, or validated by its schema only. A recipe that was run is named by a test of this folder."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*recipe*_*.py"))
    rows = linked(ROW)
    for path in FILES:
        assert path in rows and WORDS.fullmatch(rows[path][0]), path.name
        assert path.name in tests or not rows[path][0].startswith(("run", "commands run")), path.name
