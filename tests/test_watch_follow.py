"""What `watch` reads of files that grow, rotate, appear and are cut short; and what a line counts for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from postmortem.errors import PathMissing
from postmortem.library import load
from postmortem.live.collect import here
from postmortem.live.collect.ranks import Rank
from postmortem.live.watch import board, follow, local_ranks, phases
from postmortem.live.watch.board import Board
from postmortem.live.watch.follow import Follower
from postmortem.live.watch.rhythm import Rhythm, Settings


def said(follower: Follower) -> bytes:
    """Everything new, looking at the folders as well."""
    follower._due = 0.0
    return b"".join(piece.text for piece in follower.new())


def steps(first: int, last: int) -> str:
    return "".join(f"2026-11-23 10:00:{n % 60:02},000 INFO step {n} loss 0.5\n" for n in range(first, last))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def test_only_whole_new_lines_are_read(logs: Path) -> None:
    log = logs / "rank0.log"
    log.write_text(steps(0, 30))
    follower = Follower([str(logs)])
    assert said(follower) == steps(0, 30).encode()
    assert said(follower) == b""
    with log.open("a") as file:
        file.write("step 30 lo")
        file.flush()
        assert said(follower) == b""
        file.write("ss 0.1\nstep 31")
    assert said(follower) == b"step 30 loss 0.1\n"


def test_a_file_that_is_renamed_is_read_on_and_its_successor_from_the_beginning(logs: Path) -> None:
    """logrotate without copytruncate, or Python's RotatingFileHandler."""
    log = logs / "rank0.log"
    log.write_text(steps(0, 30))
    follower = Follower([str(logs)])
    said(follower)
    with log.open("a") as file:
        file.write("the last line before\n")
    log.rename(logs / "rank0.log.1")
    log.write_text("the first line after\n")
    assert sorted(said(follower).splitlines()) == [b"the first line after", b"the last line before"]


