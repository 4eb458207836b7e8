"""The group that never formed: which rank did not come, came late, came twice, or looked elsewhere."""

from __future__ import annotations

from typing import Any

from claims import NOON, case, claim, event, exits, library, pattern, steps
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.joining import derive
from postmortem.diagnose.who import elimination
from postmortem.model import Event

WAIT = pattern("wait", "rendezvous", role="symptom", entity="rank", tells=("join-wait",))
NO_STORE = pattern("no-store", "rendezvous", role="symptom", tells=("no-store",))
COUNT = pattern("count", "rendezvous", role="symptom")
PATTERNS = [WAIT, NO_STORE, COUNT]
Found = list[tuple[str, tuple[int, ...]]]


def waits(who: int, at: float | None = None, **fields: Any) -> Claim:
    said = event("waiting for clients", f"r{who}.log", 5, rank=who, at=at, fields=fields)
    return claim(WAIT, said, ranks=(who,))


def outside(rank: int, at: float | None = None, **fields: Any) -> Claim:
    known = {"address": "a", "port": "1"} | fields
    said = event("no store", f"r{rank}.log", 6, rank=rank, at=at, fields=known)
    return claim(NO_STORE, said, ranks=(rank,))


def line(rank: int, at: float | None = None, kind: str = "line", **more: Any) -> Event:
    return event("x", more.pop("file", f"r{rank}.log"), 1, kind, rank=rank, at=at, **more)


def found(said: list[Claim], *events: Event, world: int | None = 4, **known: Any) -> Found:
    seen = case(*events, ranks=range(world or 0), world=world, patterns=PATTERNS, **known)
    return [(c.pattern.id, c.ranks) for c in derive(seen, said)]


ALL = [line(r) for r in range(4)]


def test_ranks_without_a_line_never_came() -> None:
    assert found([waits(r) for r in range(3)], *ALL[:3]) == [("rank-never-joined", (3,))]
    assert found([waits(0), waits(1)], *ALL[:2]) == [("rank-never-joined", (2, 3))]
    assert found([waits(0)], *ALL[:1]) == []  # more than half: these logs were not handed in
    assert found([waits(r) for r in range(3)], *ALL[:3], world=None) == []
    assert found([waits(r, world=4) for r in range(3)], *ALL[:3], world=None) == [("rank-never-joined", (3,))]


def test_a_rank_with_lines_that_neither_joined_nor_complained_is_stuck() -> None:
    waiting = [waits(r) for r in (0, 1, 2)]
    assert found(waiting, *ALL) == [("rank-stuck-before-init", (3,))]
    assert found(waiting, *ALL, *steps(3, 1)) == []
    assert found([waits(0)], *ALL) == []  # three cannot be stuck where one waits
    launcher = pattern("l", None, role="symptom", family="launcher")
    report = claim(launcher, event(rank=3), ranks=(3,))
    assert found([*waiting, report], *ALL) == [("rank-stuck-before-init", (3,))]
    own = claim(pattern("own", "storage", role="symptom"), event(rank=3))
    assert found([*waiting, own], *ALL) == []


def test_tracebacks_without_a_name_are_of_those_who_left_by_themselves() -> None:
    """On one console, before there is a group: rank 1 hid its error and slept, and the launcher stopped it."""
    frames = (("train.py", 35, "<module>"),)
    raised = [event("wait timeout", "console.log", n, "exception", frames=frames) for n in (33, 55)]
    waits = [event("wait timeout", "console.log", n, pattern="wait") for n in (33, 55)]
    size = event(kind="identity", file="console.log", line=2, fields={"world": 3})
    ends = exits(r0=1, r1=-15, r2=1)
    for count, ended, ranks in ((2, ends, {0, 2}), (1, ends, set()), (2, [], set())):
        seen = [size, *waits[:count], *raised[:count], *ended]
        reg = elimination.known(seen, {}, library(*PATTERNS))
        assert {reg.rank_of(e) for e in raised[:count]} - {None} == ranks


def test_a_few_that_found_no_store_looked_elsewhere() -> None:
    assert found([waits(0), waits(1), outside(2)], *ALL[:3], world=3) == [("rank-found-no-store", (2,))]
    assert found([waits(0), outside(2)], *(ALL[0], ALL[2]), world=3) != [("rank-found-no-store", (2,))]


