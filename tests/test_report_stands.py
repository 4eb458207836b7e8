"""Where the ranks stood, on the page: py-spy of all ranks of a real hang."""

from __future__ import annotations

from pathlib import Path

from conftest import solved
from postmortem import report
from postmortem.report import stands

SAMPLES = Path(__file__).parent.parent / "sample_logs"


def test_the_two_lines_that_differ_stand_in_the_card() -> None:
    document = solved(SAMPLES / "skipped-collective").document
    odd, rest = stands.compared(document)
    assert (odd.who, odd.place, odd.inside) == ("rank 1", "main (train.py:30)", "in barrier")
    assert (rest.who, rest.place, rest.inside) == ("ranks 0, 2", "main (train.py:24)", "in all_reduce")
    assert stands.compared(document | {"verdict": document["verdict"] | {"category": "host-oom"}}) == []


def test_frames_of_libraries_are_folded_and_counted() -> None:
    odd, *_ = stands.stands(solved(SAMPLES / "starving-loader").document)
    folded, *own = odd.frames
    assert folded.said == "9 frames of selectors, multiprocessing, torch" and len(folded.lines) == 9
    assert [f.said for f in own] == ["main (train.py:39)", "call (trainer.py:254)", "<module> (train.py:46)"]


def test_page_and_markdown_show_them() -> None:
    incident = solved(SAMPLES / "skipped-collective")
    assert 'id="stacks"' in report.render_html(incident)
    assert "- rank 1: `main (train.py:30)` in barrier (py-spy, " in report.render_markdown(incident)


def test_stacks_of_a_strange_document_do_no_harm() -> None:
    for odd in (
        None,
        7,
        "x",
        [7],
        [{"frames": 3, "ranks": "a"}, {"ranks": 7}],
        [{"frames": [{"own": True}], "pids": [None]}],
    ):
        found = stands.stands({"stacks": odd})
        assert all(stand.who for stand in found)
