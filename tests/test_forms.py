"""The data files of regexes: each sample matches its form, and each form has a sample. A lazy regex answers like one that
was compiled at once, and the sieve skips searches, and never a match."""

from __future__ import annotations

import copy
import pickle
import re
import threading
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, table
from postmortem.blocks import signs
from postmortem.formats import envelope, times
from postmortem.formats.envelope import Style, clean, peel
from postmortem.formats.excerpt import decode
from postmortem.formats.sieve import Form, Sieve, without_looks
from postmortem.model.digits import zeros
from postmortem.system import forms, lazy
from postmortem.system.resources import PACKAGE

FILES = sorted(str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.glob("[abdfs]*/*.yaml"))
FILES += ["input/heads", "input/paths", "input/formats", "fleet/diff/settings"]


def test_each_sample_matches_its_form() -> None:
    assert len(FILES) > 4
    for file in FILES:
        for name, row in forms.rows(file).items():
            samples = row.get("sample", [])
            for sample in [samples] if isinstance(samples, str) else samples:
                assert re.search(row["regex"], sample), f"{file} {name}: {sample}"
            assert "regex" not in row or "gate" in row or samples, f"{file} {name} has no sample"


def test_each_prefix_is_removed_from_its_sample() -> None:
    rows = {n: row for n, row in forms.rows("formats/envelopes").items() if "prefix" in row and n != "quote"}
    assert rows
    for name, row in rows.items():
        for sample in [row["sample"]] if isinstance(row["sample"], str) else row["sample"]:
            assert len(peel(sample).body) < len(sample), f"{name}: {sample}"


UNIFORM, CERTAIN, LINES = table("forms").values()
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
        keys = {"column", "label", "lead", "least", "prefix", "in_text"}
        found |= {name: row["regex"] for name, row in forms.rows(file).items() if keys & row.keys()}
        for name, regex in found.items():
            assert distinguishes(re._parser.parse(regex)) is (f"{file} {name}" in CERTAIN), f"{file} {name}"


def test_a_line_has_its_prefixes_where_lines_of_other_digits_have_them() -> None:
    samples = [row["sample"] for row in forms.rows("formats/envelopes").values()]
    for line in [*LINES, *(sample for sample in samples if isinstance(sample, str))]:
        for add in range(10):
            text = clean(re.sub("[0-9]", lambda m, add=add: str((int(m[0]) + add) % 10), line))  # type: ignore[misc]
            assert peel(text) == envelope._Peeler(text, Style(), of_digits=True).places().read(text), text


def test_a_line_of_zeros_has_its_numbers_where_others_have_them() -> None:
    text = "2026-11-20 21:02:56,633 INFO [rank1] train: epoch 2 step 15/400 loss 2.28"
    for line in (text, zeros(text), text.replace("1", "3")):
        assert zeros(line) == zeros(text)
        assert times._date(line) == times._date.__wrapped__(line)  # type: ignore[attr-defined]
    assert dict(signs.counts(text)) == {"epoch": 2, "of 400": 15, "step": 15}
    assert dict(signs.counts(text.replace("1", "3"))) == {"epoch": 2, "of 400": 35, "step": 35}


def test_every_use_of_a_form_names_one_that_exists() -> None:
    used = 0
    for path in (*PACKAGE.glob("[fb]*/*.py"), *PACKAGE.glob("diagnose/**/*.py"), *PACKAGE.glob("say/*.py")):
        text = path.read_text()
        file = re.search(r'_REGEXES = .*forms\.regexes\("([\w/]+)"\)', text)
        for name in re.findall(r'_REGEXES\["([\w-]+)"\]', text):
            assert file and name in forms.rows(file[1]), f"{path.name}: {name}"
            used += 1
    assert used


SOURCE = r"(?P<name>step) (?P<n>\d+)"
TEXT = "step 7, Step 8"