def test_one_that_came_after_the_others_had_given_up_was_late() -> None:
    began = [line(0, NOON), line(1, NOON), line(2, NOON + 12)]
    gave_up = [waits(0, NOON + 10), waits(1, NOON + 10)]
    assert found([*gave_up, outside(2)], *began, world=3) == [("rank-joined-late", (2,))]
    early = [*began[:2], line(2, NOON + 1)]
    assert found([*gave_up, outside(2)], *early, world=3) == [("rank-found-no-store", (2,))]
    undated = [waits(0), waits(1)]
    assert found([*undated, outside(2)], *began, world=3) == [("rank-joined-late", (2,))]
    patient = outside(2, timeout_ms=60000)
    assert found([*undated, patient], *began, world=3) == [("rank-found-no-store", (2,))]
    assert found([*gave_up, patient], *began, world=3) == [("rank-joined-late", (2,))]
    some_time = [claim(WAIT, c.event._replace(at_sigma=30.0), ranks=c.ranks) for c in gave_up]
    assert found([*some_time, patient], *began, world=3) == [("rank-found-no-store", (2,))]
    vague = [e._replace(at_sigma=30.0) for e in began]
    assert found([*gave_up, outside(2)], *vague, world=3) == [("rank-found-no-store", (2,))]


def test_rank_0_that_falls_silent_on_its_way_has_not_opened_the_store() -> None:
    """Unless its last words are of the group: then the store may be open, and out of the others' reach."""
    two = [outside(1), outside(2)]
    stuck = [("rank-stuck-before-init", (0,))]
    assert found(two, *ALL[:3], world=3) == stuck
    for last in (NOON, NOON + 9):
        assert found([outside(1, at=NOON + 9), outside(2)], line(0, last), *ALL[1:3], world=3) == stuck
    assert found([outside(1, at=NOON + 9), outside(2)], line(0, NOON + 20), *ALL[1:3], world=3) == []
    assert found(two[:1], *ALL[:3], world=3) == []  # rank 2 found one
    assert found([*two, outside(0)], *ALL[:3], world=3) == []
    assert found(two, *ALL[:3], *steps(0, 1), world=3) == []
    joins = event("initializing process group backend=gloo", "r0.log", 1, "line", rank=0)
    assert found(two, joins, *ALL[1:3], world=3) == []
    assert found(two, *ALL[1:3], world=3) == []  # its log was not handed in
    assert found(two, *ALL[:3], *exits(r0=-9), world=3) == []  # it was killed
    assert found(two, *ALL[:3], *exits(r0=-15), world=3) == stuck


def test_two_processes_that_state_they_are_one_rank() -> None:
    twice = [line(r, file=f"p{n}.log") for n, r in enumerate((0, 1, 1))]
    same = {"claims": {1: {"p1", "p2"}, 0: {"p0"}}}
    assert found([waits(0)], *twice, world=3, **same) == [("rank-started-twice", (1, 2))]
    tee = {"claims": {1: {"run/rank1", "console"}}}
    assert found([waits(0), waits(1)], *twice, world=3, **tee) == [("rank-never-joined", (2,))]


def test_those_who_wait_for_a_rank_that_no_rank_is_have_a_larger_world() -> None:
    met = [event("raised", f"r{r}.log", 7, "exception", rank=r, fields={"frames": (("a", 1, "step"),)}) for r in (0, 1)]
    waiting = waits(2, rank=3)
    assert found([waiting], *ALL[:3], *met, world=3) == [("world-sizes-differ", (2,))]
    assert found([waits(2, rank=1)], *ALL[:3], *met, world=3) != [("world-sizes-differ", (2,))]
    inside = [e._replace(fields={"frames": (("a", 1, "init_process_group"),)}) for e in met]
    assert found([waiting], *ALL[:3], *inside, world=3) != [("world-sizes-differ", (2,))]
    full = [e._replace(text="connectFullMesh failed: Connect timeout", fields={}) for e in met]
    assert found([waiting], *ALL[:3], *full, world=3) == [("world-sizes-differ", (2,))]


def count(rank: int, joined: int, world: int = 4, key: str = "store_based_barrier_key:1") -> Claim:
    fields = {"rank": rank, "world": world, "joined": joined, "store_key": key}
    return claim(COUNT, event("Timed out", f"r{rank}.log", 3, fields=fields))


def test_if_those_who_count_are_all_that_came_the_others_did_not() -> None:
    assert found([count(r, 2) for r in (0, 1)]) == [("rank-never-joined", (2, 3))]
    assert found([count(r, 3) for r in (0, 1)]) == []  # one more came and said nothing
    assert found([count(0, 1)]) == []  # most are missing
    assert found([count(r, 4) for r in range(4)]) == []  # all came
    assert found([count(r, 2, key="barrier_key:2") for r in (0, 1)]) == []
    assert found([count(0, 1, world=2)]) == [("rank-never-joined", (1,))]
