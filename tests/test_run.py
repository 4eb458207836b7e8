"""`postmortem run`: the command behaves as it does alone, and its output is saved."""

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
import threading
import time
from pathlib import Path

import pytest
from gathered import tool
from run_jobs import alive, environment, journal, messages, run, run_folder, start, wait_for, wrapped

from postmortem.live.run import journal as journal_of_run
from postmortem.live.run import rank_logs, switches, tee

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`postmortem run` is for Linux")
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_that_killed_the_command_is_visible(tmp_path: Path, number: int) -> None:
    """srun and Kubernetes distinguish a signal from the exit code 128 + n."""
    done = run(tmp_path, "sh", "-c", f"kill -{number} $$")
    assert done.returncode == -number
    assert journal(tmp_path)[-1]["signal"] == number


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_has_the_exit_code_of_a_shell(tmp_path: Path, command: str, code: int) -> None:
    done = run(tmp_path, command, options=())
    assert done.returncode == code and re.fullmatch(f"postmortem: {command}: .*\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_script_without_an_interpreter_runs_as_from_a_shell(tmp_path: Path) -> None:
    tool(tmp_path, "job", "echo $1; exit 7")
    done = run(tmp_path, "./job", "hi")
    assert (done.returncode, done.stdout) == (7, "hi\n"), done.stderr


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM", "SIGINT"])
def test_no_signal_during_the_analysis_replaces_the_exit_code(tmp_path: Path, name: str) -> None:
    words = wrapped(tmp_path, "sh", "-c", "echo up; exit 7", options=())
    running = subprocess.Popen(words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    assert running.stderr and "exit code 7" in running.stderr.readline()
    time.sleep(0.2)
    running.send_signal(signal.Signals[name])
    assert running.wait(30) == 7


def test_options_after_the_command_belong_to_it(tmp_path: Path) -> None:
    words = [*wrapped(tmp_path)[:-1], "echo", "--keep", "-x"]  # without the two dashes
    assert run(tmp_path, words=words).stdout == "--keep -x\n"


def test_a_success_prints_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    done = run(tmp_path, words=[w for w in wrapped(tmp_path, "cat") if w not in ("--keep", "always")], input="typed\n")
    assert done.stdout == "typed\n"
    assert re.fullmatch(r"postmortem: exit code 0 after [\d.]+ s; nothing kept\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_failure_is_analyzed_below_the_output(tmp_path: Path) -> None:
    """The verdict goes to standard error, since a program may read the output. The job's own modules are not ours."""
    for name in ("json", "postmortem"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the job')")
    raising = "print('step 1', flush=True)\nraise ValueError('label 4711 outside of 0..9')"
    words = wrapped(tmp_path, sys.executable, "-c", raising, options=())
    words[1:1] = ["-P"]
    done = run(tmp_path, words=words)
    assert done.returncode == 1 and done.stdout == "step 1\n"
    assert done.stderr.index("Traceback") < done.stderr.index("INCIDENT") and "ValueError" in done.stderr
    assert "of the job" not in done.stderr and (run_folder(tmp_path) / "report.html").exists()


def test_both_streams_arrive_unchanged_and_are_saved_with_timestamps(tmp_path: Path) -> None:
    code = "import sys; print('out', flush=True); sys.stdout.buffer.write(b'\\xff\\r 50%|##\\r100%|####\\n'); print('err', file=sys.stderr)"
    done = run(tmp_path, sys.executable, "-c", code, text=False)
    assert done.stdout == b"out\n\xff\r 50%|##\r100%|####\n"
    assert done.stderr.startswith(b"err\npostmortem: exit code 0")
    out = (run_folder(tmp_path) / "stdout.log").read_bytes().decode("latin-1")
    assert STAMPED.sub("", out).encode("latin-1") == done.stdout
    assert all(STAMPED.match(line) for line in out.split("\n")[:-1])


def test_a_line_has_the_time_of_its_first_byte(tmp_path: Path) -> None:
    code = "import time; print('begun', end='', flush=True); time.sleep(0.5); print(' and done'); print('next')"
    run(tmp_path, sys.executable, "-c", code)
    first, second = (run_folder(tmp_path) / "stdout.log").read_text().splitlines()
    assert first.endswith("Z begun and done") and second.endswith("Z next") and first[:27] < second[:27]


@pytest.mark.slow
def test_an_orphan_that_holds_the_output_goes_on_and_does_not_delay_the_end(tmp_path: Path) -> None:
    code = "(sleep 3; echo late; echo survived > survived) & echo early"
    with (tmp_path / "console").open("w") as console:
        began = time.monotonic()
        words = wrapped(tmp_path, "sh", "-c", code)
        subprocess.run(words, cwd=tmp_path, stdout=console, stderr=console, env=environment(), check=True)
        assert time.monotonic() - began < 2.5
    wait_for(lambda: (tmp_path / "survived").exists())
    wait_for(lambda: "late" in (tmp_path / "console").read_text())
    assert "late" in (run_folder(tmp_path) / "stdout.log").read_text()


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
            seen += piece
        if keys and not pressed and after in seen:
            os.write(terminal, keys)
            pressed = True
    os.close(terminal)
    return os.waitpid(pid, 0)[1], seen


def test_on_a_terminal_the_command_has_one_of_the_same_size_and_its_keys(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; time.sleep(.3); print([os.isatty(n) for n in (0, 1, 2)], *os.get_terminal_size())\n"
        "print('hello', input('name?'))"
    )
    status, seen = on_a_terminal(tmp_path, sys.executable, "-c", code, keys=b"ada\n", after=b"name?")
    assert status == 0 and b"[True, True, True] 91 37\r\n" in seen and b"hello ada" in seen
    assert b"\r\r\n" not in seen, "a line's end is translated once"


def test_ctrl_c_reaches_the_command_once(tmp_path: Path) -> None:
    status, _ = on_a_terminal(tmp_path, sys.executable, "-c", COUNTS, keys=b"\x03", after=b"up")
    assert os.waitstatus_to_exitcode(status) == 61
    assert "SIGINT came to all processes" in messages(tmp_path)


COUNTS = (
    "import signal, sys, time\n"
    "seen = []\n"
    "for n in (1, 2, 3, 10, 12, 15): signal.signal(n, lambda n, f: seen.append(n))\n"
    "print('up', flush=True)\n"
    "end = time.monotonic() + 30\n"
    "while time.monotonic() < end and not seen: time.sleep(.01)\n"
    "time.sleep(.5); print(seen); sys.exit(60 + len(seen))\n"
)
AS_RANK = "rank = {'RANK': '0', 'LOCAL_RANK': '0', 'TORCHELASTIC_RUN_ID': 'x'}\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGTERM to all"])
def test_a_signal_reaches_the_command_once(tmp_path: Path, name: str) -> None:
    """`timeout`, `kill -- -GROUP` and a scheduler's cgroup signal every process: passed on, it would arrive twice."""
    number = signal.Signals[name.split()[0]]
    running = start(tmp_path, sys.executable, "-c", COUNTS, start_new_session=True)
    os.kill(-running.pid if "all" in name else running.pid, number)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 61 and out == f"[{int(number)}]\n"
    assert ("came to all processes" in " ".join(messages(tmp_path))) is ("all" in name)


@pytest.mark.slow
def test_a_rank_that_a_thread_starts_is_a_rank(tmp_path: Path) -> None:
    launcher = (
        f"import os, subprocess, sys, threading\n{AS_RANK}"
        "work = lambda: subprocess.run(['sleep', '2'], env=os.environ | rank)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    run(tmp_path, sys.executable, "-c", launcher)
    assert any(text.startswith("rank 0 pid ") for text in messages(tmp_path))


LINES = "import time\nfor n in range(20): print('line', n, flush=True); time.sleep(.1)\nopen('done', 'w')"


@pytest.mark.slow
def test_a_killed_wrapper_leaves_the_command_running_and_its_output_saved(tmp_path: Path) -> None:
    running = start(tmp_path, sys.executable, "-c", LINES)
    running.kill()
    running.wait()
    wait_for(lambda: (tmp_path / "done").exists())
    assert running.stdout and running.stdout.read().endswith("line 19\n"), "the console gets the rest as well"
    assert "line 19" in (run_folder(tmp_path) / "stdout.log").read_text()
    assert journal(tmp_path)[0]["event"] == "run"


@pytest.mark.slow
def test_a_killed_copying_process_is_replaced(tmp_path: Path) -> None:
    """What it had read and not written yet is passed on by its successor."""
    running = start(tmp_path, "sh", "-c", "echo up; seq 60000; sleep 2; echo last")  # more than a pipe holds
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    (tee,) = [int(pid) for pid in children if b"postmortem" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    time.sleep(0.5)
    os.kill(tee, signal.SIGKILL)
    assert running.stdout
    out = running.stdout.read()
    assert running.wait(30) == 0 and out == "".join(f"{n}\n" for n in range(1, 60_001)) + "last\n"
    assert "the copying process was killed by SIGKILL" in messages(tmp_path)


@pytest.mark.slow
def test_ranks_that_a_dead_launcher_leaves_are_ended(tmp_path: Path) -> None:
    """They would hold their GPUs and wait for each other. Others (a tracker, an upload of a rank) are left alone."""
    other = "print(subprocess.Popen(['sleep', '9'], start_new_session=True).pid, flush=True)\n"
    trains = f"import subprocess, time\n{other}time.sleep(60)"
    launcher = (
        f"import os, subprocess, sys, time\n{AS_RANK}{other}"
        f"r = subprocess.Popen([sys.executable, '-c', {trains!r}], env=os.environ | rank, start_new_session=True)\n"
        "time.sleep(2); print(r.pid, flush=True); os.kill(os.getpid(), 9)\n"
    )
    running = start(tmp_path, sys.executable, "-c", launcher)
    assert running.stdout
    *others, rank = (int(line) for line in (running.first, running.stdout.readline(), running.stdout.readline()))
    assert running.wait(30) == -signal.SIGKILL
    assert not alive(rank) and all(map(alive, others))
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    (end,) = [r for r in journal(tmp_path) if r["message"] == f"rank 0 (pid {rank}) killed by SIGTERM"]
    assert end["by"] == "postmortem run"


@pytest.mark.slow
def test_a_usr1_that_the_launcher_does_not_handle_goes_to_the_rank_that_does(tmp_path: Path) -> None:
    """Slurm's `--signal=USR1@60` is for the trainer's checkpoint; torchrun has no handler for it, and dies."""
    launcher = (
        f"import os, subprocess, sys\n{AS_RANK}"
        f"sys.exit(subprocess.run([sys.executable, '-c', {COUNTS!r}], env=os.environ | rank).returncode)\n"
    )
    running = start(tmp_path, sys.executable, "-c", launcher)
    running.send_signal(signal.SIGUSR1)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 61 and out == "[10]\n"


@pytest.mark.parametrize("wait", ["while p.poll() is None: time.sleep(.1)", "p.wait()"])
@pytest.mark.slow
def test_the_end_of_a_rank_is_known_even_if_another_parent_reaps_it(tmp_path: Path, wait: str) -> None:
    """torchrun reaps ten times a second; after a blocking wait only a new kernel has the status."""
    if wait == "p.wait()" and tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 15):
        pytest.skip("this kernel forgets how a process ended when its parent has reaped it")
    launcher = (
        f"import os, subprocess, sys, time\n{AS_RANK}"
        "p = subprocess.Popen(['sh', '-c', 'sleep 1.5; kill -9 $$'], env=os.environ | rank | {'RANK': '3'})\n"
        f"{wait}\n"
    )
    run(tmp_path, sys.executable, "-c", launcher)
    (end,) = [r for r in journal(tmp_path) if r["event"] == "end" and r["message"].startswith("rank 3 ")]
    assert end["message"].endswith("killed by SIGKILL") and end["local_rank"] == 0


def test_the_beginning_and_the_end_of_a_long_output_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tee, "PART", 2000)
    log = tee.StreamLog(tmp_path, "stdout")
    for number in range(1000):
        log.save(b"line %d\n" % number)
    kept = [(tmp_path / f"stdout.log{suffix}").read_text().splitlines() for suffix in (".2", ".1", "")]
    assert all(STAMPED.match(line) for part in kept for line in part) and len(list(tmp_path.iterdir())) == 3
    first, *last = ([int(line.split()[-1]) for line in part] for part in kept)
    assert first == list(range(len(first))) and sum(last, []) == list(range(1000 - sum(map(len, last)), 1000))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3 * 2100


def test_nothing_is_kept_while_the_disk_has_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tee, "LOOK_S", 0)
    log = tee.StreamLog(tmp_path, "stdout")
    for share, piece in ((20, b"one\ntw"), (1, b"o\nthree\n"), (1, b"four\n"), (20, b"five\n")):
        monkeypatch.setattr(journal_of_run, "SHARE", share)
        monkeypatch.setattr(tee, "RESERVE", 1 << (60 if share == 1 else 12))
        log.save(piece)
    text = (tmp_path / "stdout.log").read_text()
    assert STAMPED.sub("", text) == "one\ntw\nfive\n" and text.count("Z ") == 3
    assert capsys.readouterr().err.count("stdout.log is incomplete") == 1


def test_what_torchrun_has_read_of_a_log_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_logs, "KEPT", 1 << 12)
    read, unread = (tmp_path / rank_logs.FOLDER / str(rank) / "stdout.log" for rank in (0, 1))
    for path in read, unread:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"12345678" * (1 << 17))
    logs = rank_logs.RankLogs(tmp_path)
    with read.open("rb", buffering=0) as torchrun, unread.open("ab"):
        torchrun.read(1 << 19)
        for room, taken in ((0, 1 << 20), (1 << 60, (1 << 19) + (1 << 12))):
            monkeypatch.setattr(rank_logs, "ROOM", room)
            logs.look()
            assert read.stat().st_blocks * 512 == taken and unread.stat().st_blocks * 512 == 1 << 20
        assert torchrun.read() == b"12345678" * (1 << 16)
    assert read.stat().st_size == 1 << 20 and read.read_bytes().count(0) == (1 << 19) - (1 << 12)
    assert capsys.readouterr().err.count("too little space") == 1


