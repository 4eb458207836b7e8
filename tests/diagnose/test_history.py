"""The attempts of a job have a row each; see data/excerpts/appended_runs.yaml for requeued jobs."""

from __future__ import annotations

from conftest import SAMPLES, solved
from postmortem.report import render_markdown, render_terminal


def test_three_attempts_of_which_two_failed_alike() -> None:
    incident = solved(SAMPLES / "restart-fails-three-times")
    found = [(r["number"], r["ranks"], r["category"], r["ended"]) for r in incident.document["attempts"]]
    assert found == [
        (0, [0], "python-exception", "exit code 1"),
        (1, [], "rendezvous", None),
        (2, [0], "python-exception", "exit code 1"),
    ]
    because = incident.document["verdict"]["because"]
    assert because[0] == "It failed twice in the same way, in attempts 0 and 2."
    where = "torchelastic/job17_ke6swcyd/attempt_1/1/stderr.log:34"
    assert because[1] == f"Attempt 1 failed differently ({where}).", "how is told in its row, once"
    assert incident.document["attempts"][1]["why"].startswith("A gloo peer refused the connection")
    shown = render_terminal(incident)
    assert "  attempts attempt 0, 13:14:15 to 13:14:22: Rank 0 raised RuntimeError" in shown
    last = "| 2 | 13:14:32 | 13:14:41 | The same as attempt 0. (Python exception) | exit code 1 |"
    assert last in render_markdown(incident)
