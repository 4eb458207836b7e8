"""`postmortem watch` beside real ranks: a hang is named while it lasts, and the job is not changed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import secrets
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gathered import HANG, command, document, ranks, state, tool
from run_jobs import environment, wait_for, wrapped

from conftest import SAMPLES, Command, needs
from postmortem.live.collect import subprocesses
from postmortem.live.hooks.postmortem_hook import SIGNAL
from postmortem.live.run import processes
from postmortem.live.run.journal import Journal
from postmortem.live.watch import board, hang_folder
from postmortem.live.watch.board import Row
from postmortem.live.watch.rhythm import Settings
from postmortem.live.watch.watcher import Options, Watch, command_words

QUICK = ("--patience", "4", "--format", "json", "--interval", "1")
WORKS = """\
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(100000):
    batch = torch.ones(4)
    print(f"step {step}", flush=True)
    if step == 3:
        print("waiting", flush=True)
    dist.all_reduce(batch)
    time.sleep(0.2)
"""
COMPUTES = """\
import time, torch
print("waiting", flush=True)
for step in range(40):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
    until = time.monotonic() + (15 if step == 20 else 0)
    while time.monotonic() < until:
        x = torch.randn(80, 80)
        for _ in range(50):
            x = torch.tanh(x @ x)
print("Training finished. waiting", flush=True)
"""


@pytest.fixture
def job() -> str:
    return f"run{secrets.token_hex(6)}"


@contextmanager
def watching(logs: Path, job: str, *more: object, **kinds: Any) -> Iterator[subprocess.Popen[str]]:
    folder = () if "--folder" in more else ("--folder", logs.parent / f"evidence-{secrets.token_hex(4)}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen(command("watch", logs, "--job", job, *more, *folder), **pipes | kinds) as process:
        try:
            yield process
        finally:
            process.kill()


def watched(logs: Path, job: str, *more: object) -> tuple[int, list[dict[str, Any]]]:
    """Watch to the end: the exit code, and the events."""
    with watching(logs, job, *QUICK, *more) as process:
        out, _ = process.communicate(timeout=120)
        return process.returncode, list(map(json.loads, out.splitlines()))


@pytest.mark.slow
@needs("torch", "py-spy")
def test_a_hang_is_named_while_it_lasts(tmp_path: Path, job: str) -> None:
    """Rank 0 waits in all_reduce, rank 1 in load_batch. The user's command gets the paths; the verdict is that of
    `analyze` on the same files; the ranks are not stopped. `--once` finds it too."""
    copy = tmp_path / "copy.json"
    script = tool(tmp_path, "copy.sh", f'#!/bin/sh\nls "$POSTMORTEM_FOLDER"\ncat "$POSTMORTEM_VERDICT" > {copy}\n')
    logs = tmp_path / "job"
    logs.mkdir()
    with ranks(logs, HANG, job) as pids:
        code, events = watched(logs, job, "--exit-code", "--on-hang", script, "--folder", tmp_path / "evidence")
        assert list(map(state, pids)) == ["S", "S"]
        once, short = watched(logs, job, "--once", "--exit-code")
    assert (code, once, short[-1]["event"]) == (10, 10, "hang")
    hang = next(event for event in events if event["event"] == "hang")
    assert hang["ranks"] == [1] and hang["category"] == "hang" and not hang["lacking"]
    assert hang["headline"].startswith("Rank 1 ") and "load_batch" in hang["headline"]
    assert hang["stacks"][0].startswith("rank 1: load_batch (train.py:6)")
    last = [event for event in events if event["event"] == "state"][-1]
    assert {(row["rank"], row["step"]) for row in last["ranks"]} == {(0, 3), (1, 2)}
    folder = Path(hang["folder"])
    assert document(logs, folder)["verdict"]["headline"] == hang["headline"]
    assert json.loads(copy.read_text())["verdict"]["culprit"]["ranks"] == [1]
    assert (folder / "report.html").exists()


@pytest.mark.slow
@needs("torch", "py-spy")
def test_a_stopped_rank_is_named_and_its_evidence_goes_when_it_moves_again(tmp_path: Path, job: str) -> None:
    """Both ranks are at the same line, and only the kernel shows that one is stopped. Later analyses would blame it."""
    options = (*QUICK, "--folder", tmp_path / "evidence")
    with ranks(tmp_path, WORKS, job) as pids, watching(tmp_path, job, *options) as process:
        time.sleep(3)
        os.kill(pids[1], signal.SIGSTOP)
        assert process.stdout
        for event in map(json.loads, process.stdout):
            if event["event"] == "hang":
                assert event["ranks"] == [1] and "was stopped by a signal" in event["headline"]
                os.kill(pids[1], signal.SIGCONT)
            if event["event"] == "resumed":
                break
        process.send_signal(signal.SIGINT)
        process.wait(30)
    folder = tmp_path / "evidence" / "standstill-1"
    assert (folder / "verdict.json").exists()
    assert not list(folder.glob("rank*")) and not (folder / "run.jsonl").exists()
    assert process.returncode == 130


@pytest.mark.slow
@needs("torch")
def test_an_evaluation_without_output_is_no_hang_and_the_end_ends_the_watch(tmp_path: Path, job: str) -> None:
    """Fifteen seconds of computation at a patience of four."""
    with ranks(tmp_path, COMPUTES, job, world=1):
        code, events = watched(tmp_path, job)
    assert code == 0 and not [event for event in events if event["event"] == "hang"]
    assert {event["state"] for event in events if event["event"] == "state"} & {"quiet", "alive"}
    assert events[-1]["event"] == "end"
    assert events[-1]["outcome"] == "all ranks have ended, and reported that they were done"


@pytest.mark.slow
@needs("torch")
def test_one_process_without_threads_or_open_files_that_ctrl_c_ends(tmp_path: Path, job: str) -> None:
    with ranks(tmp_path, WORKS, job), watching(tmp_path, job, *QUICK) as process:
        assert process.stdout
        states = [process.stdout.readline() for _ in range(3)]
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        files = [str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert processes.children(process.pid) == []
        code, events = watched(tmp_path, job, "--once")
    assert code == 0 and [event["event"] for event in events] == ["state"]
    assert len(threads) == 1 and not [name for name in files if name.startswith(str(tmp_path))]
    assert process.returncode == 130 and "Traceback" not in err and all(states)


def test_logs_of_a_job_that_is_gone_lead_to_analyze(tmp_path: Path, job: str) -> None:
    (tmp_path / "rank0.log").write_text("step 1\nstep 2\n[rank0]: ValueError: bad label\n")
    with watching(tmp_path, job, "--once", "--interval", "1") as process:
        assert process.stderr
        first = process.stderr.readline()
    assert (
        first.startswith("The job makes progress; ")
        and "None of its processes is on this host" in first
        and "postmortem analyze" in first
    )
    logs = shutil.copytree(SAMPLES / "host-oom-cache-of-rank-2" / "logs", tmp_path / "over")
    for path in logs.rglob("*"):
        os.utime(path, (1.7e9, 1.7e9))
    code, events = watched(logs, job)
    assert code == 0 and [each["event"] for each in events if each["event"] in ("hang", "end")] == ["end"]
    assert "its launcher reported a failure" in events[-1]["outcome"]


@pytest.mark.slow
@needs("torch")
def test_on_a_terminal_the_rows_are_redrawn_and_the_cursor_comes_back(tmp_path: Path, job: str) -> None:
    """60 columns and 12 lines; Ctrl-C is typed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (12, 60))
    env = {name: value for name, value in environment(TERM="xterm").items() if name != "COLUMNS"}
    terminal = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True, "env": env}
    terminal["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it
    output, typed = b"", False
    with ranks(tmp_path, WORKS, job), watching(tmp_path, job, "--patience", "60", text=False, **terminal) as process:
        os.close(theirs)
        while piece := _read(ours):
            output += piece
            if not typed and output.count(b"rank 1") >= 3:
                os.write(ours, b"\x03")
                typed = True
        process.wait(30)
    os.close(ours)
    assert process.returncode == 130
    text = output.decode()
    assert "\x1b[?25l" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor"
    assert text.count("\x1b[1A") >= 4, "a round is drawn over the last one"
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"[\r\n]+", text)]
    assert max(map(len, lines)) <= 60 and "Traceback" not in text
    assert any(re.match(r"rank 0 +step \d+ +\d+ s  ", line) for line in lines), lines


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the last process has closed it
        return b""


