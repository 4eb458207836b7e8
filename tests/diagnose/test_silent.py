"""Who is waited for: the one that says nothing, came late, is behind, or still works."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from claims import NOON, case, claim, event, exits, pattern, steps
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs import silent
from postmortem.diagnose.derive.hangs.views import Scene, scene
from postmortem.model import Event

WAITED = pattern("waited", "hang", role="symptom", tells=("wait",))
LOST = pattern("lost", "peer-lost", role="symptom")
MISMATCH = pattern("mismatch", "collective-mismatch", role="symptom")
Found = tuple[str, tuple[int, ...]] | None


def line(rank: int, text: str = "step 5 begins", number: int = 5, **more: Any) -> Event:
    return event(text, f"r{rank}.log", number, "line", rank=rank, source_kind="console", **more)


def complaint(rank: int, p: Any = WAITED, **more: Any) -> Claim:
    return claim(p, event("it complains", f"r{rank}.log", 9, rank=rank, **more), ranks=(rank,))


def waits(*ranks: int) -> list[Claim]:
    return [complaint(r) for r in ranks]


def seen(claims: Iterable[Claim], *events: Event, ranks: int = 4, **known: Any) -> Scene:
    return scene(case(*events, ranks=range(ranks), **known), list(claims))


def told(of: Callable[[Scene], Claim | None], found: Scene) -> Found:
    made = of(found)
    return None if made is None else (made.pattern.id, made.ranks)


# ── silence ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FILES = {f"r{r}.log": r for r in range(3)}


def test_the_rank_whose_log_is_there_and_says_nothing_never_arrived() -> None:
    found = silent.silence(seen(waits(0, 1, 2), line(3)))
    assert found is not None
    assert (found.pattern.id, found.ranks) == ("rank-never-arrived", (3,))
    assert found.because == "ranks 0, 1 and 2 reported an error, rank 3 did not"
    assert [e.rank for e in found.events] == [3, 0, 1, 2]


def test_where_it_stood_is_told_if_a_stack_shows_it() -> None:
    stack = event("Thread 1 (idle)", "r3.stack", 1, "stack", rank=3, fields={"code": "train.py:31"}, speaker="tool")
    found = silent.silence(seen(waits(0, 1, 2), line(3), stack))
    assert found is not None and found.events[0] is stack
    assert found.because.endswith("rank 3 did not (it was at train.py:31)")


def test_who_only_lost_a_peer_lost_one_that_vanished() -> None:
    lost = [complaint(r, LOST) for r in (0, 1, 2)]
    assert told(silent.silence, seen(lost, line(3))) == ("rank-vanished", (3,))
    assert told(silent.silence, seen([*lost, complaint(0)], line(3))) == ("rank-never-arrived", (3,))
    differ = claim(MISMATCH, event("differ", "x.log"))
    assert told(silent.silence, seen([*lost, differ], line(3))) == ("rank-never-arrived", (3,))


def test_more_silent_ranks_than_loud_ones_mean_nothing() -> None:
    assert told(silent.silence, seen(waits(0, 1), line(2), line(3))) == ("rank-never-arrived", (2, 3))
    assert told(silent.silence, seen(waits(0), line(1), line(2), line(3))) is None
    assert told(silent.silence, seen(waits(0, 1, 2, 3))) is None


def test_nor_does_the_silence_of_ranks_of_which_most_logs_are_missing() -> None:
    assert told(silent.silence, seen(waits(0, 1), line(3))) is None
    assert told(silent.silence, seen(waits(0, 1, 2), line(3), line(4), ranks=6)) == (
        "rank-never-arrived",
        (3, 4),
    )


def test_without_its_log_all_others_have_to_be_there() -> None:
    def of(found: Scene) -> list[int]:
        return silent._suspects(found)

    assert of(seen(waits(0, 1, 2), by_source=FILES, world=4)) == [3]
    assert of(seen(waits(0, 1, 2), by_source=dict(list(FILES.items())[:2]), world=4)) == []
    assert of(seen(waits(0, 1, 2), by_source=FILES)) == [3]
    assert of(seen(waits(0, 1), by_source=FILES, world=4)) == []  # two are silent
    stopped = exits(r3=-15)
    assert of(seen(waits(0, 1, 2), *stopped, world=4)) == [3]
    assert of(seen(waits(0, 1, 2), *exits(r3=1), world=4)) == []
    assert of(seen(waits(0, 1, 2), *stopped, world=5)) == []
    assert of(seen(waits(0), by_source={"r0.log": 0}, ranks=2, world=2)) == [1]


def test_of_several_silent_ranks_the_one_with_other_last_words_is_elsewhere() -> None:
    def of(*said: str) -> list[int]:
        words = [line(r, text) for r, text in enumerate(said)]
        found = seen(waits(0, 1, 2), *words, ranks=5)
        return silent.elsewhere(found, [3, 4])

    same = ["step 5 begins"] * 4
    assert of(*same, "saving the checkpoint") == [4]
    assert of(*same, "step 6 begins") == []
    assert of(*same[:3], "loading", "saving the checkpoint") == []
    assert of(*same) == []  # of one of them nothing is known


def test_rank_0_alone_is_often_the_only_one_that_talks() -> None:
    words = [line(r, "epoch 3" if r == 0 else "step 5 begins") for r in range(5)]
    found = seen(waits(2, 3, 4), *words, ranks=5)
    assert silent.elsewhere(found, [0, 1]) == []
    assert told(silent.silence, found) == ("rank-never-arrived", (0, 1))


# ── it came late ─────────────────────────────────────────────────────────────────────────────────────────────────────


def came(lost_at: float | None, *gave_up: float | None, sigma: float = 0.0, **more: Any) -> Found:
    claims = [complaint(r, at=at) for r, at in enumerate(gave_up)]
    late = complaint(len(gave_up), LOST, at=lost_at, at_sigma=sigma)
    return told(silent.late, seen([*claims, late], **({"ranks": len(gave_up) + 1} | more)))


def test_who_lost_its_peers_when_they_had_given_up_came_late() -> None:
    assert came(NOON + 5, NOON, NOON + 1) == ("rank-never-arrived", (2,))
    assert came(NOON - 1, NOON, NOON + 1) == ("rank-never-arrived", (2,))  # a second of slack
    assert came(NOON - 1.1, NOON, NOON + 1) is None
    assert came(NOON - 5, NOON, NOON + 1, sigma=2.0) == ("rank-never-arrived", (2,))
    assert came(NOON - 5.1, NOON, NOON + 1, sigma=2.0) is None
    assert came(None, NOON) == came(NOON, None) == ("rank-never-arrived", (1,))


def test_not_where_somebody_is_silent_nobody_waited_or_it_failed_otherwise() -> None:
    assert came(NOON + 5, NOON, NOON, ranks=4) is None
    assert told(silent.late, seen([complaint(0, LOST)], ranks=1)) is None
    both = [*waits(0, 1), complaint(2, LOST), complaint(3, LOST)]
    assert told(silent.late, seen(both)) is None
    raised = [*waits(0, 1), complaint(2, LOST), complaint(2, pattern())]
    assert told(silent.late, seen(raised, ranks=3)) is None


# ── all complain alike ───────────────────────────────────────────────────────────────────────────────────────────────


def behind(*reached: int, claims: Any = (), events: Any = (), ranks: int | None = None) -> Found:
    made = [e for r, n in enumerate(reached) for e in steps(r, n)]
    return told(silent.behind, seen(claims, *made, *events, ranks=ranks or len(reached)))


def test_the_one_rank_that_came_less_far_is_behind() -> None:
    assert behind(7, 5, 7) == ("rank-behind", (1,))
    assert behind(7, 5, 7, 7) == ("rank-behind", (1,))
    assert behind(7, 7, 7) is None and behind(7, 9, 7) is None
    assert behind(7, 5, 5, 7) is None and behind(7, 5, 6, 7) is None
    assert behind(7, 5) is None
    assert behind(7, 5, 7, ranks=4) is None  # how far one came is not known


def test_who_was_killed_is_behind_only_if_others_waited_for_it() -> None:
    killed = exits(r1=-9)
    assert behind(7, 5, 7, events=killed) is None
    assert behind(7, 5, 7, events=killed, claims=waits(0)) == ("rank-behind", (1,))
    assert behind(7, 5, 7, events=exits(r0=-9)) == ("rank-behind", (1,))


# ── rank 0 still works ───────────────────────────────────────────────────────────────────────────────────────────────

BAR = "Map:  40%|####      | 400/1000 [00:10<00:15, 40 examples/s]"


def busy(*above: str, text: str = "[rank1]: timed out", rank: int = 1, seq: str | None = "1") -> Claim | None:
    said = event(text, "console.log", 50, rank=rank, context=(*above, text), before=len(above), fields={"seq": seq})
    return silent.busy_rank0(seen([claim(WAITED, said, ranks=(rank,))], ranks=2))


def test_a_bar_that_is_drawn_above_a_complaint_shows_rank_0_at_work() -> None:
    found = busy(BAR, "some line")
    assert found is not None
    assert (found.pattern.id, found.ranks) == ("rank0-still-busy", (0,))
    assert found.because == "rank 0 was still busy when rank 1 timed out in collective 1"
    assert (found.events[0].where.line, found.events[0].text, found.events[0].rank) == (48, BAR, None)
    without = busy(BAR, seq=None)
    assert without is not None and without.because.endswith("timed out")


def test_or_in_front_of_it_on_its_own_line() -> None:
    found = busy(text=f"{BAR}[rank1]: timed out")
    assert found is not None and found.events[0].where.line == 50
    assert busy(text=f"[rank1]: {BAR}") is None
    assert busy(text=f"[E ProcessGroupNCCL.cpp:475] {BAR}") is None


def test_not_late_in_a_run_nor_where_rank_0_waits_itself_or_no_bar_is_drawn() -> None:
    assert busy(BAR, seq=str(silent.FEW)) is not None
    assert busy(BAR, seq=str(silent.FEW + 1)) is None
    assert busy(BAR, rank=0) is None
    assert busy("some line") is None
    assert silent.busy_rank0(seen([])) is None


# ── a warning of one rank ────────────────────────────────────────────────────────────────────────────────────────────


def notice(rank: int, text: str = "WARNING bad record 7", at: float | None = None) -> Event:
    return event(text, f"r{rank}.log", 6, "notice", rank=rank, at=at)


def odd(*events: Event, talking: Any = (0, 1)) -> Claim | None:
    return silent.odd_notice(seen([], *[line(r) for r in talking], *events))


def test_a_warning_that_one_rank_alone_printed_is_a_lead() -> None:
    found = odd(notice(1))
    assert found is not None
    assert (found.pattern.id, found.ranks) == ("odd-warning-on-one-rank", (1,))
    assert found.because == "only rank 1 logged `bad record 7`"
    two = odd(notice(1, "WARNING slow disk", at=NOON + 5), notice(1, at=NOON))
    assert two is not None and "bad record" in two.because and len(two.events) == 2


@pytest.mark.parametrize(
    "events",
    [
        [notice(0), notice(1)],
        [notice(0, "WARNING bad record 8"), notice(1)],
        [notice(0, "WARNING slow disk"), notice(1)],
        [notice(1, "WARNING NCCL: no plugin")],
        [notice(1)._replace(rank=None)],
        [],
    ],
)
def test_not_what_others_print_too_nor_complaints_of_waiting(events: list[Event]) -> None:
    assert odd(*events) is None


def test_nor_where_nobody_else_talks() -> None:
    assert odd(notice(1), talking=(1,)) is None
