"""The rendered reports in reports/examples/ are what the program makes of the
samples today, byte for byte."""

from __future__ import annotations

import base64
import gzip
import re
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import examples

pytestmark = pytest.mark.slow  # they change with the patterns; `make check` need not say so each time


def unpacked(page: str) -> tuple[str, bytes]:
    """The page without its events, and the events as they were before compression,
    which is another in other builds of zlib."""
    block = re.search(r'id="postmortem-events">([^<]*)<', page)
    return (page.replace(block[1], ""), gzip.decompress(base64.b64decode(block[1]))) if block else (page, b"")


@pytest.mark.parametrize("name", examples.SAMPLES)
def test_an_example_is_todays_report(name: str) -> None:
    files, line, _ = examples.rendered(name)
    for file, page in files.items():
        kept = (examples.FOLDER / file).read_text(encoding="utf-8")
        assert page == kept or unpacked(page) == unpacked(kept), (
            "run `make examples` and look at what changed"
        )
    assert line in (examples.FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_kind_of_failure_has_a_page() -> None:
    listed = re.findall(
        r"^\| \[\S+\]\(\S+\)(.*?) \| (\S+) \|", (examples.FOLDER / "README.md").read_text(), re.MULTILINE
    )
    assert {kind for page, kind in listed if page} == {kind for _, kind in listed}


def test_nothing_else_lies_there_and_it_stays_small() -> None:
    files = {file.name for file in examples.FOLDER.iterdir()}
    assert files == {f"{name}.md" for name in examples.SAMPLES} | {
        f"{name}.html" for name in examples.PAGES
    } | {"README.md"}
    assert sum(file.stat().st_size for file in examples.FOLDER.iterdir()) < 5_000_000
