"""`postmortem run`: the command does what it does alone, and what it said is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from run_jobs import (
    SLEEPER,
    alive,
    command_of,
    environment,
    journal,
    kept,
    messages,
    run,
    start,
    until,
    wrapped,
)

from conftest import needs
from postmortem.live.run import switches

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`postmortem run` is for Linux")
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [0, 1, 3, 77, 255])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGHUP])
def test_a_command_that_a_signal_killed_is_seen_as_killed_by_it(tmp_path: Path, number: int) -> None:
    """128 + n would be a lie to srun and Kubernetes: they tell an exit from a signal."""
    done = run(tmp_path, "sh", "-c", f"kill -{number} $$")
    assert done.returncode == -number
    assert journal(tmp_path)[-1]["signal"] == number


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_ends_as_a_shell_has_it(tmp_path: Path, command: str, code: int) -> None:
    done = run(tmp_path, command)
    assert done.returncode == code and command in done.stderr and "Traceback" not in done.stderr


def test_options_behind_the_command_are_the_commands_own(tmp_path: Path) -> None:
    words = [*wrapped(tmp_path)[:-1], "echo", "--keep", "-x"]  # nobody wrote the two dashes
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment())
    assert done.stdout == "--keep -x\n"


def test_a_run_that_ends_well_says_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    words = [word for word in wrapped(tmp_path, "echo", "hi") if word not in ("--keep", "always")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment())
    assert done.stdout == "hi\n"
    assert re.fullmatch(r"postmortem: exit code 0 after [\d.]+ s; nothing kept\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_failure_is_analyzed_at_once_and_below_the_output(tmp_path: Path) -> None:
    raising = "print('step 1', flush=True)\nraise ValueError('label 4711 outside of 0..9')"
    done = run(tmp_path, sys.executable, "-c", raising, options=())
    assert done.returncode == 1
    assert done.stdout == "step 1\n", "the verdict goes to standard error: somebody may read our output"
    assert done.stderr.index("Traceback") < done.stderr.index("INCIDENT") and "ValueError" in done.stderr
    assert (kept(tmp_path) / "report.html").exists()


def test_modules_in_the_jobs_folder_are_not_ours(tmp_path: Path) -> None:
    """A job has its own `json.py`; the analysis, which starts there, must not import it."""
    (tmp_path / "json.py").write_text("raise SystemExit('the job has its own json')")
    (tmp_path / "postmortem.py").write_text("raise SystemExit('and its own postmortem')")
    words = wrapped(tmp_path, "sh", "-c", "exit 3", options=())
    words[1:1] = ["-P"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 3 and "own" not in done.stderr and (kept(tmp_path) / "report.html").exists()


# ── the streams ─────────────────────────────────────────────────────────────────────────────────────────────


def test_both_streams_arrive_as_they_are_and_are_kept_with_their_times(tmp_path: Path) -> None:
    code = "import sys; print('out'); sys.stdout.buffer.write(b'\\xff\\r 50%|##\\r100%|####\\n'); print('err', file=sys.stderr)"
    words = wrapped(tmp_path, sys.executable, "-c", code)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, env=environment())
    assert done.stdout == b"out\n\xff\r 50%|##\r100%|####\n"
    assert done.stderr.startswith(b"err\npostmortem: exit code 0")
    out = (kept(tmp_path) / "stdout.log").read_bytes().decode("latin-1")
    assert STAMPED.sub("", out).encode("latin-1") == done.stdout
    assert all(STAMPED.match(line) for line in out.split("\n")[:-1])


def test_a_line_has_the_time_of_its_first_byte(tmp_path: Path) -> None:
    code = "import time; print('begun', end='', flush=True); time.sleep(0.5); print(' and done'); print('next')"
    run(tmp_path, sys.executable, "-c", code)
    first, second = (kept(tmp_path) / "stdout.log").read_text().splitlines()
    assert first.endswith("Z begun and done") and second.endswith("Z next")
    assert first[:27] < second[:27] and float(second[17:26]) - float(first[17:26]) % 60 != 0


def test_many_lines_come_whole_and_in_order(tmp_path: Path) -> None:
    done = run(tmp_path, "seq", "300000")
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 300_001))
    lines = (kept(tmp_path) / "stdout.log").read_text().splitlines()
    assert [line[28:] for line in lines] == [str(n) for n in range(1, 300_001)]


def test_who_reads_only_the_head_ends_the_command_as_alone(tmp_path: Path) -> None:
    """`yes | head` ends because `yes` finds nobody who reads."""
    words = wrapped(tmp_path, "sh", "-c", "yes; echo $? >&2")
    running = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert running.stdout and running.stdout.read(4) == b"y\ny\n"
    running.stdout.close()
    assert running.wait(20) == 0
    assert running.stderr and str(128 + signal.SIGPIPE).encode() in running.stderr.read()


def test_what_holds_the_output_is_not_waited_for_and_may_go_on(tmp_path: Path) -> None:
    """A daemon that the job leaves behind (wandb, ray) holds its streams, and is not to die of us."""
    code = "(sleep 3; echo late; echo survived > survived) & echo early"
    with (tmp_path / "console").open("w") as console:
        began = time.monotonic()
        words = wrapped(tmp_path, "sh", "-c", code)
        subprocess.run(words, cwd=tmp_path, stdout=console, stderr=console, env=environment(), check=True)
        assert time.monotonic() - began < 2.5
    until(lambda: (tmp_path / "survived").exists())
    until(lambda: "late" in (tmp_path / "console").read_text())
    assert "late" in (kept(tmp_path) / "stdout.log").read_text()


def test_input_is_the_commands(tmp_path: Path) -> None:
    assert run(tmp_path, "cat", input="typed\n").stdout == "typed\n"


# ── a terminal ──────────────────────────────────────────────────────────────────────────────────────────────


def on_a_terminal(folder: Path, *command: str, keys: bytes = b"", after: bytes = b"") -> tuple[int, bytes]:
    """Run on a terminal of 37 rows and 91 columns; press `keys` once `after` was printed."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.execve(sys.executable, wrapped(folder, *command), environment())
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 37, 91, 0, 0))
    seen, pressed, end = b"", False, time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        if keys and not pressed and after in seen:
            os.write(terminal, keys)
            pressed = True
    os.close(terminal)
    return os.waitpid(pid, 0)[1], seen


