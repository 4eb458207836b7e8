"""Our own verdict in the log of a job, where a recipe, `run` or the hook printed it: it is no evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT, solved
from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.report import render_terminal

SAMPLES = sorted(
    path.parent for path in (ROOT / "sample_logs").glob("*/truth.json") if not path.parent.name.startswith("healthy")
)


@pytest.mark.parametrize("third", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_verdict_on_the_terminal_holds_no_event(third: int) -> None:
    for sample in SAMPLES[third::3]:
        for width, prefix in (
            (80, ""),
            (120, "0: "),
            (80, "[pod/train-0/main] "),
        ):  # srun --label, kubectl logs --prefix
            shown = render_terminal(solved(sample), width=width, color=width == 120, report="/home/me/logs/report.html")
            log = "".join(f"{prefix}{line}\n" for line in shown.splitlines())
            assert not [e for e in read_text(log) if e.kind != "line"], f"{sample.name} {prefix!r}\n{log}"


def test_what_follows_the_verdict_is_evidence_again() -> None:
    verdict = render_terminal(solved(ROOT / "sample_logs" / "oom-on-second-host"))
    lost = "srun: error: node-a: task 3: Out Of Memory"
    (event,) = (e for e in read_text(f"{verdict}{lost}\n") if e.pattern)
    assert (event.text, event.where.line) == (lost, len(verdict.splitlines()) + 1)


def test_a_verdict_that_was_appended_to_a_log_changes_nothing(tmp_path: Path) -> None:
    """As a batch script does: what it prints goes into the output of the job, which is read again."""
    log = tmp_path / "train-1.out"
    log.write_text(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/work/train.py", line 23, in bad_label\n'
        "[rank1]: ValueError: sample 67: label 4711 outside of [0, 10)\n"
        "srun: error: node-a: task 1: Exited with exit code 1\n"
    )
    first = analyze([str(log)])
    with log.open("a") as file:
        file.write(render_terminal(first) * 2)
    before, after = (one.document["verdict"] for one in (first, analyze([str(log)])))
    assert [e["line"] for e in after["evidence"]] == [e["line"] for e in before["evidence"]]
    assert {**after, "evidence": []} == {**before, "evidence": []}
