"""The data files of regexes: each sample matches its form, and each form has a sample."""

from __future__ import annotations

import re

from postmortem.blocks import signs
from postmortem.formats import times
from postmortem.formats.envelope import peel
from postmortem.model.digits import zeros
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


UNIFORM = {  # the regexes of functions that read all lines as if their digits were zeros
    "blocks/signs": "digits epoch-step preparing step planned loss keeper closing trying of-all epoch so-far",
    "blocks/counters": "counter identity token together may-count may-join not-yet",
    "blocks/identities": "may-end",
    "formats/envelopes": "head-node srun host foreign clock time-iso time-ctime time-named time-glog time-syslog time-short",
}
DIGITS = set(range(ord("0"), ord("9") + 1))


def distinguishes(item: object) -> bool:
    """Whether a parsed regex has a digit, or a set with some digits."""
    if isinstance(item, tuple) and len(item) == 2:
        name, value = str(item[0]), item[1]
        if name in ("LITERAL", "NOT_LITERAL"):
            return value in DIGITS
        if name == "IN":
            ranges = [(ends, ends) if str(kind) == "LITERAL" else ends for kind, ends in value]
            some = {n for ends in ranges if isinstance(ends, tuple) for n in range(ends[0], ends[1] + 1)} & DIGITS
            return bool(some) and some != DIGITS
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            return True
    return not isinstance(item, str | int) and item is not None and any(map(distinguishes, item))  # type: ignore[call-overload]


def test_uniform_functions_search_no_certain_digit() -> None:
    assert all(map(distinguishes, map(re._parser.parse, (r"a1", r"[1-9]", r"(?:x(?!0))*", r"(\d)\1"))))
    for file, names_ in UNIFORM.items():
        found = {name: row["regex"] for name, row in forms.rows(file).items() if name in names_.split()}
        assert len(found) == len(names_.split())
        keys = {"column", "label", "lead", "least"}
        found |= {name: row["regex"] for name, row in forms.rows(file).items() if keys & row.keys()}
        for name, regex in found.items():
            assert not distinguishes(re._parser.parse(regex)), f"{file} {name}"


def test_a_line_of_zeros_has_its_numbers_where_others_have_them() -> None:
    text = "2026-11-20 21:02:56,633 INFO [rank1] train: epoch 2 step 15/400 loss 2.28"
    for line in (text, zeros(text), text.replace("1", "3")):
        assert zeros(line) == zeros(text)
        assert times._date(line) == times._date.__wrapped__(line)  # type: ignore[attr-defined]
    assert dict(signs.counts(text)) == {"epoch": 2, "of 400": 15, "step": 15}
    assert dict(signs.counts(text.replace("1", "3"))) == {"epoch": 2, "of 400": 35, "step": 35}


def test_every_use_of_a_form_names_one_that_exists() -> None:
    for path in (*PACKAGE.glob("[fb]*/*.py"), *PACKAGE.glob("diagnose/**/*.py")):
        text = path.read_text()
        file = re.search(r'_REGEXES = .*forms\.regexes\("([\w/]+)"\)', text)
        for name in re.findall(r'_REGEXES\["([\w-]+)"\]', text):
            assert file and name in forms.rows(file[1]), f"{path.name}: {name}"