def test_on_a_terminal_the_command_sees_one_of_its_size(tmp_path: Path) -> None:
    code = "import os, sys, time; time.sleep(.3); print([os.isatty(n) for n in (0, 1, 2)], *os.get_terminal_size())"
    status, seen = on_a_terminal(tmp_path, sys.executable, "-c", code)
    assert status == 0 and b"[True, True, True] 91 37\r\n" in seen
    assert b"\r\r\n" not in seen, "a line's end is made one once"


def test_without_a_terminal_it_sees_none(tmp_path: Path) -> None:
    code = "import os; print([os.isatty(n) for n in (1, 2)])"
    assert run(tmp_path, sys.executable, "-c", code).stdout == "[False, False]\n"


def test_ctrl_c_reaches_the_command_once(tmp_path: Path) -> None:
    counting = (
        "import signal, time\n"
        "n = 0\n"
        "def again(*_):\n    global n; n += 1\n"
        "signal.signal(signal.SIGINT, again); print('ready', flush=True)\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: time.sleep(.01)\n"
        "raise SystemExit(40 + n)\n"
    )
    status, _ = on_a_terminal(tmp_path, sys.executable, "-c", counting, keys=b"\x03", after=b"ready")
    assert os.waitstatus_to_exitcode(status) == 41
    assert "SIGINT came to all processes" in messages(tmp_path)


def test_a_command_that_ctrl_c_ends_is_seen_as_ended_by_it(tmp_path: Path) -> None:
    status, _ = on_a_terminal(tmp_path, "sh", "-c", "echo ready; sleep 30", keys=b"\x03", after=b"ready")
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT


