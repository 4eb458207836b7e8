"""`postmortem watch` beside real ranks: a hang is named while it hangs, and nothing of the job is changed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import secrets
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
from gathered import HANG, ranks, verdict

from conftest import ROOT, Command, needs
from postmortem.live import proc
from postmortem.live.collect import child
from postmortem.live.hooks.postmortem_hook import SIGNAL
from postmortem.live.run import processes
from postmortem.live.run.record import Journal
from postmortem.live.watch import evidence
from postmortem.live.watch.command import Options, Watch, command_words
from postmortem.live.watch.rhythm import Settings

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
QUIET = """\
import time, torch
def crunch():
    until = time.monotonic() + 15
    while time.monotonic() < until:
        x = torch.randn(80, 80)
        for _ in range(50):
            x = torch.tanh(x @ x)
for step in range(40):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
    if step == 20:
        crunch()
print("Training finished. waiting", flush=True)
"""


@pytest.fixture
def job() -> str:
    return f"run{secrets.token_hex(6)}"


def words(logs: Path, job: str, *more: object) -> list[str]:
    kept = () if "--folder" in more else ("--folder", logs.parent / f"kept-{secrets.token_hex(4)}")
    return [sys.executable, "-m", "postmortem", "watch", str(logs), "--job", job, *map(str, (*more, *kept))]


@contextmanager
def watching(logs: Path, job: str, *more: object, **kinds: Any) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | {"PYTHONPATH": str(ROOT)} | kinds.pop("env", {})
    with subprocess.Popen(
        words(logs, job, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **kinds
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def watched(logs: Path, job: str, *more: object, **kinds: Any) -> tuple[int, list[dict], str]:
    """To its end: the exit code, what it told, what it said."""
    with watching(logs, job, *more, **kinds) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.slow
@needs("torch", "py-spy")
def test_a_hang_is_named_while_it_hangs(tmp_path: Path, job: str) -> None:
    """Rank 0 waits in all_reduce, rank 1 in load_batch. A command of the user's is told where to look; the
    verdict is the one that `analyze` gives of the same files; the ranks live, and are not stopped."""
    told = tmp_path / "told"
    script = tmp_path / "tell.sh"
    script.write_text(f'#!/bin/sh\nls "$POSTMORTEM_FOLDER" > {told}\ncat "$POSTMORTEM_VERDICT" > {told}.json\n')
    script.chmod(0o755)
    logs = tmp_path / "job"
    logs.mkdir()
    with ranks(logs, HANG, job) as pids:
        options = (*QUICK, "--exit-code", "--on-hang", script, "--folder", tmp_path / "kept")
        code, records, err = watched(logs, job, *options)
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
        assert states == ["S", "S"]
    assert code == 10, err
    hang = next(record for record in records if record["event"] == "hang")
    assert hang["ranks"] == [1] and hang["category"] == "hang"
    assert hang["headline"].startswith("Rank 1 ") and "load_batch" in hang["headline"]
    assert hang["stacks"][0].startswith("rank 1: load_batch (train.py:6)")
    assert not hang["lacking"]
    state = [record for record in records if record["event"] == "state"][-1]
    assert {(row["rank"], row["step"]) for row in state["ranks"]} == {(0, 3), (1, 2)}
    folder = Path(hang["folder"])
    assert verdict(logs, folder)["verdict"]["headline"] == hang["headline"]
    assert "verdict.json" in told.read_text()
    assert json.loads(Path(f"{told}.json").read_text())["verdict"]["culprit"]["ranks"] == [1]
    assert (folder / "report.html").exists()


@pytest.mark.slow
@needs("torch", "py-spy")
def test_a_stopped_rank_is_named_as_stopped(tmp_path: Path, job: str) -> None:
    """Both ranks stand at the same line. Only the kernel tells that one of them does not run."""
    with ranks(tmp_path, WORKS, job) as pids:
        with watching(tmp_path, job, *QUICK, "--exit-code") as process:
            time.sleep(3)
            os.kill(pids[1], signal.SIGSTOP)
            out, _ = process.communicate(timeout=90)
        assert proc.read(f"/proc/{pids[0]}/stat")
    hang = next(record for record in map(json.loads, out.splitlines()) if record["event"] == "hang")
    assert hang["ranks"] == [1] and "was stopped by a signal" in hang["headline"]


@pytest.mark.slow
@needs("torch")
def test_an_evaluation_without_a_word_is_no_hang_and_the_end_ends_it(tmp_path: Path, job: str) -> None:
    """Fifteen seconds of computing at a patience of four: it is asked, and left alone."""
    with ranks(tmp_path, "print('waiting', flush=True)\n" + QUIET, job, world=1):
        code, records, err = watched(tmp_path, job, *QUICK)
    assert code == 0, err
    assert {record["state"] for record in records if record["event"] == "state"} & {"quiet", "alive"}
    assert not [record for record in records if record["event"] == "hang"]
    assert records[-1]["event"] == "end" and "all ranks have ended" in records[-1]["outcome"]
    assert "reported that they were done" in records[-1]["outcome"]


@pytest.mark.slow
@needs("torch")
def test_what_moves_again_is_said_and_its_evidence_goes(tmp_path: Path, job: str) -> None:
    """A rank is stopped for a while, and goes on: stacks of then would accuse it in every later analysis."""
    kept = ("--folder", tmp_path / "kept")
    with ranks(tmp_path, WORKS, job) as pids, watching(tmp_path, job, *QUICK, *kept) as process:
        time.sleep(3)
        os.kill(pids[1], signal.SIGSTOP)
        assert process.stdout
        for line in process.stdout:
            event = json.loads(line)["event"]
            if event == "hang":
                os.kill(pids[1], signal.SIGCONT)
            if event == "resumed":
                break
        process.send_signal(signal.SIGINT)
        process.wait(30)
    folder = tmp_path / "kept" / "standstill-1"
    assert (folder / "verdict.json").exists()
    assert not list(folder.glob("rank*")) and not (folder / "run.jsonl").exists()
    assert process.returncode == 130


@pytest.mark.slow
@needs("torch")
def test_one_process_without_threads_or_open_files_and_ctrl_c_ends_it(tmp_path: Path, job: str) -> None:
    with ranks(tmp_path, WORKS, job), watching(tmp_path, job, *QUICK) as process:
        assert process.stdout
        states = [process.stdout.readline() for _ in range(3)]
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        files = [str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert processes.children(process.pid) == []
    assert len(threads) == 1
    assert not [name for name in files if name.startswith(str(tmp_path))]
    assert process.returncode == 130 and "Traceback" not in err and all(states)


@pytest.mark.slow
@needs("torch")
def test_on_a_terminal_the_rows_are_drawn_in_place_and_the_cursor_comes_back(tmp_path: Path, job: str) -> None:
    """60 columns and 12 lines; Ctrl-C is typed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (12, 60))
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    env.pop("COLUMNS", None)
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    owns = {"preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}  # what is typed is sent to it
    command = words(tmp_path, job, "--patience", "60")
    with ranks(tmp_path, WORKS, job), subprocess.Popen(command, env=env, **streams, **owns) as process:
        os.close(theirs)
        said, typed = b"", False
        while piece := _read(ours):
            said += piece
            if not typed and said.count(b"rank 1") >= 3:
                os.write(ours, b"\x03")
                typed = True
    os.close(ours)
    assert process.returncode == 130
    text = said.decode()
    assert "\x1b[?25l" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor"
    assert text.count("\x1b[1A") >= 4, "a round is drawn over the last one"
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"[\r\n]+", text)]
    assert max(map(len, lines)) <= 60
    assert any(re.match(r"rank 0 +step \d+ +\d+ s  ", line) for line in lines), lines
    assert "Traceback" not in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the last process has closed it
        return b""


