"""When a run hangs: simulated runs, second by second. No process, no clock. And the analysis of the folder
that `watch` writes: stacks at one moment, and the time without progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import table
from postmortem import analyze
from postmortem.live.collect.rank_search import Rank
from postmortem.live.watch import activity, hang_folder
from postmortem.live.watch.activity import Snapshot
from postmortem.live.watch.hang_folder import Hang
from postmortem.live.watch.rhythm import START, Activity, Judge, Rhythm, Settings, phase_of_frames, phase_of_line

WORKS, SPINS = Activity("works"), Activity("spins", strong=False)


def simulate(
    steps: Collection[int],
    until: int,
    found: Activity | Callable[[int], Activity | None] | None = None,
    phase: str = "",
    stack: str = "",
    begun: bool = False,
    settings: Settings = Settings(),
) -> tuple[int | None, set[str], Rhythm]:
    """Return the second in which a run with these steps is called still, all states, and its rhythm."""
    rhythm, clock, first, states = Rhythm(settings), [0], None, set()
    judge: Judge[int] = Judge(
        rhythm, lambda: 0, lambda *_: found(clock[0]) if callable(found) else found, lambda _: stack
    )
    judge.begin(0.0, "" if begun else START)
    rhythm.begun = begun
    for now in range(1, until):
        clock[0] = now
        rhythm.begun = rhythm.begun or now in steps
        states.add(judge.tick(float(now), now in steps, phase if rhythm.begun else START))
        if judge.state == "still" and first is None:
            first = now
    return first, states, rhythm


def still(steps: Collection[int], until: int, **more: object) -> int | None:
    return simulate(steps, until, **more)[0]  # type: ignore[arg-type]


def test_patience_is_as_long_as_the_run_was_quiet_before() -> None:
    assert still(range(100), 400) == 99 + 60 + 5  # two looks without activity
    assert still(range(50, 1001, 50), 2000) == 1000 + 4 * 50 + 5  # slow steps
    steps = [*range(100), *range(155, 200), *range(280, 300)]  # quiet for 55 s, then for 81 s
    assert still(steps, 280) is None
    assert still(steps, 900) == 299 + 122 + 5  # 1.5 times 81 s


def test_the_start_and_a_named_phase_have_five_times_the_patience() -> None:
    assert still([], 400) == 300 + 5
    assert still(range(100), 500, phase="evaluation") == 99 + 300 + 5
    assert (still([1], 500, stack="compile", begun=True) or 0) >= 300  # the stack names it


def test_work_prevents_a_hang_for_ten_times_the_patience_and_a_spin_for_five() -> None:
    """A rank that uses CPU time at the same line may compute, or spin in a collective without end."""
    assert 99 + 300 <= (still(range(100), 2000, found=SPINS) or 0) <= 99 + 300 + 40
    assert 99 + 600 <= (still(range(100), 2000, found=WORKS) or 0) <= 99 + 600 + 40


def test_a_short_rest_after_work_is_no_hang() -> None:
    """It computes for 90 s without output, waits 15 s for data, and goes on."""
    steps = {*range(100), *range(206, 300)}
    _, states, _ = simulate(steps, 300, lambda now: WORKS if now < 190 else None, begun=True)
    assert "alive" in states and "still" not in states


def test_a_run_that_moves_again_is_moving_and_its_quiet_is_remembered() -> None:
    first, states, rhythm = simulate({*range(50), *range(201, 260)}, 260, begun=True)
    assert first and "moving" in states
    assert rhythm.patience("") == pytest.approx(1.5 * 152)


@settings(max_examples=30)
@given(gaps=st.lists(st.integers(1, 59), min_size=1, max_size=60), factor=st.floats(1, 10))
def test_a_run_never_quiet_for_longer_than_the_patience_never_hangs(gaps: list[int], factor: float) -> None:
    steps = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    assert still(steps, steps[-1] + 1, settings=Settings(factor=factor)) is None


@settings(max_examples=30)
@given(gaps=st.lists(st.integers(1, 300), min_size=1, max_size=40), phase=st.sampled_from(["", "data"]))
def test_a_dead_run_is_called_still_in_the_end(gaps: list[int], phase: str) -> None:
    steps = {sum(gaps[: n + 1]) for n in range(len(gaps))}
    limit = max(steps) + 10 * max(300, *gaps)
    assert "still" in simulate(steps, limit, phase=phase)[1]


def test_the_phase_that_a_line_or_a_stack_names() -> None:
    for line, phase in table("watch_rhythm")["phases"].items():
        assert phase_of_line(line) == phase
    main = ("train.py", 90, "main")
    assert phase_of_frames([("torch/_inductor/codecache.py", 12, "load"), main]) == "compile"
    assert phase_of_frames([("train.py", 12, "Trainer.evaluate"), main]) == "evaluation"
    assert phase_of_frames([("train.py", 12, "save_checkpoint"), main]) == "checkpoint"
    assert phase_of_frames([("train.py", 12, "load_batch"), main]) == ""


FRAMES = {
    **{f"line {n}": (("train.py", n, "evaluate"), ("train.py", 90, "main")) for n in (40, 41)},
    "elsewhere": (("train.py", 12, "step"), ("train.py", 91, "main")),
}


def snapshot(frames: str = "", **more: object) -> Snapshot:
    fields = {"rank": 0, "state": "S", "cpu": 0.0, "frames": FRAMES.get(frames, ()), "wanted": 0, "moved": 0}
    return Snapshot(**({"faults": 0, "wakes": 0} | fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after", "strong"), table("watch_rhythm")["looks"])
def test_activity_between_two_looks(before: dict[str, Any], after: dict[str, Any], strong: bool | None) -> None:
    found = activity.compare({7: snapshot(**before)}, {7: snapshot(**after)}, 5.0)
    assert (found.strong if found else None) == strong
    assert activity.compare({}, {7: snapshot(**after)}, 5.0), "a new process"


STACK = """\
Process {pid}: /opt/venv/bin/python -u train.py
Python v3.11.7 (/opt/venv/bin/python3.11)