def test_keys_go_to_the_command(tmp_path: Path) -> None:
    status, seen = on_a_terminal(
        tmp_path, "sh", "-c", "echo name?; read x; echo hello $x", keys=b"ada\n", after=b"name?"
    )
    assert status == 0 and b"hello ada" in seen


# ── signals ─────────────────────────────────────────────────────────────────────────────────────────────────

COUNTS = (
    "import signal, sys, time\n"
    "seen = []\n"
    "for n in (1, 2, 3, 10, 12, 15): signal.signal(n, lambda n, f: seen.append(n))\n"
    "print('up', flush=True)\n"
    "end = time.monotonic() + 30\n"
    "while time.monotonic() < end and not seen: time.sleep(.01)\n"
    "time.sleep(.5); print(seen); sys.exit(60)\n"
)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_to_the_wrapper_reaches_the_command_once(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    running = start(tmp_path, sys.executable, "-c", COUNTS)
    assert running.stdout and running.stdout.readline() == "up\n"
    running.send_signal(number)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 60 and out == f"[{int(number)}]\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_to_the_whole_group_reaches_the_command_once(tmp_path: Path, name: str) -> None:
    """`timeout`, `kill -- -GROUP` and a scheduler's cgroup signal everybody: passed on, it would come twice."""
    number = signal.Signals[name]
    running = start(tmp_path, sys.executable, "-c", COUNTS, start_new_session=True)
    assert running.stdout and running.stdout.readline() == "up\n"
    os.killpg(running.pid, number)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 60 and out == f"[{int(number)}]\n"
    assert f"{name} came to all processes" in messages(tmp_path)


def test_a_signal_that_nobody_handles_ends_the_command_and_us(tmp_path: Path) -> None:
    running = start(tmp_path, sys.executable, "-c", SLEEPER)
    assert running.stdout and running.stdout.readline() == "up\n"
    running.terminate()
    running.communicate(timeout=30)
    assert running.returncode == -signal.SIGTERM


def test_a_wrapper_that_is_killed_leaves_the_command_running_and_its_words_kept(tmp_path: Path) -> None:
    code = "import time\nfor n in range(20): print('line', n, flush=True); time.sleep(.1)\nopen('done', 'w')"
    running = start(tmp_path, sys.executable, "-c", code)
    assert running.stdout and running.stdout.readline() == "line 0\n"
    running.kill()
    running.wait()
    until(lambda: (tmp_path / "done").exists())
    assert running.stdout.read().endswith("line 19\n"), "the console gets the rest as well"
    assert "line 19" in (kept(tmp_path) / "stdout.log").read_text()
    assert journal(tmp_path)[0]["event"] == "run"


def test_a_copying_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    code = "import time\nfor n in range(20): print('line', n, flush=True); time.sleep(.1)"
    running = start(tmp_path, sys.executable, "-c", code)
    assert running.stdout and running.stdout.readline() == "line 0\n"
    command = command_of(running.pid)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    (tee,) = [int(pid) for pid in children if int(pid) != command]
    os.kill(tee, signal.SIGKILL)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 0 and out.endswith("line 19\n")
    assert "the copying process was killed by SIGKILL" in messages(tmp_path)


def test_ranks_that_a_dead_launcher_leaves_are_ended(tmp_path: Path) -> None:
    """They would hold their GPUs and wait for each other; what is no rank (a tracker, a database) is left alone."""
    launcher = (
        "import os, subprocess, sys, time\n"
        "rank = {'RANK': '0', 'LOCAL_RANK': '0', 'TORCHELASTIC_RUN_ID': 'x'}\n"
        f"r = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], env=os.environ | rank, start_new_session=True)\n"
        "o = subprocess.Popen(['sleep', '5'], start_new_session=True)\n"
        "print(r.pid, o.pid, flush=True); time.sleep(1); os.kill(os.getpid(), 9)\n"
    )
    running = start(tmp_path, sys.executable, "-c", launcher, stdout=subprocess.PIPE)
    assert running.stdout
    rank, other = map(int, re.findall(r"\d+", running.stdout.readline() + running.stdout.readline())[:2])
    assert running.wait(30) == -signal.SIGKILL
    assert not alive(rank) and alive(other)
    os.kill(other, signal.SIGKILL)
    (end,) = [r for r in journal(tmp_path) if r["message"] == f"rank 0 (pid {rank}) killed by SIGTERM"]
    assert end["by"] == "postmortem run"


def test_a_usr1_that_would_end_the_launcher_alone_goes_to_the_rank_that_handles_it(tmp_path: Path) -> None:
    """Slurm's `--signal=USR1@60` is for the trainer's checkpoint; torchrun has no handler for it, and dies."""
    launcher = (
        "import os, subprocess, sys\n"
        "rank = {'RANK': '0', 'LOCAL_RANK': '0', 'TORCHELASTIC_RUN_ID': 'x'}\n"
        f"sys.exit(subprocess.run([sys.executable, '-c', {COUNTS!r}], env=os.environ | rank).returncode)\n"
    )
    running = start(tmp_path, sys.executable, "-c", launcher)
    assert running.stdout and running.stdout.readline() == "up\n"
    running.send_signal(signal.SIGUSR1)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 60 and out == "[10]\n"


@pytest.mark.parametrize("waits", ["polls", "blocks"])
def test_how_a_rank_ended_is_known_whoever_is_its_parent(tmp_path: Path, waits: str) -> None:
    """torchrun asks ten times a second, others wait: then the status is gone at once, and only a new kernel has it."""
    if waits == "blocks" and tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 15):
        pytest.skip("this kernel forgets how a process ended when its parent has asked")
    wait = {"polls": "while p.poll() is None: time.sleep(.1)", "blocks": "p.wait()"}[waits]
    launcher = (
        "import os, subprocess, sys, time\n"
        "rank = {'RANK': '3', 'LOCAL_RANK': '1', 'TORCHELASTIC_RUN_ID': 'x'}\n"
        "p = subprocess.Popen(['sh', '-c', 'sleep 1.5; kill -9 $$'], env=os.environ | rank)\n"
        f"{wait}\n"
    )
    run(tmp_path, sys.executable, "-c", launcher)
    (end,) = [r for r in journal(tmp_path) if r["event"] == "end" and r["message"].startswith("rank 3 ")]
    assert end["message"].endswith("killed by SIGKILL") and end["local_rank"] == 1


