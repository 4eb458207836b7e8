"""The sieve skips searches, and never a match."""

from __future__ import annotations

import re
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, table
from postmortem.blocks import signs
from postmortem.formats.excerpt import decode
from postmortem.formats.sieve import Form, Sieve, without_looks

FORMS = signs.SIEVE.forms
TEXT = (
    "step epoch loss ERROR error: Error failed with exit code 0 1 137 / 30 1000 it/s done finished training run NCCL WARN "
    "E1122 [rank0]: : = # ( ) | , . % saved to retry again 2.5 \t é \x1c → Traceback aborted 100%| wandb: HTTP/1.1 200 "
    '"POST /v1 HTTP/1.1" 2% [fatal] level=error'
)
WORDS = st.sampled_from(TEXT.split(" "))


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
    searched = sum(bool(signs.SIEVE.may(line) & form._bit) for form in FORMS.values() for line in lines)
    assert searched < len(FORMS) * len(lines) / 2, "most searches are skipped"


@settings(max_examples=150, deadline=None)
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
