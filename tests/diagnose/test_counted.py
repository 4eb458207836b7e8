"""What the watchdogs count: the work that each rank waits in, by process group."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, event, pattern
from postmortem.diagnose.derive.hangs import counted
from postmortem.diagnose.derive.hangs.counted import Group, Wait
from postmortem.diagnose.derive.hangs.views import scene
from postmortem.model import Event

COUNTED = pattern("counted", "hang", role="symptom", tells=("count", "wait"))


def said(rank: int | None = 0, **fields: Any) -> Event:
    return event("it waits", f"r{rank}.log", rank=rank, pattern="counted", fields=fields)


def learnt(*fields: dict[str, Any]) -> Wait:
    events = [said(**each) for each in fields]
    wait = Wait(0, events[0])
    for e in events:
        wait.learn(e)
    return wait


def groups(*events: Event) -> list[Group]:
    return counted.groups(case(*events, ranks=range(4), patterns=[COUNTED]))


# ── one rank's wait ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_several_works_that_timed_out_the_first_is_the_one_that_is_stuck() -> None:
    later, first = {"seq": "9", "op": "B"}, {"seq": "7", "op": "A"}
    for order in ((later, first), (first, later)):
        wait = learnt(*order)
        assert wait.seq == 7 and wait.event.fields["seq"] == "7"
    assert learnt({"seq": "7", "op": "A"}, {"seq": "5"}).event.fields["op"] == "A"  # shows what it waits in
    assert learnt({"seq": "7"}, {"seq": "5"}).event.fields["seq"] == "5"
    assert learnt({"seq": "7", "op": "A"}, {"seq": "5", "op": "B"}).event.fields["op"] == "B"
    assert learnt({"seq": "7"}, {"seq": "7", "op": "B"}).event.fields.get("op") is None


def test_what_a_line_leaves_out_another_may_say() -> None:
    wait = learnt({"seq": "7"}, {"op": "A", "numel_in": "4"}, {"op": "B", "numel_in": "5"})
    assert (wait.op, wait.numel) == ("A", "4")
    counts = learnt({"enqueued": "9", "completed": "6"}, {"enqueued": "8"}, {"completed": "7"})
    assert (counts.seq, counts.enqueued, counts.completed) == (None, 9, 7)
    assert learnt({"timeout_ms": "600000"}, {"timeout_ms": "5"}).timeout_s == 600.0
    assert learnt({"timeout_ms": "0"}).timeout_s is None


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def told(*events: Event) -> list[tuple[str | None, list[int]]]:
    return [(g.key, g.ranks) for g in groups(*events)]


def test_ranks_wait_in_groups_the_largest_first() -> None:
    events = [said(r, seq="7", pg="1") for r in (2, 0)] + [said(r, seq="3", pg="0") for r in (1, 3, 2)]
    assert told(*events) == [("0", [1, 2, 3]), ("1", [0, 2])]
    assert told(said(0, seq="7"), said(1, op="A"), said(2, enqueued="1")) == [(None, [0, 1, 2])]
    assert told(said(0, numel_in="7"), said(None, seq="7")) == []
    named = event("rank 3 waits", "a.log", pattern="counted", fields={"seq": "7", "rank": "3"})
    assert told(named) == [(None, [3])]


def test_a_line_without_a_group_is_of_the_one_in_which_its_rank_waits_in_the_same_work() -> None:
    events = [said(0, seq="7", pg="1"), said(1, seq="7", pg="2")]
    assert told(*events, said(0, seq="7")) == [("1", [0]), ("2", [1])]
    assert told(*events, said(0, seq="8")) == [("1", [0]), ("2", [1]), (None, [0])]
    assert (None, [2]) in told(*events, said(2, seq="7"))  # which of the two?
    assert told(events[0], said(2, seq="7")) == [("1", [0, 2])]
    operations = [
        said(0, seq="7", pg="1", op="A"),
        said(1, seq="7", pg="2", op="B"),
        said(2, seq="7", op="B"),
    ]
    assert told(*operations) == [("2", [1, 2]), ("1", [0])]


def test_what_two_lines_of_a_rank_say_of_one_group_is_joined() -> None:
    (group,) = groups(said(0, seq="7", pg="1", enqueued="8"), said(0, seq="7", op="A", enqueued="9", timeout_ms="1000"))
    wait = group.waits[0]
    assert (wait.seq, wait.op, wait.enqueued, wait.timeout_s) == (7, "A", 9, 1.0)


def group(*seqs: int | None, key: str | None = None, completed: Any = (), op: str = "") -> Group:
    waits = {r: Wait(r, said(r), seq, op) for r, seq in enumerate(seqs)}
    for r, done in enumerate(completed):
        waits[r].completed = done
    return Group(key, waits)


def test_a_work_is_called_by_its_operation_and_number() -> None:
    assert group(7, 9, op="ALLREDUCE").work == "ALLREDUCE 7"
    assert group(7).work == "collective 7"
    assert group(None, op="ALLREDUCE").work == "ALLREDUCE"
    assert group(7, None, 9).seqs == {7, 9}
    assert group(7, key="3(mesh_tp)").named == " of group 3(mesh_tp)"
    assert group(7).named == "" and all(group(7, key=key).named == "" for key in counted.DEFAULT)


@pytest.mark.parametrize(
    ("seqs", "completed", "first"),
    [
        ((1, 1), (), True),
        ((1, 1), (0, 0), True),
        ((1, 1), (-1, None), True),
        ((1, 1), (0, 1), False),
        ((1, 2), (0, 0), False),
        ((None, None), (0, 0), True),
        ((None, None), (), False),
        ((0, 1), (), False),
    ],
)
def test_the_first_work_of_a_group_never_ended(seqs: Any, completed: Any, first: bool) -> None:
    assert group(*seqs, completed=completed).first is first


def test_before_torch_named_groups_two_numbers_at_once_are_two_groups() -> None:
    def several(*events: Event, key: str | None = None) -> bool:
        return counted._several_at_once(scene(case(*events, patterns=[COUNTED]), []), Group(key))

    two = [said(0, seq="7"), said(0, seq="9")]
    assert several(*two) and not several(*two, key="1")
    assert not several(said(0, seq="7"), said(1, seq="9"))
    assert not several(said(0, seq="7"), said(0, seq="9", pg="1"))
    assert not several(said(0, seq="7"), said(0))