# ── our own troubles ────────────────────────────────────────────────────────────────────────────────────────


@needs("root", "unshare")
def test_a_full_disk_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    script = (
        f"mount -t tmpfs -o size=64k none {tmp_path}/runs && "
        + " ".join(f"'{word}'" for word in wrapped(tmp_path, "seq", "100000"))
        + f"; code=$?; cp -r {tmp_path}/runs {tmp_path}/after; exit $code"
    )
    (tmp_path / "runs").mkdir()
    words = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 100_001))
    assert done.stderr.count("stdout.log ends here, and the command goes on") == 1


def test_where_no_folder_can_be_made_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file stands in the way")
    done = run(tmp_path, "sh", "-c", "echo hi; exit 5")
    assert done.returncode == 5 and done.stdout == "hi\n"
    assert "nothing is kept of this run" in done.stderr and "Traceback" not in done.stderr


def test_where_nothing_can_be_opened_the_command_runs_alone(tmp_path: Path) -> None:
    words = " ".join(f"'{word}'" for word in wrapped(tmp_path, "sh", "-c", "echo hi; exit 5"))
    script = f"ulimit -n 9; exec 7</dev/null 6</dev/null 5</dev/null; exec {words}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=30
    )
    assert done.returncode == 5 and done.stdout == "hi\n"
    assert "goes on alone" in done.stderr and "Traceback" not in done.stderr


