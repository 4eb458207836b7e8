"""Rows of the table of processes: their ranks, their ends, and requests to stop them."""

from __future__ import annotations

from claims import case, event, exits, final_line, steps


def test_a_process_has_its_steps_its_end_and_how_it_is_known() -> None:
    seen = case(
        *steps(0, 3, 7), final_line(0), *steps(1, 3), *exits(r1=-9), ranks=(0, 1), pids={1: 101}, hosts={1: "a"}
    )
    first, second = seen.processes
    assert (first.first_step, first.last_step, first.finished, first.end) == (3, 7, True, None)
    assert second.end is not None and (second.end.kind, second.pid, second.host) == ("kill", 101, "a")
    assert second.known["rank"].event.where.source == "rank1.log"


def test_a_request_to_stop_is_that_of_its_pid_else_that_of_the_job() -> None:
    asks = event(pattern="launcher-sending-sigterm", pid=9, speaker="launcher", fields={"pid": 101})
    cancel = event(pattern="slurm-cancelled", line=2, speaker="scheduler")
    seen = case(asks, cancel, ranks=(0, 1), pids={1: 101})
    assert [(p.role, p.stop.by if p.stop else None) for p in seen.processes] == [
        ("rank", "scheduler"), ("rank", "launcher"), ("launcher", None),
    ]  # fmt: skip


def test_a_worker_of_a_data_loader_is_a_child_of_the_rank_that_reports_it() -> None:
    lost = event(
        "DataLoader worker (pid 4377) is killed by signal: Killed.", pattern="dataloader-worker-killed", rank=2
    )
    child = case(lost, ranks=(2,)).processes[-1]
    assert (child.role, child.pid, child.parent) == ("dataloader-worker", 4377, 2)
