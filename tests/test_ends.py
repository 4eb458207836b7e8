"""The lines of a script that started the ranks about how they ended; see data/excerpts/ends.yaml for verdicts."""

from __future__ import annotations

from conftest import table
from postmortem.blocks.identities import End, end_in

TABLE = table("ends")
ENDS = {line: End(*row) for line, row in TABLE["ends"].items()}
NOTHING = TABLE["no_ends"]
PREFIXED = {(line, rank): end and End(*end) for line, rank, end in TABLE["prefixed"]}


def test_an_end_is_a_rank_a_word_and_a_code() -> None:
    assert {line: end_in(line, None) for line in ENDS} == ENDS
    assert {line: end_in(line, None) for line in NOTHING} == dict.fromkeys(NOTHING)
    assert {given: end_in(*given) for given in PREFIXED} == PREFIXED  # the rank of the line's prefix
