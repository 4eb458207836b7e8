"""The rendered reports in reports/examples/ are what the program makes of the samples today, byte for byte."""

from __future__ import annotations

import base64
import gzip
import re
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import examples

pytestmark = pytest.mark.slow  # they change with every pattern; `make check` need not say so each time


def unpacked(page: str) -> tuple[str, bytes]:
    """The page without its events, and the events as they were before compression, which is another in other builds of zlib."""
    block = re.search(r'id="postmortem-events">([^<]*)<', page)
    return (page.replace(block[1], ""), gzip.decompress(base64.b64decode(block[1]))) if block else (page, b"")


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_an_example_is_todays_report(name: str) -> None:
    page, line = examples.rendered(name)
    kept = (examples.FOLDER / f"{name}.html").read_text(encoding="utf-8")
    assert page == kept or unpacked(page) == unpacked(kept), "run `make examples` and look at what changed"
    assert line in (examples.FOLDER / "README.md").read_text(encoding="utf-8")


def test_nothing_else_lies_there_and_it_stays_small() -> None:
    files = {file.name for file in examples.FOLDER.iterdir()}
    assert files == {f"{name}.html" for name in examples.EXAMPLES} | {"README.md"}
    assert sum(file.stat().st_size for file in examples.FOLDER.iterdir()) < 5_000_000
