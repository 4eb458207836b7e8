"""The checker of documents: each contradiction that it knows, planted in a document that has none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from report_cases import Case

from conftest import SAMPLES, solved
from postmortem import report
from postmortem.say.consistency import contradictions

Change = Callable[[Any], object]
PLANTED: dict[str, Change] = {
    "no reason is given for an incident": lambda d: d["verdict"].update(because=[]),
    "undetermined, and nothing is missing": lambda d: d["verdict"].update(outcome="undetermined", missing=[]),
    "healthy, with a category or a culprit": lambda d: d["verdict"].update(outcome="healthy"),
    "the cause is not known, and ranks [2] are": lambda d: d["verdict"].update(headline="the cause is not in these logs"),
    "established, and no rank is at fault": lambda d: d["verdict"].update(category="hang", culprit={"ranks": []}),
    "rank 2 of a job of 2": lambda d: d["job"].update(world_size=2),
    "is on node-x, not on": lambda d: (d["ranks"][0].update(host="node-x"), d["chain"][0].update(entity={"rank": d["ranks"][0]["rank"], "host": "b"})),
    "is a cause and no culprit": lambda d: d["verdict"]["culprit"].update(ranks=[0]),
    "has no line, and its last line": lambda d: d["ranks"][1].update(state="silent", why="no line in these logs is known to be its own"),
    "rank 1 is listed 2 times": lambda d: d["verdict"].update(collective={"entered": [0, 1], "missing": [1], "elsewhere": {}}),
    "stated 2 times": lambda d: d["verdict"]["because"].extend(d["verdict"]["because"]),
    "cut: ": lambda d: d["verdict"].update(headline="Ranks 0, 1 … (+3 more) failed."),
    "its lines at": lambda d: d["chain"][0].update(time="2026-01-01T00:00:00Z"),
    "printed no reason, and an error": lambda d: (d["verdict"].update(headline="Rank 2 printed no reason."), d["processes"][0].update(error={"source": "a", "line": 1})),
}  # fmt: skip


@pytest.mark.parametrize("expected", PLANTED)
def test_a_contradiction_is_found(expected: str) -> None:
    document: Any = copy.deepcopy(solved(SAMPLES / "host-oom-cache-of-rank-2").document)
    assert list(contradictions(document)) == []
    PLANTED[expected](document)
    assert any(expected in found for found in contradictions(document))
    assert expected in report.render_verbose(Case(document))


def test_a_document_of_another_version_is_not_checked() -> None:
    assert "not checked" in report.render_verbose(Case({"verdict": {}}))
