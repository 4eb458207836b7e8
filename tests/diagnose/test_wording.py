"""Lines as what they say, and ranks, times and reasons in words."""

from __future__ import annotations

import pytest

from postmortem.diagnose import wording


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: it   failed",
        "[rank3]: RuntimeError: it failed",
        "[default0]:[rank3]: RuntimeError: it failed",
        "(train pid=17, ip=192.0.2.2) RuntimeError: it failed",
        "12: RuntimeError: it failed",
        "2026-11-20T08:00:11.000000+00:00 node-x kernel: RuntimeError: it failed",
        "Nov 20 08:00:11.123456 RuntimeError: it failed",
        "<3>RuntimeError: it failed",
    ],
)
def test_copies_of_a_line_have_one_gist_however_they_were_carried(line: str) -> None:
    assert wording.gist(line) == "RuntimeError: it failed"


def test_a_gist_is_short() -> None:
    assert wording.gist("x" * 1000) == "x" * 300
    assert wording.gist("") == ""


def test_the_same_failure_on_another_rank_has_the_same_shape() -> None:
    assert wording.shape("[rank1]: bad label 4711 at 0x7fe9") == wording.shape(
        "[rank2]: bad label 12 at 0xabc"
    )
    assert wording.shape("bad label 1") != wording.shape("bad index 1")


@pytest.mark.parametrize(
    "ranks, said",
    [
        ([3], "rank 3"),
        ([3, 3], "rank 3"),
        ([2, 0], "ranks 0 and 2"),
        ([0, 1, 2], "ranks 0, 1 and 2"),
        (range(6), "ranks 0, 1, 2, 3, 4 and 5"),
        (range(7), "ranks 0–6"),
        ([*range(523), *range(524, 1024)], "ranks 0–522 and 524–1023"),
        ([0, 2, 4, 6, 7, 8, 9], "ranks 0, 2, 4 and 6–9"),
        (range(0, 14, 2), "7 ranks"),
    ],
)
def test_ranks_are_named_one_by_one_in_ranges_or_counted(ranks: list[int], said: str) -> None:
    assert wording.ranks_text(ranks) == said


def test_a_list_ends_with_and() -> None:
    assert wording.listed(["a"]) == "a"
    assert wording.listed(["a", "b"]) == "a and b"
    assert wording.listed(["a", "b", "c"]) == "a, b and c"


def test_a_moment_is_told_where_it_is_known_to_seconds_and_has_a_date() -> None:
    noon = 1795262400.0
    assert wording.clock_time(noon + 0.9, 5.0) == " at 12:00:00"
    assert wording.clock_time(noon, 5.1) == ""
    assert wording.clock_time(111403.1, 0.0) == ""  # seconds since a boot
    assert wording.clock_time(None, 0.0) == ""


def test_the_document_has_moments_with_a_date_only() -> None:
    assert wording.iso(1795262400.25) == "2026-11-21T12:00:00.250Z"
    assert wording.iso(4e8) is None
    assert wording.iso(7e9) is None
    assert wording.iso(None) is None


def test_a_reason_is_a_sentence_and_a_path_keeps_its_small_letter() -> None:
    assert wording.sentence("it was raised") == "It was raised."
    assert wording.sentence("agent.err:12 tells of it") == "agent.err:12 tells of it."
    assert wording.capital("") == ""
