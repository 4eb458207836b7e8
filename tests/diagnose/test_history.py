"""The attempts of a job: a row for each, and what the verdict on one of them says of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import SAMPLES, solved
from postmortem.analyze import analyze
from postmortem.report import render_markdown, render_terminal

# ── samples ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def life(hour: int, steps: int) -> list[str]:
    says = "2026-11-21 {hour}:{minute:02d}:0{rank},100 INFO [rank{rank}] train: {what}"
    texts = ["rank {rank} of 2 starts", *(f"epoch 0 step {s} loss 2.{s}" for s in range(0, steps * 10, 10))]
    return [
        says.format(hour=hour, minute=minute, rank=rank, what=what.format(rank=rank))
        for minute, what in enumerate(texts)
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("why", ["JOB REQUEUE", "PREEMPTION", "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"])
def test_a_requeued_run_that_finished_has_recovered(why: str, tmp_path: Path) -> None:
    """Slurm appends the output of the second run to the same file. It was healthy once, as if nothing had been."""
    stop = f"slurmstepd: error: *** JOB 1204 ON node-a CANCELLED AT 2026-11-21T10:20:00 DUE TO {why} ***"
    final_lines = [f"2026-11-21 12:30:0{rank},100 INFO [rank{rank}] train: Training finished." for rank in (0, 1)]
    (tmp_path / "slurm-1204.out").write_text("\n".join([*life(10, 6), stop, *life(12, 9), *final_lines]) + "\n")
    document = analyze([str(tmp_path)]).document
    assert (document["verdict"]["outcome"], document["verdict"]["attempt"]) == ("recovered", 0)
    assert document["verdict"]["headline"].startswith("Recovered: in attempt 0 Slurm ")
    assert [(r["outcome"], r["begin"], r["ended"]) for r in document["attempts"]][1] == (
        "healthy", "2026-11-21T12:00:00.100Z", "finished",
    )  # fmt: skip


def test_a_requeued_run_that_fails_shows_both(tmp_path: Path) -> None:
    stop = "slurmstepd: error: *** JOB 1204 ON node-a CANCELLED AT 2026-11-21T10:20:00 DUE TO PREEMPTION ***"
    died = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/work/train.py", line 9, in <module>',
        "[rank1]:     main()",
        "[rank1]: ValueError: bad shard 4",
    ]
    (tmp_path / "slurm-1204.out").write_text("\n".join([*life(10, 6), stop, *life(12, 6), *died]) + "\n")
    document = analyze([str(tmp_path)]).document
    assert document["verdict"]["headline"].startswith("Rank 1 raised ValueError: bad shard 4 in train.py:9")
    assert document["verdict"]["attempt"] == 1
    assert document["attempts"][0]["why"].startswith("Slurm preempted the job")
    assert any(b.startswith("Attempt 0 failed differently (") for b in document["verdict"]["because"])
