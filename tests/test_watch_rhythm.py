"""When a run stands still: simulated runs, by the second. No process, no clock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postmortem.live.watch import activity, phases
from postmortem.live.watch.activity import Snapshot
from postmortem.live.watch.rhythm import Activity, Judge, Rhythm, Settings

DEAD, WORKS, SPINS = None, Activity("works"), Activity("spins", strong=False)


def watch(
    steps: Iterable[int],
    until: int,
    sign: Activity | None = DEAD,
    phase: str = "",
    settings: Settings = Settings(),
) -> int | None:
    """The second in which a run is called still, whose steps come in these seconds."""
    rhythm = Rhythm(settings)
    judge: Judge[int] = Judge(rhythm, lambda: 0, lambda *_: sign)
    judge.begin(0.0, phases.START)
    coming = set(steps)
    for now in range(1, until):
        moved = now in coming
        rhythm.begun = rhythm.begun or moved
        if judge.tick(float(now), moved, phase if rhythm.begun else phases.START) == "still":
            return now
    return None


def test_a_run_that_stops_is_called_still_after_its_patience_and_two_looks() -> None:
    """Steps every second until 100; then nothing moves, and nobody shows a sign of life."""
    assert watch(range(100), 400) == 99 + 60 + 5


def test_slow_steps_make_a_patient_watch() -> None:
    """A step takes 50 s. Four times that is silent before anybody looks."""
    assert watch(range(50, 1001, 50), 2000) == 1000 + 200 + 5


def test_the_longest_earlier_quiet_counts_once_it_was_seen() -> None:
    """Something unannounced takes 55, then 80 s: what was survived once may come again, half as long again."""
    steps = [*range(100), *range(155, 200), *range(280, 300)]
    assert watch(steps, 280) is None
    assert watch(steps, 900) == 299 + 122 + 5  # 1.5 times 81 s


def test_before_the_first_step_nobody_knows_the_rhythm() -> None:
    """Five times the patience: a model is loaded, a first step compiled."""
    assert watch([], 299) is None
    assert watch([], 400) == 300 + 5


def test_a_phase_that_may_be_silent_has_five_times_the_patience() -> None:
    assert watch(range(100), 390, phase="evaluation") is None
    assert watch(range(100), 500, phase="evaluation") == 99 + 300 + 5


def test_who_works_is_believed_for_ten_times_the_patience_and_who_spins_for_five() -> None:
    """A rank that uses CPU time at one and the same line may compute, or spin in a collective for ever."""
    assert 99 + 300 <= (watch(range(100), 2000, sign=SPINS) or 0) <= 99 + 300 + 40
    assert 99 + 600 <= (watch(range(100), 2000, sign=WORKS) or 0) <= 99 + 600 + 40


def test_after_work_a_short_rest_is_no_hang() -> None:
    """It computes for 90 s without a word, waits 15 s for data, goes on: each look sees something else."""
    rhythm = Rhythm(Settings())
    clock = [0.0]
    judge: Judge[int] = Judge(rhythm, lambda: 0, lambda *_: WORKS if clock[0] < 190 else None)
    judge.begin(0.0, "")
    rhythm.begun = True
    states = set()
    for now in range(1, 300):
        clock[0] = float(now)
        states.add(judge.tick(float(now), now < 100 or now > 205, ""))
    assert "alive" in states and "still" not in states


def test_what_moves_again_is_moving_and_the_quiet_is_remembered() -> None:
    rhythm = Rhythm(Settings())
    judge: Judge[int] = Judge(rhythm, lambda: 0, lambda *_: None)
    judge.begin(0.0, "")
    rhythm.begun = True
    seen = [judge.tick(float(now), now < 50 or now > 200, "") for now in range(1, 260)]
    assert "still" in seen and seen[-1] == "moving"
    assert rhythm.patience("") == pytest.approx(1.5 * 152)


def test_a_stack_in_a_compiler_names_the_phase_that_no_line_did() -> None:
    rhythm = Rhythm(Settings())
    judge: Judge[int] = Judge(rhythm, lambda: 0, lambda *_: None, lambda _: "compile")
    judge.begin(0.0, "")
    rhythm.begun = True
    still = [now for now in range(1, 500) if judge.tick(float(now), now < 2, "") == "still"]
    assert still[0] >= 300


@given(
    gaps=st.lists(st.integers(1, 59), min_size=1, max_size=60),
    factor=st.floats(1, 10),
)
def test_a_run_never_silent_for_longer_than_the_patience_is_never_called_still(gaps: list[int], factor: float) -> None:
    """Whatever its steps look like, and without any sign of life."""
    steps, at = [], 0
    for gap in gaps:
        at += gap
        steps.append(at)
    assert watch(steps, at + 1, settings=Settings(factor=factor)) is None


@given(gaps=st.lists(st.integers(1, 300), min_size=1, max_size=40), phase=st.sampled_from(["", "data"]))
def test_a_dead_run_is_always_called_still_in_the_end(gaps: list[int], phase: str) -> None:
    """Patience is bounded by what was seen: ten times the longest quiet is more than enough."""
    steps, at = [], 0
    for gap in gaps:
        at += gap
        steps.append(at)
    rhythm = Rhythm(Settings())
    judge: Judge[int] = Judge(rhythm, lambda: 0, lambda *_: None)
    judge.begin(0.0, phases.START)
    coming = set(steps)
    for now in range(1, at + 1):
        rhythm.begun = True
        judge.tick(float(now), now in coming, phase)
    limit = at + 10 * max(300, max(gaps))
    assert any(judge.tick(float(now), False, phase) == "still" for now in range(at + 1, limit))


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Saving checkpoint to /ckpt/step_1000", "checkpoint"),
        ("checkpoint saved in 31.2 s", ""),
        ("saved model to out/", ""),
        ("Evaluating on 5000 samples", "evaluation"),
        ("***** Running evaluation *****", "evaluation"),
        ("evaluation finished: accuracy 0.81", ""),
        ("compiling the model with inductor", "compile"),
        ("Downloading shards:  12%|", "data"),
        ("initializing process group backend=nccl", phases.START),
        ("epoch 0 step 15 loss 2.2822", ""),
        ("validation step 31 of 400", "evaluation"),
    ],
)
def test_the_phase_that_a_line_announces(line: str, phase: str) -> None:
    assert phases.of_line(line) == phase


def test_the_phase_that_a_stack_stands_in() -> None:
    main = ("train.py", 90, "main")
    assert phases.of_frames([("torch/_inductor/codecache.py", 12, "load"), main]) == "compile"
    assert phases.of_frames([("train.py", 12, "Trainer.evaluate"), main]) == "evaluation"
    assert phases.of_frames([("train.py", 12, "save_checkpoint"), main]) == "checkpoint"
    assert phases.of_frames([("train.py", 12, "load_batch"), main]) == ""


@given(st.text(max_size=400))
def test_any_line_can_be_asked_for_its_phase(line: str) -> None:
    phases.of_line(line)


# ── signs of life ───────────────────────────────────────────────────────────────────────────────────────────

LINE_40 = (("train.py", 40, "evaluate"), ("train.py", 90, "main"))
LINE_41 = (("train.py", 41, "evaluate"), ("train.py", 90, "main"))
ELSEWHERE = (("train.py", 12, "step"), ("train.py", 91, "main"))


def sight(cpu: float = 0.0, frames: tuple = (), **more: object) -> Snapshot:
    base: dict = {"rank": 0, "state": "S", "cpu": cpu, "frames": frames}
    fields = base | dict.fromkeys(("wanted", "moved", "faults", "wakes"), 0)
    return Snapshot(**(fields | more))


@pytest.mark.parametrize(
    ("before", "after", "alive"),
    [
        (sight(), sight(), None),  # nothing at all
        (sight(frames=LINE_40), sight(cpu=4.0, frames=LINE_41), True),  # it computes
        (sight(frames=LINE_40), sight(cpu=0.05, frames=LINE_41), None),  # it polls, once a second
        (sight(frames=LINE_40), sight(cpu=4.0, frames=LINE_40), False),  # one long call, or a spin
        (sight(frames=LINE_40), sight(cpu=5.0, frames=LINE_40, collective="all_reduce"), None),  # NCCL spins
        (sight(frames=LINE_40), sight(frames=ELSEWHERE), True),  # it got on
        (sight(), sight(moved=5 << 20), True),  # a checkpoint grows
        (sight(), sight(faults=500), True),  # a mapped file is read
        (sight(), sight(wakes=500), False),  # a download trickles in
        (sight(frames=LINE_40), sight(wakes=500, frames=LINE_40), False),
        (sight(frames=LINE_40), sight(wakes=500, frames=LINE_40, collective="barrier"), None),
        (sight(frames=LINE_40), sight(cpu=9.0, frames=LINE_41, state="T"), None),  # stopped by a signal
        (sight(), sight(cpu=4.0), False),  # no tool may look at its stack
        (sight(wanted=2.0), sight(wanted=6.0), False),  # others have the processor
        (sight(child=True), sight(cpu=4.0, child=True), True),  # a loader's worker is busy
    ],
)
def test_what_counts_as_a_sign_of_life(before: Snapshot, after: Snapshot, alive: bool | None) -> None:
    found = activity.compare({7: before}, {7: after}, 5.0)
    assert (found.strong if found else None) == alive


def test_a_new_process_is_a_sign_of_life() -> None:
    assert activity.compare({}, {7: sight()}, 5.0)