@pytest.mark.slow
@needs("torch")
def test_the_journal_of_a_wrapper_identifies_ranks_and_the_end(tmp_path: Path) -> None:
    """A pipe separates the ranks from the log."""
    script = tmp_path / "train.py"
    script.write_text(COMPUTES.replace("15 if", "0 if"))
    launch = ["env", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", sys.executable, str(script)]
    with subprocess.Popen(wrapped(tmp_path, *launch), env=environment(), stdout=subprocess.DEVNULL):
        (found, *_) = wait_for(lambda: list(tmp_path.glob("runs/*/run.jsonl")))
        code, events = watched(found.parent, "")
    assert code == 0 and events[-1]["outcome"] == "the command ended: exit code 0"
    assert max(event.get("ranks_here", 0) for event in events) == 1


@pytest.mark.slow
@needs("torch")
def test_without_a_tool_only_a_rank_that_catches_the_signal_gets_it(
    tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 registered faulthandler, and writes its stack into its log; rank 0 would die of the signal."""
    monkeypatch.setattr(subprocesses, "program", lambda _: None)
    register = f"import faulthandler, os\nif os.environ['RANK'] == '1':\n    faulthandler.register({SIGNAL})\n"
    logs = tmp_path / "job"
    logs.mkdir()
    with ranks(logs, register + HANG, job) as pids:
        options = Options(Settings(4.0, 4.0, 1.0), form="json", exit_code=True, job=job, folder=tmp_path / "evidence")
        watch = Watch([str(logs)], options)
        assert watch.run() == 10
        watch.close()
        assert list(map(state, pids)) == ["S", "S"]
    hang = next(json.loads(line) for line in capsys.readouterr().out.splitlines() if '"hang"' in line)
    assert [text.partition(" (pid")[0] for text in hang["lacking"]] == ["rank 0", "rank 1"]
    assert "py-spy: not installed" in hang["lacking"][0] and "was asked" in hang["lacking"][1]
    assert "load_batch" in (logs / "rank1.log").read_text()
    assert "is in state S (sleeping)" in (Path(hang["folder"]) / "run.jsonl").read_text()
    assert hang["outcome"] == "incident" and hang["category"] == "hang"


def test_a_second_watch_of_a_run_removes_the_stacks_of_the_first(tmp_path: Path) -> None:
    """They would blame ranks that have gone on since."""
    Journal(tmp_path, "node-a").close()
    first = Watch([str(tmp_path)], Options())._place() / "standstill-1"
    hang_folder.save(first, [], hang_folder.Hang(64.0, 1.0, "step 3"))
    (first / hang_folder.VERDICT).write_text("{}")
    assert (first / "ps.txt").exists()
    second = Watch([str(tmp_path)], Options())
    assert second._place() == tmp_path and second.hangs == 2
    assert [path.name for path in first.iterdir()] == [hang_folder.VERDICT]


def test_wrong_options_are_explained(in_process: Command, tmp_path: Path) -> None:
    assert command_words("scancel '4711 $(reboot)'") == ("scancel", "4711 $(reboot)"), "no shell"
    for words, message in (
        ((tmp_path, "--on-hang", "'open"), "--on-hang"),
        ((tmp_path, "--on-hang", " "), "names no command"),
        ((tmp_path / "nosuch",), "nosuch"),
        (("https://example.com/log",), "follows files"),
    ):
        done = in_process("watch", *words)
        assert done.returncode == 2 and message in done.stderr


def test_the_ranks_behind_come_first_and_the_others_in_one_line() -> None:
    rows = [Row(f"rank {n}", n, step=40, step_at=50.0, line="step 40", line_at=50.0) for n in range(64)]
    rows[17].step, rows[17].line = 39, "step 39"
    rows[5].line_at = 20.0
    lines = board.table(rows, 100.0, 4, 100)
    assert [line.split()[1] for line in lines[:2]] == ["17", "5"]
    assert lines[4:] == ["60 more: step 40, last lines 50 s to 50 s ago"]
    assert [line.split()[1] for line in board.table(rows[:4], 100.0, 4, 100)] == ["0", "1", "2", "3"]
    (line,) = board.table([Row("rank 0", 0, line="\x1b]0;pwned\x07[2J x", line_at=1.0)], 2.0, 4, 200)
    assert "\x1b" not in line and "\x07" not in line
