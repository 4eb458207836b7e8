"""Hangs: the rows of the ranks, the watchdogs' counts, and the comparisons that name a rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from claims import NOON, case, claim, event, exits, pattern, steps
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare import comparisons, hints, library_reports, watchdogs
from postmortem.diagnose.compare.rank_rows import Row, Table, at_odds, odd_one_out, table
from postmortem.diagnose.who.evidence import Evidence, Subject
from postmortem.model import Event

WAITED = pattern("waited", "hang", role="symptom", tells=("wait",))
COUNTED = pattern("counted", "hang", role="symptom", tells=("count", "wait"))
LOST = pattern("lost", "peer-lost", role="symptom")
ANNOUNCED = pattern("announced", "collective-mismatch", role="symptom", tells=("announces",))
Found = tuple[str, tuple[int, ...]] | None


def at_line(line: int, rank: int = 1, kind: str = "pattern", **more: Any) -> Event:
    return event(more.pop("text", "it failed"), f"r{rank}.log", line, kind, rank=rank, **more)


def row(*events: Event, claims: Any = (), **known: Any) -> Row:
    return table(case(*events, **({"ranks": (1,)} | known)), claims).rows[1]


def line(rank: int, text: str = "step 5 begins", **more: Any) -> Event:
    return at_line(5, rank, "line", text=text, source_kind="console", **more)


def complaint(rank: int, p: Any = WAITED, **more: Any) -> Claim:
    return claim(p, at_line(9, rank, **more), ranks=(rank,))


def waits(*ranks: int) -> list[Claim]:
    return [complaint(r) for r in ranks]


def seen(claims: Iterable[Claim], *events: Event, ranks: int = 4, **known: Any) -> Table:
    return table(case(*events, ranks=range(ranks), **known), list(claims))


def named(of: Callable[[Table], Claim | None], found: Table) -> Found:
    made = of(found)
    return None if made is None else (made.pattern.id, made.ranks)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_ranks_outside_the_majority_are_odd_and_without_one_all_are() -> None:
    assert odd_one_out({"a": [0, 1, 2], "b": [3]}) == ([3], True)
    assert odd_one_out({"a": [0, 1], "b": [2, 3]}) == ([0, 1, 2, 3], False)
    assert odd_one_out({"a": [0], "b": [1], "c": [2, 3]}) == ([2, 3, 0, 1], False)
    assert odd_one_out({"a": [0, 1]}) == odd_one_out({}) == ([], False)
    groups = {"a": [0], "b": [1], "c": [2]}
    for order in itertools.permutations(groups):
        assert odd_one_out({name: groups[name] for name in order}) == ([0, 1, 2], False)
    assert at_odds([1], True, "places") == at_odds(list(range(7)), False, "places") == "places"
    assert at_odds([0, 1], False, "places") == "ranks 0 and 1 were in different collectives: places"


def test_a_row_holds_the_complaint_of_the_rank() -> None:
    wait, lost, raised = (claim(p, at_line(n), ranks=(1,)) for n, p in enumerate((WAITED, LOST, pattern()), 5))
    assert (row(claims=[wait]).complaint, row(claims=[lost]).lost) == (wait.event, lost.event)
    assert row(claims=[raised]).fatal is raised.event and row().silent
    launcher = claim(pattern("l", None, role="symptom", family="launcher"), at_line(5))
    end = claim(pattern("e", None, role="symptom", tells=("end",)), at_line(5))
    assert row(
        claims=[launcher, end, claim(pattern(), at_line(5, speaker="kernel")), claim(LOST, role="context")]
    ).silent
    coded = claim(WAITED, at_line(6, fields={"code": "a.py:1"}))
    assert row(claims=[wait, coded]).complaint is row(claims=[coded, wait]).complaint is coded.event
    account = claim(pattern("c", None, role="symptom", tells=("count",)), at_line(5))
    assert row(claims=[account]).complaint is account.event and row(claims=[wait, account]).complaint is wait.event


def test_a_stack_that_a_dying_rank_printed_shows_no_hang() -> None:
    dead = [e._replace(at=NOON) for e in exits(r2=-9)]
    late = at_line(5, kind="stack", at=NOON + 5)
    undated = at_line(5, kind="stack", context=("Signal 15 received",))
    assert row(late, *dead).stack is row(undated, *dead).stack is None
    assert row(late._replace(at=NOON - 500), *dead).stack and row(late).stack and row(late, *exits(r2=-15)).stack
    assert row(late._replace(speaker="tool"), *dead).stack and row(undated._replace(context=()), *dead).stack


def test_a_stack_that_was_asked_for_counts_if_the_rank_that_ended_had_waited_until_a_timeout() -> None:
    """`postmortem run` asks all ranks when the first one fails."""
    asked = at_line(5, kind="stack", fields={"asked": "rank 0 (pid 7) exited with code 1", "after": 0})
    stopped = at_line(5, kind="stack", fields={"asked": "SIGTERM came to the wrapper"})
    waited, raised = (claim(p, at_line(5, rank=0), ranks=(0,)) for p in (WAITED, pattern()))
    assert row(asked, claims=[waited], ranks=(0, 1)).stack is asked
    assert row(asked, claims=[raised], ranks=(0, 1)).stack is None
    assert row(stopped, claims=[waited], ranks=(0, 1)).stack is None


# ── watchdogs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def count(rank: int | None = 0, **fields: Any) -> Event:
    return event("it waits", f"r{rank}.log", rank=rank, pattern="counted", fields=fields)


def groups(*events: Event) -> list[watchdogs.Group]:
    return watchdogs.groups(case(*events, ranks=range(4), patterns=[COUNTED]))


def ranks_by_group(*events: Event) -> list[tuple[str | None, list[int]]]:
    return [(g.key, g.ranks) for g in groups(*events)]


def test_ranks_wait_in_groups_the_largest_first() -> None:
    events = [count(r, seq=7, pg="1") for r in (2, 0)] + [count(r, seq=3, pg="0") for r in (1, 3, 2)]
    assert ranks_by_group(*events) == [("0", [1, 2, 3]), ("1", [0, 2])]
    assert ranks_by_group(count(0, seq=7), count(1, op="A"), count(2, enqueued=1)) == [(None, [0, 1, 2])]
    assert ranks_by_group(event("rank 3 waits", "a.log", pattern="counted", fields={"seq": 7, "rank": 3})) == [
        (None, [3])
    ]
    unnamed = [count(0, seq=7, pg="1"), count(1, seq=7, pg="2")]
    assert ranks_by_group(*unnamed, count(0, seq=7)) == [("1", [0]), ("2", [1])]
    assert (None, [2]) in ranks_by_group(*unnamed, count(2, seq=7))  # of two groups neither is known to be meant
    assert ranks_by_group(unnamed[0], count(2, seq=7)) == [("1", [0, 2])]


# ── comparisons ──────────────────────────────────────────────────────────────────────────────────────────────────────


def fingerprint(rank: int, op: str = "ALLREDUCE", peer: int | None = None, shape: str = "16") -> Event:
    text = f"Rank {rank} is running collective: CollectiveFingerPrint(OpType={op}, TensorShape=[{shape}], TensorDeviceTypes=x"
    text += f"), but Rank {peer} is running collective: …" if peer is not None else ""
    return event(text, f"r{rank}.log", rank=rank, pattern="announced")


@pytest.mark.parametrize(("events", "ranks"), [
    ([*(fingerprint(r, peer=2) for r in (0, 1, 3)), fingerprint(2, "BROADCAST", peer=0)], (2,)),
    ([fingerprint(r, peer=2) for r in (0, 1, 3)], (2,)),
    ([fingerprint(0, peer=3), fingerprint(1, "BROADCAST", peer=3)], (3,)),
    ([fingerprint(0, peer=3), fingerprint(1, "BROADCAST", peer=0)], (0, 1)),
    ([*(fingerprint(r) for r in (0, 1, 2)), fingerprint(3, shape="32")], (3,)),
    ([fingerprint(r) for r in range(4)], ()), ([fingerprint(0, peer=1)], None), ([fingerprint(0)], None),
])  # fmt: skip
def test_fingerprints_name_the_ranks_that_differ(events: list[Event], ranks: tuple[int, ...] | None) -> None:
    found = named(library_reports.fingerprints, table(case(*events, ranks=range(4), patterns=[ANNOUNCED]), []))
    assert found == (None if ranks is None else ("ranks-in-different-collectives", ranks))


@pytest.mark.parametrize(
    ("places", "ranks"),
    [
        ("all_reduce:24 broadcast:22 all_reduce:24 all_reduce:26", (1,)),  # most are in one operation
        ("all_reduce:24 barrier:22 all_reduce:26 barrier:24", (0, 1, 2, 3)),
        ("barrier:37 barrier:37 send:35 recv:34", (0, 1, 2, 3)),
    ],
)
def test_the_rank_in_another_operation_is_odd(places: str, ranks: tuple[int, ...]) -> None:
    calls = [place.split(":") for place in places.split()]
    said = [complaint(r, fields={"collective": c, "code": f"a.py:{n}"}) for r, (c, n) in enumerate(calls)]
    assert named(comparisons.code, seen(said)) == ("ranks-in-different-collectives", ranks)


def test_the_ends_of_a_pipeline_differ_and_one_of_them_is_late() -> None:
    calls = [("recv", 31), ("recv", 32), ("recv", 33), ("send", 35)]
    said = [complaint(r, fields={"collective": c, "code": f"a.py:{n}"}) for r, (c, n) in enumerate(calls)]
    assert named(comparisons.code, seen(said)) == ("rank-never-arrived", ())


def test_the_silent_rank_whose_log_is_here_never_arrived_or_vanished() -> None:
    lost = [complaint(r, LOST) for r in (0, 1, 2)]
    arrived, vanished = ("rank-never-arrived", (3,)), ("rank-vanished", (3,))
    assert named(comparisons.silence, seen(waits(0, 1, 2), line(3))) == arrived
    assert named(comparisons.silence, seen(lost, line(3))) == vanished
    assert named(comparisons.silence, seen([*lost, complaint(0)], line(3))) == arrived
    assert named(comparisons.silence, seen(waits(0), line(1), line(2), line(3))) is None
    assert named(comparisons.silence, seen(waits(0, 1), line(3))) is None  # the log of rank 2 is missing
    files = {(name := f"r{r}.log"): Evidence(Subject("file", name), r) for r in range(3)}
    assert comparisons._suspects(seen(waits(0, 1, 2), files=files, world=4)) == [3]
    assert comparisons._suspects(seen(waits(0, 1), files=files, world=4)) == []


def test_a_stack_without_a_rank_outside_of_the_collective_is_that_of_the_silent_rank() -> None:
    inside, outside = ({"fields": {"code": "a.py:7", "collective": c}} for c in ("all_reduce", None))
    stacks = [event("stack", "console", n, "stack", **f) for n, f in enumerate((inside, outside, inside))]
    assert seen(waits(0, 2), *stacks, ranks=3).rows[1].stack is stacks[1]
    assert seen(waits(0), *stacks, ranks=3).rows[1].stack is None  # of ranks 1 and 2
    assert seen(waits(0, 2), *stacks, stacks[1], ranks=3).rows[1].stack is None  # two threads


@pytest.mark.parametrize(("lost_at", "gave_up", "sigma", "late"), [
    (5, (0, 1), 0, True), (-1, (0, 1), 0, True), (-1.1, (0, 1), 0, False), (-5, (0, 1), 2, True),
    (-5.1, (0, 1), 2, False),
])  # fmt: skip
def test_a_rank_that_lost_its_peers_after_their_timeout_came_late(
    lost_at: float, gave_up: Any, sigma: float, late: bool
) -> None:
    claims = [complaint(r, at=NOON + at) for r, at in enumerate(gave_up)]
    found = seen([*claims, complaint(2, LOST, at=NOON + lost_at, at_sigma=sigma)], ranks=3)
    assert named(comparisons.came_after_timeout, found) == (("rank-never-arrived", (2,)) if late else None)


@pytest.mark.parametrize(
    ("op", "elsewhere"), [("ALLREDUCE", True), ("BROADCAST", False), ("send", False), ("recv", False)]
)
def test_ranks_that_came_late_were_in_a_collective_of_their_own(op: str, elsewhere: bool) -> None:
    """gloo names the send or receive that timed out, which may be a part of any collective."""
    waiting = [complaint(r, at=NOON, fields={"op": op}) for r in range(3)]
    lost = {"collective": "broadcast", "code": "train.py:9"}
    found = seen([*waiting, *(complaint(r, LOST, at=NOON + 5, fields=lost) for r in (3, 4))], ranks=5)
    assert named(comparisons.came_after_timeout, found) == (("rank-never-arrived", (3, 4)) if elsewhere else None)


def test_the_one_rank_with_a_lower_step_is_behind() -> None:
    def behind(*reached: int, claims: Any = (), events: Any = ()) -> Found:
        made = [e for r, n in enumerate(reached) for e in steps(r, n)]
        return named(comparisons.lowest_step, seen(claims, *made, *events, ranks=len(reached)))

    assert behind(7, 5, 7) == behind(7, 5, 7, 7) == ("rank-behind", (1,))
    for reached in ((7, 7, 7), (7, 9, 7), (7, 5, 5, 7), (7, 5, 6, 7), (7, 5)):
        assert behind(*reached) is None
    assert behind(7, 5, 7, events=exits(r1=-9)) is None
    assert behind(7, 5, 7, events=exits(r1=-9), claims=waits(0)) == ("rank-behind", (1,))


def test_a_progress_bar_above_a_complaint_shows_rank_0_at_work() -> None:
    bar = "Map:  40%|####      | 400/1000 [00:10<00:15, 40 examples/s]"

    def busy(*above: str, text: str = "[rank1]: timed out", rank: int = 1, seq: int = 1) -> Claim | None:
        e = event(text, "a.log", 50, rank=rank, context=(*above, text), before=len(above), fields={"seq": seq})
        return comparisons.busy_rank0(seen([claim(WAITED, e, ranks=(rank,))], ranks=2))

    found, inline = busy(bar, "some line"), busy(text=f"{bar}[rank1]: timed out")
    assert found is not None and (found.ranks, found.events[0].where.line, found.events[0].text) == ((0,), 48, bar)
    assert inline is not None and inline.events[0].where.line == 50
    assert (
        busy(text=f"[rank1]: {bar}")
        is busy("some line")
        is busy(bar, rank=0)
        is busy(bar, seq=comparisons.SETUP + 1)
        is None
    )


def test_a_warning_that_one_rank_alone_printed_is_named() -> None:
    def odd(*events: Event, logged: Any = (0, 1)) -> Found:
        return named(hints.odd_notice, seen([], *(line(r) for r in logged), *events))

    def notice(rank: int, text: str = "WARNING bad record 7") -> Event:
        return at_line(6, rank, "notice", text=text)

    assert odd(notice(1)) == odd(notice(1), notice(1, "WARNING slow disk")) == ("odd-warning-on-one-rank", (1,))
    assert odd(notice(0), notice(1)) is odd(notice(0, "WARNING slow disk"), notice(1)) is None
    assert odd(notice(1, "WARNING NCCL: no plugin")) is odd(notice(1), logged=(1,)) is None