NAPS = """\
import os, time
from postmortem.live.run import tee
naps, nap = [], time.sleep
tee.time.sleep = lambda s: (naps.append(s), nap(s))
out = os.dup(1)
os.dup2(os.open({path!r}, os.O_RDWR), 1)
stream = tee.open_stream("stdout", 1)
if not os.fork():
    for n in range(100): os.write(stream.inner, b"x" * 4095 + b"\\n")
    os._exit(0)
messages = os.pipe()[1]
os.set_blocking(messages, False)
tee._Copier([stream], None, os.pipe()[0], messages).work()
os.write(out, b"%d" % len(naps))
"""


def test_a_terminal_is_not_slowed_down(tmp_path: Path) -> None:
    """It holds a few kilobytes, so that the job waited for each nap of the copying process."""
    terminal, inner = pty.openpty()
    reading = threading.Thread(target=lambda: [os.read(terminal, 1 << 16) for _ in iter(lambda: 0, 1)], daemon=True)
    reading.start()
    assert int(run(tmp_path, words=[sys.executable, "-c", NAPS.format(path=os.ttyname(inner))]).stdout) < 60


HI = ("sh", "-c", "sleep 1; echo hi; exit 5")
BROKEN = (
    "import sys; from postmortem.live.run import tracker\n"
    "def fail(*_): raise RuntimeError('a bug')\n"
    "tracker.Tracker.look = fail\n"
    "from postmortem.__main__ import main; sys.argv[0] = 'postmortem'; main()\n"
)


