"""The rendered reports in reports/examples/ are those of the present program, byte for byte."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import examples


@pytest.mark.slow
def test_examples_are_up_to_date() -> None:
    stale = examples.outdated(examples.everything())
    assert not stale, f"run `make examples` and look at what changed: {', '.join(stale)}"


def test_missing_stale_and_extra_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    monkeypatch.setattr(examples, "everything", lambda: {"a.md": "A", "b.md": "B", "README.md": "list"})
    for name, text in (("a.md", "A"), ("b.md", "another"), ("old.html", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "argv", ["examples.py", "--check"])
    assert examples.main() == 1
    printed = capsys.readouterr().out
    assert re.findall(r"examples/(\S+\.(?:md|html))", printed) == ["README.md", "b.md", "old.html"]
    assert "make examples" in printed
    monkeypatch.setattr(sys, "argv", ["examples.py"])
    assert examples.main() == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == examples.everything()


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
