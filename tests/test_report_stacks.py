"""The place of each rank on the page: py-spy of all ranks of a real hang."""

from __future__ import annotations

from conftest import SAMPLES, solved
from postmortem import report
from postmortem.report import groups


def test_two_stacks_that_differ_are_in_the_card_the_page_and_the_markdown() -> None:
    incident = solved(SAMPLES / "skipped-collective")
    document = incident.document
    odd, rest = groups.compared(document)
    assert (odd.who, odd.place, odd.inside) == ("rank 1", "main (train.py:30)", "in barrier")
    assert (rest.who, rest.place, rest.inside) == ("ranks 0, 2", "main (train.py:24)", "in all_reduce")
    assert groups.compared(document | {"verdict": document["verdict"] | {"category": "host-oom"}}) == []
    assert 'id="stacks"' in report.render_html(incident)
    assert "- rank 1: `main (train.py:30)` in barrier (py-spy, " in report.render_markdown(incident)


def test_frames_of_libraries_are_folded_and_counted() -> None:
    odd, *_ = groups.stacks(solved(SAMPLES / "starving-loader").document)
    folded, *own = odd.frames
    assert folded.label == "9 frames of selectors, multiprocessing, torch" and len(folded.lines) == 9
    assert [f.label for f in own] == ["main (train.py:39)", "call (trainer.py:254)", "<module> (train.py:46)"]


def test_stacks_of_a_malformed_document_cause_no_error() -> None:
    frames = [{"frames": 3, "ranks": "a"}, {"ranks": 7}], [{"frames": [{"own": True}], "pids": [None]}]
    for odd in (None, 7, "x", [7], *frames):
        assert all(stack.who for stack in groups.stacks({"stacks": odd}))