@pytest.mark.parametrize(
    "fault", ["no evidence of this run is saved: ", "the command continues", "no more events of this run are recorded"]
)
@pytest.mark.slow
def test_without_a_folder_without_descriptors_and_after_a_bug_the_command_runs(tmp_path: Path, fault: str) -> None:
    words = wrapped(tmp_path, *HI)
    if "saved" in fault:
        (tmp_path / "runs").write_text("a file in place of the folder")
    elif "continues" in fault:
        command = " ".join(f"'{word}'" for word in words)
        words = ["sh", "-c", f"ulimit -n 9; exec 7</dev/null 6</dev/null 5</dev/null; exec {command}"]
    else:
        words = [sys.executable, "-c", BROKEN, *words[3:]]
    done = run(tmp_path, words=words)
    assert done.returncode == 5 and done.stdout == "hi\n"
    assert fault in done.stderr and "Traceback" not in done.stderr


def added(folder: Path, command: str = "true", *off: str, tty: bool = False, **user: str) -> dict[str, str]:
    return switches.environment(user, folder, [command], off, tty)


def test_the_users_variables_have_priority(tmp_path: Path) -> None:
    assert added(tmp_path)["NCCL_DEBUG"] == "WARN" and added(tmp_path)["PYTHONFAULTHANDLER"] == "1"
    found = added(tmp_path, NCCL_DEBUG="INFO", PYTHONFAULTHANDLER="")
    assert not {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "PYTHONFAULTHANDLER"} & set(found)