Thread {pid} (idle): "MainThread"
    {top} (torch/distributed/distributed_c10d.py:3004)
    train (train.py:{line})
    <module> (train.py:60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two ranks in all_reduce, as `watch` saves them."""
    folder = tmp_path / "standstill-1"
    found = [Rank(n, 700 + n, 1, 0, "S", 0.0, "RANK", "") for n in (0, 1)]
    monkeypatch.setattr(hang_folder, "_save_stacks", lambda *_: {})
    assert hang_folder.save(folder, found, Hang(64.0, 1.2, "step 9", 2)) == []
    write_stacks(folder, "all_reduce", 41)
    return folder


def write_stacks(folder: Path, top: str, line: int) -> None:
    for pid in (700, 701):
        (folder / f"rank{pid - 700}.pid{pid}.stack.txt").write_text(STACK.format(pid=pid, top=top, line=line))


def headline(folder: Path) -> str:
    return analyze([str(folder)]).document["verdict"]["headline"]


def test_all_ranks_in_one_call_hang_only_without_progress(folder: Path) -> None:
    """Most stacks of a job at work are in a collective too."""
    assert headline(folder).startswith("Both ranks waited in all_reduce (train.py:41): none was missing or late")
    write_stacks(folder, "recv", 71)
    assert headline(folder).startswith("Both ranks waited in recv (train.py:71), and none sent")
    (folder / "run.jsonl").unlink()
    assert analyze([str(folder)]).document["verdict"]["category"] is None


def test_the_rank_elsewhere_is_named_with_its_code(folder: Path) -> None:
    text = STACK.format(pid=701, top="x", line=17).replace("    x (torch/distributed/distributed_c10d.py:3004)\n", "")
    (folder / "rank1.pid701.stack.txt").write_text(text)
    assert "Rank 1" in headline(folder) and "train.py:17" in headline(folder)


def test_a_stopped_rank_outweighs_its_stack(folder: Path) -> None:
    message = "rank 1 (pid 701) is stopped by a signal: state T"
    with (folder / "run.jsonl").open("a") as file:
        record = {"time": "2026-11-23T10:00:00.000000Z", "host": "n", "event": "waits", "message": message}
        file.write(json.dumps(record) + "\n")
    found = analyze([str(folder)]).document["verdict"]
    assert "was stopped by a signal" in found["headline"] and found["culprit"]["ranks"] == [1]
    assert "kill -CONT" in found["actions"][0]["text"]


def test_without_stacks_a_hang_names_no_rank(folder: Path) -> None:
    for path in folder.glob("*.stack.txt"):
        path.unlink()
    found = analyze([str(folder)]).document["verdict"]
    assert found["outcome"] == "incident" and found["category"] == "hang" and not found["culprit"]["ranks"]
    assert "no rank made progress for 64 s" in found["headline"]


def test_the_kernels_view_of_a_rank_is_a_sentence(tmp_path: Path) -> None:
    rank = Rank(3, 4711, 1, 0, "S", 0.0, "RANK", "")
    path = tmp_path / "rank3.pid4711.process.txt"
    for state, sentence in table("watch_verdict")["states"].items():
        path.write_text(
            f"==> /proc/4711/status <==\nName:\tpython\nState:\t{state}\n"
            "==> /proc/4711/wchan <==\npipe_read\n==> /proc/4711/syscall <==\n232 0x5 0x7f 0x1\n"
        )
        assert hang_folder._kernel_wait(tmp_path, rank) == f"rank 3 (pid 4711) is {sentence}"
    path.unlink()
    assert hang_folder._kernel_wait(tmp_path, rank) == ""
