"""Which cause comes first: one strict partial order, one total key, whatever the order in which the causes came."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from claims import NOON, claim, event, explains, pattern
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict.choose import _has_priority, candidates, same_failures, tier

RAISED = pattern()
DAY = 86400.0


def at(p: Any, seconds: float | None, rank: int = 0, **more: Any) -> Claim:
    """A claim of a rank's own file at a moment after noon."""
    moment = None if seconds is None else NOON + seconds
    line = event(more.pop("text", "it failed"), f"rank{rank}.log", more.pop("line", 5), rank=rank, at=moment,
                 at_sigma=more.pop("sigma", 0.001), host=more.pop("host", "node-a"),
                 speaker=more.pop("speaker", "rank"))  # fmt: skip
    return claim(p, line, ranks=more.pop("ranks", (rank,)), **more)


def order(*claims: Claim) -> list[str]:
    return [c.pattern.id for c in candidates(claims)]


def of(category: str, **more: Any) -> Any:
    return pattern(category, category, **more)


# ── the kinds of proof ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tier_orders_the_kinds_of_proof() -> None:
    nearest_first = [
        at(of("host-oom"), 0, speaker="kernel"),
        at(of("python-exception"), 0),
        at(of("rendezvous"), 0, strength="compared"),
        at(of("collective-mismatch"), 0),
        at(of("hang"), 0),
        at(of("hang"), 0, strength="compared"),
        at(of("external-signal"), 0),
        at(of("external-signal"), 0, strength="ended"),
        at(of("python-exception"), 0, strength="ended"),
        at(of("unknown-kind"), 0),
        at(of("numerics", severity="error"), 0),
    ]
    tiers = [tier(c) for c in nearest_first]
    assert tiers == sorted(set(tiers))


# ── the order ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_two_deaths_the_one_that_surely_came_first_goes_first() -> None:
    early, late = at(of("storage"), 0), at(of("host-oom", entity="host"), 9)
    assert order(late, early) == ["storage", "host-oom"]


def test_a_death_of_another_day_is_another_incident() -> None:
    old, new = at(of("storage"), -DAY), at(of("host-oom", entity="host"), 0)
    assert order(old, new) == ["host-oom", "storage"]
    assert order(at(of("storage"), 1 - DAY), new) == ["storage", "host-oom"]


def test_what_another_cause_explains_is_behind() -> None:
    cause = at(pattern("cause", "hang", explains=(explains("effect"),)), 0)
    effect = at(pattern("effect", "host-oom", entity="host"), 5)
    assert order(effect, cause) == ["cause", "effect"]


# ── one failure on several ranks ─────────────────────────────────────────────────────────────────────────────────────


def test_the_same_exception_on_several_ranks_is_one_failure() -> None:
    same = [at(RAISED, 9 - rank, rank, text=f"[rank{rank}]: bad label {rank}") for rank in (0, 1)]
    other = at(RAISED, 3, 2, text="bad index 7")
    assert sorted(c.ranks for c in same_failures([*same, other])) == [(0, 1), (2,)]


def test_the_proof_of_a_comparison_keeps_its_order() -> None:
    two = [claim(RAISED, *(event(at=at) for at in ats), strength="compared") for ats in ((5.0, 1.0), (9.0, 3.0))]
    for some in itertools.permutations(two):
        assert [e.at for e in same_failures(some)[0].events] == [5.0, 1.0, 9.0, 3.0]


# ── whatever comes ───────────────────────────────────────────────────────────────────────────────────────────────────

CATEGORIES = ("host-oom", "python-exception", "storage", "hang", "rendezvous", "external-signal", "numerics")


@st.composite
def causes(draw: st.DrawFn) -> list[Claim]:
    """Causes at few places and moments, so that stamps contradict the order of lines."""
    known = [
        pattern(
            f"p{n}",
            draw(st.sampled_from(CATEGORIES)),
            severity=draw(st.sampled_from(("fatal", "error"))),
            entity=draw(st.sampled_from(("self", "host"))),
            strength=draw(st.sampled_from(("stated", "compared", "ended"))),
            explains=tuple(explains(f"p{m}") for m in range(4) if draw(st.booleans()) and m != n),
        )
        for n in range(4)
    ]
    found = []
    for n in range(draw(st.integers(0, 6))):
        found.append(
            at(
                draw(st.sampled_from(known)),
                draw(st.sampled_from((None, 0.0, 0.03, 1.0, 5.0, 2 * DAY))),
                draw(st.integers(0, 1)),
                text=f"{draw(st.sampled_from('abc'))} {n}",
                line=draw(st.sampled_from((1, 2, 20, 40))),
                sigma=draw(st.sampled_from((0.001, 2.0))),
                host=draw(st.sampled_from(("node-a", "node-b"))),
                preference=draw(st.integers(0, 1)),
            )
        )
    return found


