"""The data files of regexes: each sample matches its form, and each form has a sample."""

from __future__ import annotations

import re

from postmortem.formats import forms
from postmortem.formats.envelope import peel
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


def test_every_use_of_a_form_names_one_that_exists() -> None:
    for path in (*PACKAGE.glob("[fb]*/*.py"), *PACKAGE.glob("diagnose/**/*.py")):
        text = path.read_text()
        file = re.search(r'_REGEXES = .*forms\.regexes\("([\w/]+)"\)', text)
        for name in re.findall(r'_REGEXES\["([\w-]+)"\]', text):
            assert file and name in forms.rows(file[1]), f"{path.name}: {name}"