@pytest.mark.slow
@needs("torch")
def test_a_run_under_the_wrapper_is_known_by_its_journal_and_ends_with_it(tmp_path: Path, job: str) -> None:
    """No file belongs to a rank alone, and a pipe stands between them and the log: the journal names pids."""
    script = tmp_path / "train.py"
    script.write_text(QUIET.replace("until = time.monotonic() + 15", "until = time.monotonic()"))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "postmortem", "run", "--folder", tmp_path / "runs", "--keep", "always"]
    launch = ["env", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", sys.executable, script]
    with subprocess.Popen([*map(str, command), "--", *map(str, launch)], env=env, stdout=subprocess.DEVNULL):
        until = time.monotonic() + 30
        while not (found := list(tmp_path.glob("runs/*/run.jsonl"))):
            assert time.monotonic() < until
            time.sleep(0.1)
        code, records, _ = watched(found[0].parent, "", *QUICK)
    assert code == 0 and records[-1]["outcome"] == "the command ended: exit code 0"
    assert max(record.get("ranks_here", 0) for record in records) == 1


@pytest.mark.slow
@needs("torch")
def test_once_looks_and_ends(tmp_path: Path, job: str) -> None:
    with ranks(tmp_path, WORKS, job):
        code, records, _ = watched(tmp_path, job, *QUICK, "--once")
    assert code == 0 and [record["event"] for record in records] == ["state"]
    with ranks(tmp_path, HANG, job):
        time.sleep(5)
        code, records, _ = watched(tmp_path, job, *QUICK, "--once", "--exit-code")
    assert code == 10 and records[-1]["event"] == "hang"


@pytest.mark.slow
@needs("torch")
def test_where_no_tool_may_look_a_rank_that_catches_the_signal_is_asked(
    tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither py-spy nor pystack. Rank 1 registered faulthandler, and writes its stack into its log; rank 0
    did not, and is not signalled: it would die. What the kernel says of it is kept."""
    monkeypatch.setattr(child, "program", lambda _: None)
    text = f"""\
import faulthandler, os
if os.environ["RANK"] == "1":
    faulthandler.register({SIGNAL})
{HANG}"""
    logs = tmp_path / "job"
    logs.mkdir()
    with ranks(logs, text, job):
        options = Options(Settings(4.0, 4.0, 1.0), form="json", exit_code=True, job=job, folder=tmp_path / "kept")
        watch = Watch([str(logs)], options)
        assert watch.run() == 10
        watch.close()
        alive = [proc.read(f"/proc/{r.pid}/stat") for r in watch.local.found]
    assert all(alive)
    hang = next(json.loads(line) for line in capsys.readouterr().out.splitlines() if '"hang"' in line)
    assert [text.partition(" (pid")[0] for text in hang["lacking"]] == ["rank 0", "rank 1"]
    assert "py-spy: not installed" in hang["lacking"][0] and "was asked" in hang["lacking"][1]
    assert "load_batch" in (logs / "rank1.log").read_text()
    journal = (Path(hang["folder"]) / "run.jsonl").read_text()
    assert "rank 0 (pid " in journal and "is in state S (sleeping)" in journal
    assert hang["outcome"] == "incident" and hang["category"] == "hang"


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_watch_of_a_run_forgets_where_its_ranks_stood_before(tmp_path: Path) -> None:
    """The first was ended in a standstill that passed; its stacks would accuse who went on since."""
    Journal(tmp_path, "node-a").close()
    first = Watch([str(tmp_path)], Options())._place() / "standstill-1"
    evidence.save(first, [], evidence.Hang(64.0, 1.0, "step 3"))
    (first / evidence.VERDICT).write_text("{}")
    assert (first / "ps.txt").exists()
    second = Watch([str(tmp_path)], Options())
    assert second._place() == tmp_path and second.hangs == 2
    assert [path.name for path in first.iterdir()] == [evidence.VERDICT]


def test_the_command_of_the_user_is_words_and_no_shell(in_process: Command, tmp_path: Path) -> None:
    assert command_words("scancel '4711 $(reboot)'") == ("scancel", "4711 $(reboot)")
    done = in_process("watch", tmp_path, "--on-hang", "'open")
    assert done.returncode == 2 and "--on-hang" in done.stderr
    done = in_process("watch", tmp_path, "--on-hang", " ")
    assert done.returncode == 2 and "names no command" in done.stderr


def test_what_cannot_be_followed_is_said(in_process: Command, tmp_path: Path) -> None:
    assert in_process("watch", tmp_path / "nosuch").returncode == 2
    assert "follows files" in in_process("watch", "https://example.com/log").stderr


def test_the_oddest_ranks_stand_first_and_the_rest_in_one_line() -> None:
    from postmortem.live.watch import screen
    from postmortem.live.watch.board import Row

    rows = [Row(f"rank {n}", n, step=40, step_at=50.0, line="step 40", line_at=50.0) for n in range(64)]
    rows[17].step, rows[17].line = 39, "step 39"
    rows[5].line_at = 20.0
    told = screen.table(rows, 100.0, 4, 100)
    assert [line.split()[1] for line in told[:2]] == ["17", "5"]
    assert told[-1] == "60 more: step 40, last lines 50 s to 50 s ago"
    assert len(told) == 5
    assert [line.split()[1] for line in screen.table(rows[:4], 100.0, 4, 100)] == ["0", "1", "2", "3"]


def test_a_row_is_safe_to_print_whatever_the_log_holds() -> None:
    from postmortem.live.watch import screen
    from postmortem.live.watch.board import Row

    (told,) = screen.table([Row("rank 0", 0, line="\x1b]0;pwned\x07[2J x", line_at=1.0)], 2.0, 4, 200)
    assert "\x1b" not in told and "\x07" not in told
