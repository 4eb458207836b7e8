"""The data files of regexes: each sample matches its form, and each form has a sample."""

from __future__ import annotations

import re
import time

import pytest

from postmortem.diagnose import attempts, numbering
from postmortem.formats.envelope import peel
from postmortem.input import names
from postmortem.model import Source, fingerprint
from postmortem.reading import distinct
from postmortem.system import forms
from postmortem.system.resources import PACKAGE

FILES = sorted(str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.glob("[abdfs]*/*.yaml"))
FILES += ["input/heads", "input/paths", "input/formats", "fleet/diff/settings"]


def test_each_sample_matches_its_form() -> None:
    for file in FILES:
        for name, row in forms.rows(file).items():
            samples = row.get("sample", [])
            for sample in [samples] if isinstance(samples, str) else samples:
                assert re.search(row["regex"], sample), f"{file} {name}: {sample}"
            assert "regex" not in row or "gate" in row or samples, f"{file} {name} has no sample"


def test_each_prefix_is_removed_from_its_sample() -> None:
    for name, row in forms.rows("formats/envelopes").items():
        if "prefix" in row and name != "quote":
            samples = [row["sample"]] if isinstance(row["sample"], str) else row["sample"]
            for sample in samples:
                assert len(peel(sample).body) < len(sample), f"{name}: {sample}"


LONG = 1 << 14
HOSTILE = {  # a search, and a text without end that is almost a match
    "a word with a digit": (lambda text: distinct._WITH_DIGIT.sub(b"0", text.encode()), "a"),
    "ranks of a fingerprint": (lambda text: fingerprint._RANK.sub("", text), "ranks  "),
    "ranks and blanks": (lambda text: fingerprint._RANK.sub("", "ranks" + text), " "),
    "the word before a number": (numbering._WORD.search, "a"),
    "a bar": (forms.regexes("diagnose/lines")["progress-bar"].search, "0"),
    "a package": (forms.regexes("diagnose/lines")["package-root"].split, "/lib/python"),
    "a source in a headline": (forms.regexes("say/headline")["source"].search, "0"),
    "a whole line in a headline": (forms.regexes("say/headline")["whole_line"].search, "0"),
    "a token": (forms.regexes("privacy/assigned")["token"].search, "token='a1"),
    "a job in a path": (lambda text: names.identify(f"run_{text}/rank0.log"), "0"),
    "the job of a file": (lambda text: attempts._units((), [Source(f"{text}.log", "console", 1)]), "0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_long_line_costs_no_more_than_its_length(name: str) -> None:
    search, piece = HOSTILE[name]
    text = piece * (LONG // len(piece))
    search(text[:100])
    start = time.thread_time()
    search(text)
    assert time.thread_time() - start < 0.1


def test_every_use_of_a_form_names_one_that_exists() -> None:
    for path in (*PACKAGE.glob("[fb]*/*.py"), *PACKAGE.glob("diagnose/**/*.py")):
        text = path.read_text()
        file = re.search(r'_REGEXES = .*forms\.regexes\("([\w/]+)"\)', text)
        for name in re.findall(r'_REGEXES\["([\w-]+)"\]', text):
            assert file and name in forms.rows(file[1]), f"{path.name}: {name}"
