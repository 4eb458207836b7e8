"""The rendered reports in reports/examples/ are those of the present program, byte for byte."""

from __future__ import annotations

import re
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import examples


@pytest.mark.slow
def test_examples_are_up_to_date() -> None:
    stale = examples.outdated(examples.everything())
    assert not stale, f"run `make examples` and look at what changed: {', '.join(stale)}"


def test_each_kind_of_failure_has_a_page() -> None:
    listed = re.findall(
        r"^\| \[\S+\]\(\S+\)(.*?) \| (\S+) \|", (examples.FOLDER / "README.md").read_text(), re.MULTILINE
    )
    assert {kind for page, kind in listed if page} == {kind for _, kind in listed}


def test_folder_is_complete_and_small() -> None:
    files = {file.name for file in examples.FOLDER.iterdir()}
    assert files == {f"{name}.md" for name in examples.SAMPLES} | {f"{name}.html" for name in examples.PAGES} | {
        "README.md"
    }
    assert sum(file.stat().st_size for file in examples.FOLDER.iterdir()) < 5_000_000