def test_each_switch_can_stay_off(tmp_path: Path) -> None:
    for name in switches.SWITCHES:
        assert added(tmp_path, "true", name).items() < added(tmp_path).items(), name
    assert not added(tmp_path, "true", *switches.SWITCHES)
    # with a log of each rank torchrun gives its ranks a pipe, and on a terminal their bars change
    assert "PET_TEE" in added(tmp_path) and "PET_TEE" not in added(tmp_path, tty=True)
    done = run(tmp_path, "touch", "ran", options=("--without", "everything"))
    assert done.returncode == 2 and "rank-logs" in done.stderr and not (tmp_path / "ran").exists()


def test_ranks_have_no_logs_of_ours_where_the_user_chose_or_the_disk_is_small(tmp_path: Path) -> None:
    """A rank whose log cannot be written fails."""
    for command in (["torchrun", "--log_dir", "/mine"], ["torchrun", "--tee=3"]):
        assert "PET_TEE" not in switches.environment({}, tmp_path, command, (), tty=False)
    assert switches.holds_logs(tmp_path) and not switches.holds_logs(Path("/proc")) and not list(tmp_path.iterdir())


def test_the_variable_of_the_recorder_fits_the_release_of_torch(tmp_path: Path) -> None:
    """A newer torch warns of the old name, an older one does not know the new one."""
    for release, name in (("2.6.0", "TORCH_NCCL_TRACE_BUFFER_SIZE"), ("2.13.0", "TORCH_FR_BUFFER_SIZE")):
        home = tmp_path / release
        version = home / "lib" / "python3.11" / "site-packages" / "torch" / "version.py"
        version.parent.mkdir(parents=True)
        version.write_text(f"__version__ = '{release}+cpu'\n")
        launcher = tool(tmp_path, f"torchrun-{release}", f"#!{home}/bin/python\n")
        assert name in added(tmp_path, str(launcher))
