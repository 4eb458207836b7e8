"""What each rank shows of a hang, and who is in the minority."""

from __future__ import annotations

import itertools
from typing import Any

from claims import NOON, bye, case, claim, event, exits, pattern, steps
from postmortem.diagnose import endings
from postmortem.diagnose.derive.hangs.views import View, at_odds, make, minority, scene
from postmortem.model import Event

WAITED = pattern("waited", "hang", role="symptom", tells=("wait",))
COUNTED = pattern("counted", None, role="symptom", tells=("count",))
LOST = pattern("lost", "peer-lost", role="symptom")
RAISED = pattern()


def said(line: int, rank: int = 1, kind: str = "pattern", **more: Any) -> Event:
    return event(more.pop("text", "it failed"), f"rank{rank}.log", line, kind, rank=rank, **more)


def view(*events: Event, claims: Any = (), **known: Any) -> View:
    return scene(case(*events, **({"ranks": (1,)} | known)), claims).views[1]


def test_the_minority_is_accused_and_of_a_tie_everybody() -> None:
    assert minority({"a": [0, 1, 2], "b": [3]}) == ([3], True)
    assert minority({"a": [0, 1], "b": [2, 3]}) == ([0, 1, 2, 3], False)
    assert minority({"a": [0], "b": [1], "c": [2, 3]}) == ([2, 3, 0, 1], False)
    assert minority({"a": [0, 1]}) == ([], False)
    assert minority({}) == ([], False)
    groups = {"a": [0], "b": [1], "c": [2]}
    for order in itertools.permutations(groups):
        assert minority({name: groups[name] for name in order}) == ([0, 1, 2], False)


def test_nobody_is_elsewhere_than_the_others_where_no_group_is_the_larger() -> None:
    assert at_odds([1], True, "told") == "told"
    assert at_odds([0, 1], False, "told") == "ranks 0 and 1 were in different collectives: told"
    assert at_odds(list(range(7)), False, "told") == "told"


def test_what_a_rank_complains_of() -> None:
    wait, lost, raised = (claim(p, said(n), ranks=(1,)) for n, p in enumerate((WAITED, LOST, RAISED), 5))
    assert (view(claims=[wait]).complaint, view(claims=[lost]).lost) == (wait.event, lost.event)
    assert view(claims=[raised]).fatal is raised.event
    assert view().silent
    assert not any(view(claims=[c]).silent for c in (wait, lost, raised))
    assert [view(claims=[c]).proof for c in (wait, lost, raised)] == [c.event for c in (wait, lost, raised)]
    assert view().proof is None


def test_what_is_no_complaint_of_the_rank() -> None:
    launcher = claim(pattern("l", None, role="symptom", family="launcher"), said(5))
    end = claim(pattern("e", None, role="symptom", tells=("end",)), said(5))
    kernel = claim(RAISED, said(5, speaker="kernel"))
    weather = claim(RAISED, said(5), role="context")
    assert view(claims=[launcher, end, kernel, weather]).silent


def test_a_watchdogs_account_of_itself_shows_that_the_rank_waits() -> None:
    account = claim(COUNTED, said(5))
    assert view(claims=[account]).complaint is account.event
    first = claim(WAITED, said(4))
    assert view(claims=[first, account]).complaint is first.event


def test_of_two_complaints_the_one_with_the_users_line_of_code() -> None:
    plain, coded = (claim(WAITED, said(n, fields=f)) for n, f in ((5, {}), (6, {"code": "a.py:1"})))
    assert view(claims=[plain, coded]).complaint is coded.event
    assert view(claims=[coded, plain]).complaint is coded.event
    assert view(claims=[plain, claim(WAITED, said(7))]).complaint is plain.event


def test_where_it_waits() -> None:
    coded = {"code": "a.py:1"}
    assert view(said(5, kind="stack", fields=coded)).place == ("none", "a.py:1")
    assert view(said(5, kind="stack", fields=coded | {"collective": "barrier"})).place == (
        "barrier",
        "a.py:1",
    )
    store = claim(WAITED, said(5, text="wait timeout after 10000ms", fields=coded))
    assert view(claims=[store]).place == ("store.get", "a.py:1")
    assert view(claims=[claim(WAITED, said(5, fields=coded))]).place is None
    assert view(claims=[claim(WAITED, said(5))]).place is None