def test_a_file_that_is_copied_and_cut_is_read_anew_and_its_copy_is_old(logs: Path) -> None:
    """logrotate's copytruncate."""
    log = logs / "rank0.log"
    log.write_text(steps(0, 30))
    follower = Follower([str(logs)])
    said(follower)
    (logs / "rank0.log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    with log.open("a") as file:
        file.write("after the cut\n")
    first = said(follower)
    assert said(follower) + first == b"after the cut\n"


def test_a_file_that_was_cut_and_grew_beyond_is_known_by_its_beginning(logs: Path) -> None:
    log = logs / "rank0.log"
    log.write_text(steps(0, 10))
    follower = Follower([str(logs)])
    said(follower)
    log.write_text(steps(100, 140))
    assert said(follower) == steps(100, 140).encode()


def test_files_and_folders_may_come_later_and_go(logs: Path) -> None:
    follower = Follower([str(logs)])
    assert said(follower) == b""
    (logs / "attempt_0").mkdir()
    (logs / "attempt_0" / "rank3.log").write_text("here I am\n")
    assert said(follower) == b"here I am\n"
    (logs / "attempt_0" / "rank3.log").unlink()
    assert said(follower) == b"" and not follower.known


def test_a_path_that_is_not_there_is_told_at_once(logs: Path) -> None:
    with pytest.raises(PathMissing):
        Follower([str(logs / "nosuch")])


def test_of_what_was_there_before_only_the_end_is_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and ordinary lines cost neither time nor memory; the first ones tell how lines are built."""
    monkeypatch.setattr(follow, "TAIL", 2000)
    (logs / "rank0.log").write_text(steps(0, 5000))
    follower = Follower([str(logs)])
    (piece,) = follower.new()
    assert piece.old and len(piece.text) <= 2000 and b"step 4999 " in piece.text
    assert piece.head.startswith(b"2026-11-23 10:00:00,000 INFO step 0 ") and len(piece.head) <= follow.HEAD


def test_a_flood_is_read_from_its_end(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PIECE", 1000)
    log = logs / "rank0.log"
    log.write_text(steps(0, 3))
    follower = Follower([str(logs)])
    said(follower)
    with log.open("a") as file:
        file.write(steps(3, 4000))
    text = said(follower)
    assert len(text) <= 1000 and b"step 3999 " in text


def test_a_line_without_an_end_is_bounded(logs: Path) -> None:
    log = logs / "rank0.log"
    log.write_text("x\n")
    follower = Follower([str(logs)])
    said(follower)
    with log.open("a") as file:
        file.write("y" * (3 * follow.LINE))
    said(follower)
    assert all(len(file.rest) <= follow.LINE for file in follower._files.values())


def test_no_file_stays_open(logs: Path) -> None:
    for n in range(20):
        (logs / f"rank{n}.log").write_text(steps(0, 3))
    before = len(list(Path("/proc/self/fd").iterdir()))
    follower = Follower([str(logs)])
    said(follower)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────


class Run:
    """A log that grows, and the board that reads it."""

    def __init__(self, logs: Path) -> None:
        self.log = logs / "rank0.log"
        self.log.write_text("")
        self.follower = Follower([str(logs)])
        self.board = Board(load())

    def prints(self, *lines: str) -> bool:
        with self.log.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
        self.follower._due = 0.0
        now = time.monotonic()
        moved = [self.board.read(piece, now, time.time()) for piece in self.follower.new()]
        return any(moved)


def test_a_step_is_progress_and_the_same_step_again_is_none(logs: Path) -> None:
    run = Run(logs)
    assert run.prints("epoch 0 step 1 loss 0.5")
    assert run.prints("epoch 0 step 2 loss 0.4")
    assert run.board.rows["rank 0"].step == 2
    assert not run.prints("epoch 0 step 2 loss 0.4")


def test_the_same_words_again_and_again_are_no_progress(logs: Path) -> None:
    """A rank that waits may say so, every few seconds, for ever."""
    run = Run(logs)
    run.prints("epoch 0 step 1 loss 0.5")
    assert run.prints("still waiting for shard 17 (5 s)")
    assert not run.prints("still waiting for shard 17 (10 s)")
    assert not run.prints("still waiting for shard 18 (15 s)")
    assert run.prints("shard 17 has come")


def test_where_no_line_names_a_step_each_is_progress(logs: Path) -> None:
    run = Run(logs)
    assert run.prints("chunk abc") and run.prints("chunk abc") and run.prints("chunk abc")


def test_a_goodbye_of_all_is_the_end(logs: Path) -> None:
    run = Run(logs)
    run.prints("epoch 0 step 1 loss 0.5")
    assert run.board.phase() == ""
    run.prints("Training finished.")
    assert run.board.phase() == board.END


def test_before_the_first_step_it_starts(logs: Path) -> None:
    run = Run(logs)
    run.prints("hello")
    assert run.board.phase() == phases.START


def test_secrets_of_a_line_are_masked(logs: Path) -> None:
    run = Run(logs)
    run.prints("logging in with WANDB_API_KEY=5f2b9c0d1e8a7f6b5c4d3e2f1a0b9c8d7e6f5a4b")
    assert "5f2b9c0d" not in run.board.rows["rank 0"].line


def test_the_rhythm_of_what_was_there_before(logs: Path) -> None:
    """Who begins to watch in the middle knows from the stamps that an evaluation takes 40 s."""
    lines = []
    for n in range(200):
        at = 2 * n + (40 if n >= 100 else 0)
        lines.append(f"2026-11-23 10:{at // 60:02}:{at % 60:02},000 INFO step {n} loss 0.5\n")
    (logs / "rank0.log").write_text("".join(lines))
    rhythm = Rhythm(Settings(patience=10.0))
    for piece in Follower([str(logs)]).new():
        board.learn(rhythm, piece)
    assert rhythm.usual == 2.0 and max(rhythm.longest.values()) == 42.0


# ── whose ranks ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("prints", "written", "ours"),
    [
        ("here", 50.0, True),  # into the log
        ("pipe:[77]", 200.0, True),  # into a pipe, whose other end nobody knows
        ("pipe:[77]", 50.0, False),  # and the log is older than the rank
        ("elsewhere", 200.0, False),  # into a log of another job
    ],
)
def test_which_ranks_are_those_of_the_logs(
    logs: Path, monkeypatch: pytest.MonkeyPatch, prints: str, written: float, ours: bool
) -> None:
    """The logs of a job that is dead, on a host where another one runs: its ranks are not this job's."""
    log, other = logs / "rank0.log", logs.parent / "other.log"
    log.write_text("x\n")
    other.write_text("y\n")
    rank = Rank(0, 4711, 1, 0, "S", 100.0, "RANK", "run-1")
    goes = {"here": str(log), "elsewhere": str(other)}.get(prints, prints)
    monkeypatch.setattr(here, "live", lambda _: ([rank], None))
    monkeypatch.setattr(local_ranks, "outputs", lambda _: {goes})
    found = local_ranks.LocalRanks()
    os.utime(log, (written, written))
    found.look([str(log)], (), 0.0, soon=True)
    assert bool(found.found) == ours
