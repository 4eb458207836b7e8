"""The sieve leaves out searches, and never a match: each form is asked beside its bare regex."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from postmortem.blocks import signs
from postmortem.blocks.sieve import Form, Sieve, without_looks
from postmortem.formats.excerpt import decode

FORMS = {name: form for name, form in vars(signs).items() if isinstance(form, Form)}


def lines() -> list[str]:
    """Lines of all samples, one of each shape."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "sample_logs").glob("*/logs/**/*")):
        if path.is_file():
            for line in islice(decode(path.read_bytes()).split("\n"), 4000):
                found.setdefault(re.sub(r"\d", "0", line)[:200], line[:4096])
    return list(found.values())


def differ(form: Form, line: str) -> bool:
    bare = form.compiled
    return (form.search(line) is None, form.match(line) is None) != (
        bare.search(line) is None,
        bare.match(line) is None,
    )


def test_every_sign_is_seen_as_without_the_sieve() -> None:
    some = lines()
    assert len(some) > 2000 and len(FORMS) > 20
    wrong = [(name, line) for name, form in FORMS.items() for line in some if differ(form, line)]
    assert not wrong
    asked = sum(bool(signs.SIEVE.may(line) & form._bit) for form in FORMS.values() for line in some)
    assert asked < len(FORMS) * len(some) / 2, "most searches are left out"


WORDS = st.sampled_from(
    [
        "step",
        "epoch",
        "loss",
        "ERROR",
        "error:",
        "Error",
        "failed",
        "with",
        "exit",
        "code",
        "0",
        "1",
        "137",
        "/",
        "30",
        "1000",
        "it/s",
        "done",
        "finished",
        "training",
        "run",
        "NCCL",
        "WARN",
        "E1122",
        "[rank0]:",
        ":",
        "=",
        "#",
        "(",
        ")",
        "|",
        ",",
        ".",
        "%",
        "saved",
        "to",
        "retry",
        "again",
        "2.5",
        "\t",
        "é",
        "\x1c",
        "\u2028",
        "→",
        "Traceback",
        "aborted",
        "100%|",
        "wandb:",
        "HTTP/1.1",
        "200",
        '"POST',
        "/v1",
        'HTTP/1.1"',
        "2%",
        "[fatal]",
        "level=error",
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(WORDS, st.sampled_from(["", " ", "  ", "\n"])), max_size=14))
def test_words_of_any_order_are_seen_as_without_the_sieve(parts: list[tuple[str, str]]) -> None:
    line = "".join(word + gap for word, gap in parts)
    assert [name for name, form in FORMS.items() if differ(form, line)] == []


@pytest.mark.parametrize(
    ("regex", "bare"),
    [
        (r"a(?!b)c", "ac"),
        (r"(?<!x)(?=(a|b(c)))[(]d", "[(]d"),
        (r"\(?=x", r"\(?=x"),
        (r"[(?=]y(?<=\))z", "[(?=]yz"),
        ("plain(?:x)", "plain(?:x)"),
    ],
)
def test_what_a_regex_looks_at_is_left_out_of_its_gate(regex: str, bare: str) -> None:
    assert without_looks(regex) == bare


def test_a_form_that_refers_back_or_knows_other_letters_is_always_asked() -> None:
    sieve = Sieve()
    twice, arrow = sieve.form(r"(?P<a>\d) of (?P=a)"), sieve.form("→ done")
    assert twice.search("3 of 3") and not twice.search("3 of 4")
    assert arrow.search("→ done") and not arrow.search("done")