@given(causes(), st.randoms())
@settings(max_examples=25)
def test_the_order_does_not_depend_on_the_order_of_the_input(some: list[Claim], random: Any) -> None:
    shuffled = list(some)
    random.shuffle(shuffled)
    assert candidates(shuffled) == candidates(some)


@given(causes())
@settings(max_examples=25)
def test_each_cause_is_in_the_order_once_even_where_stamps_contradict_lines(some: list[Claim]) -> None:
    assert sum(len(c.events) for c in candidates(some)) == sum(len(c.events) for c in some)


def test_stamps_that_contradict_lines_close_a_circle_and_the_key_decides() -> None:
    """a stands above b without a time, b came before c by the clock, and c stands above a."""
    a = at(pattern("a"), None, line=50)
    b = at(pattern("b"), 0.0, line=70)
    c = at(pattern("c"), 5.0, line=30)
    assert _has_priority(a, b) and _has_priority(b, c) and _has_priority(c, a)
    assert {tuple(order(*some)) for some in itertools.permutations((a, b, c))} == {("b", "c", "a")}


RAISED_AT = pattern("raised")
LIMIT = pattern("limit", "scheduler", entity="job")
STOPPED = pattern("stopped", "external-signal", entity="job", tells=("stop",))
INTERRUPT = pattern("interrupt", "external-signal")
STACKS = pattern("stacks", "hang", derived=True)


def test_a_stop_of_the_job_comes_behind_what_had_failed_before_it_and_ahead_of_its_interrupts() -> None:
    limit = {"rank": 9, "speaker": "scheduler", "ranks": ()}
    assert order(at(LIMIT, 9, **limit), at(RAISED_AT, 0)) == ["raised", "limit"]
    assert order(at(LIMIT, 0, **limit), at(RAISED_AT, 9)) == ["limit", "raised"]
    crashed = at(of("native-crash"), 0, strength="ended")
    assert order(at(LIMIT, 9, **limit), crashed) == ["native-crash", "limit"]
    assert order(at(INTERRUPT, 9), at(STOPPED, 0, 1)) == ["stopped", "interrupt"]
    assert order(at(INTERRUPT, 0), at(STOPPED, 9, 1)) == ["interrupt", "stopped"]


def test_the_end_of_a_rank_comes_ahead_of_what_others_report_of_it() -> None:
    end = at(of("python-exception"), 0, 1, strength="ended")
    assert order(at(of("rendezvous"), 9), end) == ["python-exception", "rendezvous"]
    assert order(at(of("rendezvous"), 9, 1), end) == ["rendezvous", "python-exception"], "of the same rank"


def test_stacks_that_a_tool_took_come_ahead_of_the_stop() -> None:
    for collective, first in (("barrier", "stacks"), (None, "limit")):
        stack = event("x", "stacks.txt", 3, "stack", speaker="tool", fields={"collective": collective})
        assert order(at(LIMIT, 9, 9), claim(STACKS, stack, ranks=(1,), strength="compared"))[0] == first


def test_ranks_that_complained_well_before_a_stop_were_not_stopped_by_it() -> None:
    """A signal to the whole job reaches ranks and launcher within seconds of each other."""
    for seconds, first in ((9.0, "stopped"), (11.0, "hang")):
        hang = at(of("hang"), 0, strength="silent", ranks=())  # no suspect
        assert order(at(STOPPED, seconds, 9), hang)[0] == first, seconds


def test_the_lines_of_a_launchers_table_are_in_the_order_of_ranks() -> None:
    crash, code = (
        at(of(c), None, r, strength="ended", line=7 * r + 5) for r, c in enumerate(("native-crash", "host-oom"))
    )
    table = [c.event._replace(where=c.event.where._replace(source="agent.err")) for c in (crash, code)]
    early, late = (
        Claim(c.pattern, "cause", (e,), c.ranks, strength="ended") for c, e in zip((crash, code), table, strict=True)
    )
    assert not _has_priority(early, late) and not _has_priority(late, early)


def test_comparisons_are_ordered_by_their_evidence_and_not_by_the_time_of_their_lines() -> None:
    better, worse = (at(pattern(f"p{n}", "hang"), 9 - n, n, strength="compared", preference=n) for n in (0, 1))
    assert order(worse, better) == ["p0", "p1"]
    stated = at(of("rendezvous", entity="job"), 9)
    compared = at(pattern("late", "rendezvous"), 0, 1, strength="compared")
    assert not _has_priority(compared, stated) and not _has_priority(stated, compared)
