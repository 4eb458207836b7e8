"""Files that grow, rotate, appear and are truncated, as `watch` reads them; and which lines are progress."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from conftest import table
from postmortem.errors import PathMissing
from postmortem.library import load
from postmortem.live.collect import here
from postmortem.live.collect.rank_search import Rank
from postmortem.live.watch import activity, board, follow, rhythm
from postmortem.live.watch.board import Board
from postmortem.live.watch.follow import Follower
from postmortem.live.watch.rhythm import Rhythm, Settings


def steps(first: int, last: int) -> str:
    return "".join(f"2026-11-23 10:00:{n % 60:02},000 INFO step {n} loss 0.5\n" for n in range(first, last))


class Logs:
    """A folder with a log, and what a follower reads of it."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.log = folder, folder / "rank0.log"
        self.log.write_text(text)
        self.follower = Follower([str(folder)])
        self.board = Board(load())

    def append(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    def new(self) -> bytes:
        """Return everything new, also in new files."""
        self.follower._due = 0.0
        return b"".join(piece.text for piece in self.follower.new())

    def prints(self, *lines: str) -> bool:
        """Append lines; return whether they are progress."""
        self.append("".join(f"{line}\n" for line in lines))
        self.follower._due = 0.0
        now = time.monotonic()
        return sum(self.board.read(piece, now, time.time()) for piece in self.follower.new()) > 0


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """A log with steps 0 to 29, which are read."""
    logs = Logs(tmp_path, steps(0, 30))
    assert logs.new() == steps(0, 30).encode()
    return logs


@pytest.fixture
def empty(tmp_path: Path) -> Logs:
    return Logs(tmp_path, "")


def test_only_complete_new_lines_are_read(logs: Logs) -> None:
    assert logs.new() == b""
    logs.append("step 30 lo")
    assert logs.new() == b""
    logs.append("ss 0.1\nstep 31")
    assert logs.new() == b"step 30 loss 0.1\n"


def test_a_renamed_file_is_read_on_and_its_successor_from_the_beginning(logs: Logs) -> None:
    """logrotate without copytruncate, or Python's RotatingFileHandler."""
    logs.append("the last line before\n")
    logs.log.rename(logs.folder / "rank0.log.1")
    logs.log.write_text("the first line after\n")
    assert sorted(logs.new().splitlines()) == [b"the first line after", b"the last line before"]


def test_a_truncated_file_is_read_again_and_its_copy_is_old(logs: Logs) -> None:
    """logrotate's copytruncate; or a file that grew beyond its earlier size since."""
    (logs.folder / "rank0.log.1").write_bytes(logs.log.read_bytes())
    os.truncate(logs.log, 0)
    logs.append("after the cut\n")
    first = logs.new()
    assert logs.new() + first == b"after the cut\n"
    logs.log.write_text(steps(0, 10))
    logs.new()
    logs.log.write_text(steps(100, 140))
    assert logs.new() == steps(100, 140).encode()


def test_files_and_folders_may_appear_and_disappear(tmp_path: Path) -> None:
    with pytest.raises(PathMissing):
        Follower([str(tmp_path / "nosuch")])
    logs = Logs(tmp_path, "")
    late = tmp_path / "attempt_0" / "rank3.log"
    late.parent.mkdir()
    late.write_text("here I am\n")
    assert logs.new() == b"here I am\n"
    late.unlink()
    assert logs.new() == b"" and logs.follower.known == [str(logs.log)]


def test_of_existing_files_and_of_floods_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old lines cost neither time nor memory; the first ones show the line format."""
    monkeypatch.setattr(follow, "TAIL", 2000)
    logs = Logs(tmp_path, steps(0, 5000))
    (piece,) = logs.follower.new()
    assert piece.old and len(piece.text) <= 2000 and b"step 4999 " in piece.text
    assert piece.head.startswith(b"2026-11-23 10:00:00,000 INFO step 0 ") and len(piece.head) <= follow.HEAD
    monkeypatch.setattr(follow, "PIECE", 1000)
    logs.append(steps(5000, 9000))
    assert len(text := logs.new()) <= 1000 and b"step 8999 " in text


def test_a_line_without_an_end_is_bounded(logs: Logs) -> None:
    """It waits for its end up to a limit, and is read without it beyond."""
    logs.append("y" * follow.LINE)
    assert logs.new() == b""
    logs.append("y")
    assert logs.new() == b"y" * (follow.LINE + 1)


def test_a_new_step_or_a_new_kind_of_line_is_progress_and_repetitions_are_not(empty: Logs) -> None:
    """A rank that waits may report it every few seconds without end."""
    assert empty.prints("chunk abc") and empty.prints("chunk abc"), "no line has named a step"
    assert empty.prints("epoch 0 step 1 loss 0.5")
    assert empty.prints("epoch 0 step 2 loss 0.4")
    assert empty.board.rows["rank 0"].step == 2
    assert not empty.prints("epoch 0 step 2 loss 0.4")
    assert empty.prints("still waiting for shard 17 (5 s)")
    assert not empty.prints("still waiting for shard 17 (10 s)")
    assert not empty.prints("still waiting for shard 18 (15 s)")
    assert empty.prints("shard 17 has come")


def test_phases_of_a_run_and_its_masked_secrets(empty: Logs) -> None:
    empty.prints("logging in with WANDB_API_KEY=5f2b9c0d1e8a7f6b5c4d3e2f1a0b9c8d7e6f5a4b")
    assert "5f2b9c0d" not in empty.board.rows["rank 0"].line
    assert empty.board.phase() == rhythm.START
    empty.prints("epoch 0 step 1 loss 0.5")
    assert empty.board.phase() == ""
    empty.prints("Training finished.")
    assert empty.board.phase() == board.END


def test_the_rhythm_of_existing_lines_is_learned(tmp_path: Path) -> None:
    """Their timestamps show that an evaluation takes 40 s."""
    seconds = [2 * n + (40 if n >= 100 else 0) for n in range(200)]
    lines = (f"2026-11-23 10:{at // 60:02}:{at % 60:02},000 INFO step {n} loss 0.5\n" for n, at in enumerate(seconds))
    rhythm = Rhythm(Settings(patience=10.0))
    for piece in Logs(tmp_path, "".join(lines)).follower.new():
        board.learn(rhythm, piece)
    assert rhythm.usual == 2.0 and max(rhythm.longest.values()) == 42.0


@pytest.mark.parametrize(("output", "written", "expected"), table("watch_follow")["outputs"])
def test_ranks_of_another_job_on_this_host_are_not_those_of_the_logs(
    empty: Logs, monkeypatch: pytest.MonkeyPatch, output: str, written: float, expected: bool
) -> None:
    (empty.folder / "other.log").touch()
    os.utime(empty.log, (written, written))
    rank = Rank(0, 4711, 1, 0, "S", 100.0, "RANK", "run-1")
    monkeypatch.setattr(here, "live", lambda _: ([rank], None))
    path = str(empty.folder / output) if output.endswith(".log") else output
    monkeypatch.setattr(activity, "outputs", lambda _: {path})
    local = activity.LocalRanks()
    local.look([str(empty.log)], (), 0.0, soon=True)
    assert bool(local.found) == expected