@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
def test_it_answers_like_the_real_one(flags: int) -> None:
    real, ours = re.compile(SOURCE, flags), lazy.regex(SOURCE, flags)
    for name in ("search", "match", "fullmatch"):
        a, b = getattr(real, name)(TEXT), getattr(lazy.regex(SOURCE, flags), name)(TEXT)
        assert (a and a.groupdict()) == (b and b.groupdict())
    assert ours.findall(TEXT) == real.findall(TEXT) and ours.split(TEXT) == real.split(TEXT)
    assert (ours.pattern, ours.flags, ours.groupindex) == (real.pattern, real.flags, real.groupindex)
    assert lazy.regex(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_it_is_compiled_at_the_first_use() -> None:
    broken = lazy.regex("(")
    assert broken.pattern == "("
    with pytest.raises(re.error):
        broken.search("x")


def test_it_can_be_copied_and_used_by_threads() -> None:
    """Copying looks up methods of an empty instance: an answer to all would never end."""
    with pytest.raises(AttributeError):
        lazy.regex(SOURCE).find  # type: ignore[attr-defined] # noqa: B018
    assert copy.copy(lazy.regex(SOURCE)).search(TEXT)
    assert pickle.loads(pickle.dumps(lazy.regex(SOURCE))).search(TEXT)
    ours, found = lazy.regex(SOURCE), []
    threads = [threading.Thread(target=lambda: found.append(ours.search(TEXT) is not None)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 8


def test_the_stamps_of_two_loggers_are_distinguished() -> None:
    """`m.re is FORM` is never true of a lazy regex, so the form of c10's logger is compiled at once."""
    glog, plain = times.find("W1120 21:05:00.130980890 x"), times.find("2026-11-20 21:05:00.130980890 x")
    assert glog and plain and glog.sigma != plain.sigma


FORMS = signs.SIEVE.forms
WORDS_OF_LOGS = (
    "step epoch loss ERROR error: Error failed with exit code 0 1 137 / 30 1000 it/s done finished training run NCCL WARN "
    "E1122 [rank0]: : = # ( ) | , . % saved to retry again 2.5 \t é \x1c → Traceback aborted 100%| wandb: HTTP/1.1 200 "
    '"POST /v1 HTTP/1.1" 2% [fatal] level=error'
)
WORDS = st.sampled_from(WORDS_OF_LOGS.split(" "))


def differs(form: Form, line: str) -> bool:
    bare = form.compiled
    found = form.search(line), form.match(line), bare.search(line), bare.match(line)
    return [m is None for m in found[:2]] != [m is None for m in found[2:]]


def test_every_sign_in_the_samples_is_found() -> None:
    found: dict[str, str] = {}
    for path in sorted((ROOT / "sample_logs").glob("*/logs/**/*")):
        if path.is_file():
            for line in islice(decode(path.read_bytes()).split("\n"), 1000):
                found.setdefault(re.sub(r"\d", "0", line)[:120], line[:4096])
    lines = list(found.values())[::3]
    assert len(lines) > 500 and len(FORMS) > 20
    assert not [(name, line) for name, form in FORMS.items() for line in lines if differs(form, line)]
    searched = sum(bool(signs.SIEVE.may(line) & form.bit) for form in FORMS.values() for line in lines)
    assert searched < len(FORMS) * len(lines) / 2, "most searches are skipped"


@settings(max_examples=150)
@given(st.lists(st.tuples(WORDS, st.sampled_from(["", " ", "  ", "\n"])), max_size=14))
def test_words_of_any_order_are_found(parts: list[tuple[str, str]]) -> None:
    line = "".join(word + gap for word, gap in parts)
    assert [name for name, form in FORMS.items() if differs(form, line)] == []


def test_a_gate_has_no_lookaround() -> None:
    for regex, bare in table("sieve")["gates"]:
        assert without_looks(regex) == bare


def test_references_and_letters_beyond_ascii_have_gates_too() -> None:
    sieve = Sieve({"twice": r"(?P<a>\d) of (?P=a)", "arrow": "→ done"})
    assert sieve["twice"].search("3 of 3") and not sieve["twice"].search("3 of 4")
    assert sieve["arrow"].search("→ done") and not sieve["arrow"].search("done")
    assert sieve.may("3 of the 3") and not sieve.may("done")