def test_what_fails_in_a_handler_is_a_stack() -> None:
    c = claim(RAISED, said(5, fields={"interrupted": True}))
    assert (view(claims=[c]).stack, view(claims=[c]).fatal) == (c.event, None)


def test_a_childs_stack_is_not_the_ranks() -> None:
    assert view(said(5, kind="stack", child=True)).stack is None


def test_a_stack_printed_while_dying_shows_no_hang() -> None:
    dead = [e._replace(at=NOON) for e in exits(r2=-9)]
    late = said(5, kind="stack", at=NOON + 5)
    assert view(late, *dead).stack is None
    assert view(late._replace(at=NOON - 500), *dead).stack is not None
    assert view(late).stack is late
    assert view(late, *[e._replace(at=NOON) for e in exits(r2=-15)]).stack is late
    assert view(late._replace(speaker="tool"), *dead).stack is not None
    undated = said(5, kind="stack", context=("Signal 15 received",))
    assert view(undated, *dead).stack is None
    assert view(undated._replace(context=()), *dead).stack is not None


def test_a_stack_that_was_asked_for_when_another_ended_counts_if_that_one_had_waited_until_a_timeout() -> None:
    """`postmortem run` asks all ranks when the first one fails. Beside one that raised or was killed they show
    where victims were."""
    asked = said(5, kind="stack", fields={"asked": "rank 0 (pid 7) exited with code 1", "after": 0})
    stopped = said(5, kind="stack", fields={"asked": "SIGTERM came to the wrapper"})
    waited = claim(WAITED, said(5, rank=0), ranks=(0,))
    raised = claim(RAISED, said(5, rank=0), ranks=(0,))
    assert view(asked, claims=[waited], ranks=(0, 1)).stack is asked
    assert view(asked, claims=[raised], ranks=(0, 1)).stack is None
    assert view(stopped, claims=[waited], ranks=(0, 1)).stack is None


def test_how_far_it_came_and_what_it_said_last() -> None:
    seen = view(*steps(1, 3, 9, 5, at=NOON))
    assert seen.step == 9
    assert seen.last is not None
    assert seen.last.fields["step"] == 9
    words = [e.fields["step"] for e in seen.last_words]
    assert words == sorted(words, reverse=True)
    trouble = said(50, kind="line", text="ValueError: x Error", at=NOON + 99)
    head = said(1, kind="line", text="start", fields={"first": True})
    assert view(trouble, head).last_words == []


def test_who_said_goodbye_after_all_that_it_complained_of_got_over_it() -> None:
    wait = claim(WAITED, said(5))
    assert view(bye(1, 9), claims=[wait]).got_over
    assert not view(bye(1, 3), claims=[wait]).got_over
    assert not view(bye(1, 9, file="b.log"), claims=[wait]).got_over
    assert not view(claims=[wait]).got_over
    assert not view(bye(1, 9), *exits(r1=1), claims=[wait]).got_over
    assert view(bye(1, 9), *exits(r1=0), claims=[wait]).got_over


def test_who_was_stopped_and_who_left() -> None:
    assert View(1, endings.of(-15)).stopped
    assert not View(1, endings.of(1)).stopped
    assert not View(1).stopped


def test_a_claim_that_no_line_makes_needs_proof_and_names_hosts() -> None:
    seen = case(hosts={1: "b", 2: "a"})
    made = make(seen, "rank-vanished", [2, 1, 2], [None, event("x")], "so")
    assert made is not None
    assert (made.ranks, made.hosts, made.because, len(made.events)) == ((1, 2), ("a", "b"), "so", 1)
    assert make(seen, "rank-vanished", [1], [None], "so") is None
    assert make(seen, "no-such-pattern", [1], [event()], "so") is None


def test_a_scene_is_complete_where_the_size_is_known_and_all_are_there() -> None:
    assert scene(case(ranks=(0, 1), world=2), []).complete
    assert not scene(case(ranks=(0, 1), world=3), []).complete
    assert not scene(case(ranks=(0, 1)), []).complete
    assert scene(case(*exits(r0=1, r1=-15), ranks=(0, 1)), []).complete


def test_who_waits_who_shouts_and_who_is_quiet() -> None:
    seen = scene(case(ranks=range(3)), [claim(WAITED, said(5, 0)), claim(LOST, said(5, 1))])
    assert (seen.waiting, seen.shouting, seen.quiet) == ([0], [0, 1], [2])