def test_an_error_of_ours_is_not_the_jobs(tmp_path: Path) -> None:
    """Something in the wrapper raises while the job runs: the job is waited for, and its code is the code."""
    broken = (
        "import sys; from postmortem.live.run import tracker\n"
        "def fail(*_): raise RuntimeError('a bug')\n"
        "tracker.Tracker.look = fail\n"
        "from postmortem.__main__ import main; sys.argv[0] = 'postmortem'; main()\n"
    )
    words = [sys.executable, "-c", broken, *wrapped(tmp_path, "sh", "-c", "sleep 1; echo hi; exit 5")[3:]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=30)
    assert done.returncode == 5 and done.stdout == "hi\n"
    assert "nothing more is noted of this run" in done.stderr and "Traceback" not in done.stderr


def test_nothing_of_ours_is_open_in_the_command(tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))")
    assert done.stdout == "['0', '1', '2', '3']\n", "3 is the folder that it lists"


def test_signals_of_the_command_are_as_they_were(tmp_path: Path) -> None:
    """A mask or an ignored signal that it inherits would change what Ctrl-C does."""
    asked = "grep -E 'SigBlk|SigIgn' /proc/self/status"
    alone = subprocess.run(["sh", "-c", asked], capture_output=True, text=True).stdout
    assert run(tmp_path, "sh", "-c", asked).stdout == alone


def test_nothing_is_left_when_it_is_over(tmp_path: Path) -> None:
    running = start(tmp_path, "sh", "-c", "echo hi")
    running.communicate(timeout=30)
    left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and str(tmp_path).encode() in _words(p)]
    assert not left


def _words(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


# ── what is switched on ─────────────────────────────────────────────────────────────────────────────────────


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    shown = "import os; print({n: os.environ.get(n) for n in ('NCCL_DEBUG', 'NCCL_DEBUG_FILE', 'PYTHONFAULTHANDLER')})"
    words = (sys.executable, "-c", shown)
    done = run(tmp_path, *words, env=environment(NCCL_DEBUG="INFO", PYTHONFAULTHANDLER=""))
    assert done.stdout == "{'NCCL_DEBUG': 'INFO', 'NCCL_DEBUG_FILE': None, 'PYTHONFAULTHANDLER': ''}\n"


def test_each_switch_can_stay_off(tmp_path: Path) -> None:
    every = switches.environment({}, tmp_path, ["true"], (), tty=False)
    for name in switches.NAMES:
        left = switches.environment({}, tmp_path, ["true"], (name,), tty=False)
        assert left.items() < every.items(), name
    assert not switches.environment({}, tmp_path, ["true"], switches.NAMES, tty=False)


def test_an_unknown_switch_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "touch", "ran", options=("--without", "everything"))
    assert done.returncode == 2 and "rank-logs" in done.stderr and not (tmp_path / "ran").exists()


def test_ranks_on_a_terminal_keep_it(tmp_path: Path) -> None:
    """With a log of each rank torchrun gives its ranks a pipe, and their bars change."""
    assert "PET_TEE" in switches.environment({}, tmp_path, ["true"], (), tty=False)
    assert "PET_TEE" not in switches.environment({}, tmp_path, ["true"], (), tty=True)


def test_the_recorders_variable_is_the_one_of_that_torch(tmp_path: Path) -> None:
    """A newer torch warns of the old name, an older one does not know the new one."""
    for release, name in (("2.6.0", "TORCH_NCCL_TRACE_BUFFER_SIZE"), ("2.13.0", "TORCH_FR_BUFFER_SIZE")):
        home = tmp_path / release
        said = home / "lib" / "python3.11" / "site-packages" / "torch" / "version.py"
        said.parent.mkdir(parents=True)
        said.write_text(f"__version__ = '{release}+cpu'\n")
        (home / "bin").mkdir()
        (home / "bin" / "python").touch()
        launcher = tmp_path / f"torchrun-{release}"
        launcher.write_text(f"#!{home}/bin/python\n")
        launcher.chmod(0o755)
        assert name in switches.environment({}, tmp_path, [str(launcher)], (), tty=False)
