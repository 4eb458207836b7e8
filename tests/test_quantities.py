"""Numbers of the document: slow ranks, losses, memory; the matrix of a hang."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from quantities import run_of

from conftest import SAMPLES
from postmortem import report
from postmortem.analyze import analyze
from postmortem.report import bars


def stragglers(folder: Path, **how: Any) -> dict[int, int | None]:
    """Each slow rank, and the step since which it is."""
    found = analyze(str(run_of(folder, **how))).document.get("quantities", {})
    return {row["rank"]: row["since_step"] for row in found["pace"]["stragglers"]} if "pace" in found else {}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"slow": {2: 1.8}}, {2: None}),
        ({"slow": {2: 1.8}, "since": 12}, {2: 12}),
        ({"slow": {0: 1.5}, "ranks": 3, "line": "iter {step} loss {loss} compute_ms={ms:.1f}"}, {0: None}),
        ({"slow": {1: 1.6}, "line": "step {step} loss {loss} {own:.2f}s/it"}, {1: None}),
        ({"slow": {1: 2.0}, "line": "step {step} loss {loss}", "alone": True}, {1: None}),
        ({"slow": {3: 2.0, 7: 1.5}, "ranks": 8}, {3: None, 7: None}),
    ],
)
def test_a_rank_that_is_slow_in_most_steps_is_named(
    tmp_path: Path, how: dict[str, Any], expected: dict[int, int | None]
) -> None:
    assert stragglers(tmp_path, **how) == expected


def noisy(rank: int, step: int, source: random.Random) -> float:
    return 0.5 * source.lognormvariate(0, 0.7)


def at_times(rank: int, step: int, source: random.Random) -> float:
    return 1.5 if rank == 2 and step % 4 == 0 else 0.5


def coarse(rank: int, step: int, source: random.Random) -> float:
    return 0.16 if rank == 3 else 0.14


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"slow": {2: 1.15}},
        {"slow": {2: 1.8}, "steps": 8},
        {"slow": {1: 1.8}, "ranks": 2},
        {"slow": {2: 1.8}, "since": 30},
        {"slow": {2: 1.8, 3: 1.8}},  # a different task of half of the ranks
        {"slow": {2: 1.8}, "line": "step {step} loss {loss} step_time {whole:.3f}"},  # all wait for the slow rank
        {"slow": {2: 1.8}, "line": "step {step} loss {loss}"},
        {"own": noisy, "steps": 12},
        {"own": at_times},
        {"own": coarse, "line": "step {step} loss {loss} fwd {own:.1f}s"},  # 0.2 and 0.1
    ],
)
def test_no_rank_is_named_where_the_logs_do_not_show_it(tmp_path: Path, how: dict[str, Any]) -> None:
    assert not stragglers(tmp_path, **how)


def test_the_first_loss_that_is_not_a_number_is_marked(tmp_path: Path) -> None:
    document = analyze(str(run_of(tmp_path, nan=30))).document
    losses = document["quantities"]["losses"]
    assert (losses["first_nan"], losses["at"]["line"]) == (30, 31)
    assert losses["loss"][29:31] == [3.275, None] and losses["grad_norm"][29:31] == [0.98, None]
    chart = bars.losses(document)
    assert chart is not None and chart.mark == pytest.approx(100 * 30 / 39, abs=0.01)


def test_memory_is_that_of_the_process_that_was_killed() -> None:
    """The log has the reports on three jobs of the host."""
    document = analyze(str(SAMPLES / "spawn-oom-beside-other-jobs" / "logs")).document
    shown = [(bar.label, bar.number) for bar in bars.memory(document)]
    assert shown[:2] == [("memory cgroup", "1,536,000 of 1,536,000 kB"), ("python (pid 8552)", "1016 MiB")]


def test_memory_of_a_gpu_is_in_the_message_of_torch() -> None:
    document = analyze(str(SAMPLES / "gpu-out-of-memory" / "logs")).document
    assert [bar.label for bar in bars.memory(document)][:2] == ["GPU 0", "GPU 0: this process"]


def test_the_odd_rank_is_the_first_row_of_a_hang() -> None:
    hang = analyze(str(SAMPLES / "skipped-collective" / "logs")).document["hang"]
    first, *others = hang["rows"]
    assert first["ranks"] == [1] and first["cells"][0]["place"] == "missing"
    assert sorted(rank for row in others for rank in row["ranks"]) == [0, 2]
    assert hang["text"].startswith(
        "Ranks 0 and 2 wait in all_reduce #23 of the default group; rank 1 did not enter it;"
    )


def test_thousand_ranks_are_few_rows(tmp_path: Path) -> None:
    """Watchdogs of 1,024 ranks; rank 700 is one collective behind."""
    line = (
        "[rank{r}]:[E1121 13:24:40.000000000 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {r}] "
        "Exception (either an error or timeout) detected by watchdog at work: {n}, last enqueued NCCL work: {n}, "
        "last completed NCCL work: {done}."
    )
    for r in range(1024):
        n = 807 if r == 700 else 808
        (tmp_path / f"rank{r}.log").write_text(line.format(r=r, n=n, done=n - 1) + "\n")
    found = analyze(str(tmp_path))
    assert [len(row["ranks"]) for row in found.document["hang"]["rows"]] == [1, 1023]
    assert len(report.render_html(found)) < 1_000_000
