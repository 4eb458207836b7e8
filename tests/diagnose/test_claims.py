"""Several claims of one pattern on one entity are one, and its proof stands in the order of time."""

from __future__ import annotations

import itertools

from claims import claim, event, pattern
from postmortem.diagnose.claims import merged

RAISED = pattern()


def test_a_merged_claim_has_the_entities_of_all() -> None:
    a = claim(RAISED, event(at=9.0), ranks=(2,), hosts=("b",), gpus=("0000:48:00",), pids=(7,))
    b = claim(RAISED, event(at=5.0), ranks=(0, 2), hosts=("a",), pids=(3,))
    one = merged([a, b])
    assert (one.ranks, one.hosts, one.gpus, one.pids) == ((0, 2), ("a", "b"), ("0000:48:00",), (3, 7))
    assert [e.at for e in one.events] == [5.0, 9.0]
    assert one.at == 5.0


def test_who_has_no_time_stands_behind_who_has_one() -> None:
    one = merged([claim(RAISED, event("undated")), claim(RAISED, event("dated", at=5.0))])
    assert one.event.text == "dated"
    assert one.at == 5.0


def test_the_order_in_which_claims_came_and_the_names_of_their_files_do_not_matter() -> None:
    said = [claim(RAISED, event(text, file, at=5.0)) for text, file in (("b", "z"), ("a", "y"), ("c", "x"))]
    for order in itertools.permutations(said):
        assert [e.text for e in merged(order).events] == ["a", "b", "c"]


def test_one_claim_stays_as_it_is() -> None:
    one = claim(RAISED, event("second", at=9.0), event("first", at=5.0))
    assert merged([one]) is one


def test_a_claim_without_times_has_none() -> None:
    assert claim(RAISED).at is None


def test_causes_and_symptoms_accuse() -> None:
    roles = ("cause", "symptom", "confirms", "context")
    assert [claim(RAISED, role=role).accuses for role in roles] == [True, True, False, False]
