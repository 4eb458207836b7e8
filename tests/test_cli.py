"""The command line: exit codes, output streams, errors with a next step, words completed; and several
outputs in one run, of which none is dropped."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed import tar_of

from conftest import SAMPLES, Command, needs, python, table
from postmortem import analyze
from postmortem.cli import app as cli
from postmortem.cli import overview
from postmortem.cli.analyze import code as exit_code
from postmortem.cli.app import run
from postmortem.cli.writing import Format, targets
from postmortem.errors import PostmortemError, UsageError
from postmortem.input import held
from postmortem.system import output

CRASH = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 31, in <module>
[rank1]:     main()
[rank1]:   File "/job/train.py", line 20, in main
[rank1]:     raise ValueError("batch 7 has no labels")
[rank1]: ValueError: batch 7 has no labels
"""
PROGRESS = "".join(f"step {n} loss {3 / n:.3f}\n" for n in range(1, 40)) + "training finished\n"


def postmortem(*arguments: str | Path, **how: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "postmortem", *arguments, **how)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank0.log").write_text(PROGRESS)
    (logs / "rank1.log").write_text(PROGRESS[:300] + CRASH)
    return logs


def one_sentence_and_a_hint(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr
    first, hint, *rest = done.stderr.splitlines()
    assert first.startswith("postmortem: ") and hint.startswith("  ") and not rest, done.stderr
    return done.stderr


def test_default_is_a_verdict_in_words_and_a_report_in_this_folder(
    crashed: Path, tmp_path: Path, in_process: Command
) -> None:
    done = in_process("analyze", crashed)
    assert done.returncode == 0
    assert not done.stdout
    assert "ValueError: batch 7 has no labels" in done.stderr
    assert done.stderr.rstrip().endswith("postmortem-report.html")
    assert (tmp_path / "postmortem-report.html").read_text().lower().startswith("<!doctype html>")


def test_json_on_standard_output_is_the_document_alone(crashed: Path, tmp_path: Path) -> None:
    done = postmortem("analyze", crashed, "--format", "json", "--output", "-", "--exit-code", cwd=tmp_path)
    assert json.loads(done.stdout)["schema"] == "postmortem/incident/1"
    assert done.returncode == 10 and not done.stderr
    assert not list(tmp_path.glob("*.html"))


def test_reader_that_leaves_is_no_error() -> None:
    script = f"set -o pipefail; {sys.executable} -m postmortem patterns list | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0"
    assert not done.stderr


def test_interrupt_exits_130_without_a_traceback() -> None:
    # lint takes seconds, so the signal arrives while it works
    command = [sys.executable, "-m", "postmortem", "patterns", "lint"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in words


def test_exit_codes_are_the_documented_ones(in_process: Command, tmp_path: Path) -> None:
    (tmp_path / "fine").mkdir()
    for rank in range(2):
        (tmp_path / "fine" / f"rank{rank}.log").write_text(PROGRESS)
    assert in_process("analyze", "fine", "--exit-code", "--strict").returncode == 0
    for outcome, strict, asked, code in table("cli")["exit_codes"]:
        assert exit_code(outcome, strict, asked) == code, (outcome, strict, asked)


def test_nothing_readable(in_process: Command, tmp_path: Path) -> None:
    assert "nowhere" in one_sentence_and_a_hint(in_process("analyze", "nowhere"), 2)
    (tmp_path / "logs").mkdir()
    assert "logs" in one_sentence_and_a_hint(in_process("analyze", "logs"), 3)
    (tmp_path / "logs" / "model.bin").write_bytes(bytes(range(256)) * 64)
    shutil.copyfile(sys.executable, tmp_path / "logs" / "python")
    os.mkfifo(tmp_path / "logs" / "pipe")
    assert "logs" in one_sentence_and_a_hint(in_process("analyze", "logs"), 3)
    assert not (tmp_path / "postmortem-report.html").exists()


def test_help_and_words_find_the_way(in_process: Command, tmp_path: Path) -> None:
    """`-h` was an unknown option, `help` an unknown command, and `explain oom` asked for an id."""
    for words in ("analyze -h", "help analyze", "history list -h"):
        done = in_process(*words.split())
        assert done.returncode == 0 and "Usage: postmortem" in done.stdout, words
    found = in_process("explain", "nccl", "timeout").stdout.splitlines()
    assert found[0].startswith("nccl-watchdog-timeout") and len(found) <= 12
    (tmp_path / "issue.md").write_text("It died:\n\n[rank0]: ValueError: bad\n")
    assert "ValueError" in in_process("analyze", ".", "--format", "md").stdout
    (tmp_path / "a.log").write_text("".join(f"2020-11-20 21:03:0{n},000 step {n} loss 2.5\n" for n in range(9)))
    shown = in_process("analyze", "a.log", "--since", "3 hours ago", "--format", "md").stdout
    assert "no event since" in shown and "hypothesis" not in shown


WRONG = table("cli")["usage"]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_is_explained_before_anything_is_read(words: str, in_process: Command, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(PROGRESS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "broken.yaml").write_text("id: broken\nrole: guess\n")
    assert WRONG[words] in one_sentence_and_a_hint(in_process(*words.split()), 2)
    assert (tmp_path / "a.log").read_text() == PROGRESS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "mine"]


def test_key_of_the_pseudonyms_is_private(crashed: Path, tmp_path: Path, in_process: Command) -> None:
    host = crashed / "falcon-x1"
    host.mkdir()
    (crashed / "rank1.log").rename(host / "rank1.log")
    key, shown = tmp_path / "key.json", tmp_path / "out.json"
    key.write_text("{}")
    key.chmod(0o644)
    in_process("analyze", crashed, "--anonymise-map", key, "--output", shown)
    mapping = json.loads(key.read_text())
    assert "falcon-x1" in mapping.values() and "falcon" not in shown.read_text()
    assert key.stat().st_mode & 0o777 == 0o600


def test_internal_error_is_reported_as_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("postmortem.workshop.catalogue.listing", broken)
    assert cli.run(["patterns", "list"]) == 1
    assert "POSTMORTEM_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("POSTMORTEM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run(["patterns", "list"])


def test_write_follows_umask_old_mode_and_links(tmp_path: Path) -> None:
    old_umask = os.umask(0o027)
    try:
        output.write_file(tmp_path / "new", "x")
        (tmp_path / "old").touch(0o600)
        output.write_file(tmp_path / "old", "x")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to("old")
    output.write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "old").read_text() == "new"
    output.write_file(Path(os.devnull), "x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    """A file-size limit replaces a full disk: both fail in the middle of the write."""
    target = tmp_path / "report.html"
    target.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(PostmortemError, match=r"could not write .*report\.html"):
            output.write_file(target, "x" * (1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_text_survives_a_terminal_without_unicode(tmp_path: Path) -> None:
    done = postmortem("explain", "√", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 2
    assert "\\u221a" in done.stderr


def test_refusal_of_the_system_is_no_internal_error(
    in_process: Command, crashed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that may not be searched, or a file server with a fault, already where the output is checked."""
    for call in ("is_dir", "exists"):
        real = getattr(Path, call)

        def refused(path: Path, real: Callable[..., bool] = real, **more: bool) -> bool:
            if path.name == "refused.html":
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Path, call, refused)
            done = in_process("analyze", crashed, "--output", "refused.html")
        assert done.returncode == 1
        assert "refused.html: Permission denied" in done.stderr and "our own" not in done.stderr


def test_help_of_80_columns_cuts_no_option(in_process: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--anonymize` with its British spelling was `--anonymise,--an…`."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in overview.COMMANDS:
        shown = in_process(name, "--help").stdout
        parameters = getattr(cli.root().get_command(None, name), "params", ())
        assert not [o for p in parameters for o in p.opts if o.startswith("--") and not re.search(rf"{o}\b", shown)], (
            name
        )


def test_progress_fits_a_terminal_of_80_columns_and_shows_the_end_of_a_long_path() -> None:
    """A path of 100 characters pushed the bar, the speed and the rest of the path out of the line. Of a pipe the size is
    unknown."""
    script = (
        "import time\nfrom postmortem.system import output\n"
        "with output.progress_bar() as show:\n"
        "    show(122 << 20, 655 << 20, 'node-0112/' * 12 + 'attempt_0/7/stderr.log')\n"
        "    time.sleep(0.4)\n"
        "    show(12 << 20, 0, 'stdin')\n"
        "    time.sleep(0.4)\n"
    )
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    run = subprocess.Popen([sys.executable, "-c", script], stderr=theirs, env=environment)
    assert run.wait(60) == 0
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(ours, 1 << 16).decode())
    os.close(ours)
    os.close(theirs)
    lines = [line for line in re.split(r"[\r\n]+", drawn) if line.strip()]
    assert all(len(line) <= 80 for line in lines), max(map(len, lines))
    assert any("122.0/655.0 MiB" in line and line.rstrip().endswith("7/stderr.log") for line in lines)
    assert any(" 12.0 MiB " in line for line in lines) and not any("?" in line for line in lines)


COMPLETED = table("completion")["cases"]


def test_words_are_completed() -> None:
    for line, wanted in COMPLETED.items():
        given = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_POSTMORTEM_COMPLETE": "complete_bash"}
        done = python("-m", "postmortem", env=given)
        assert any(word.startswith(wanted) for word in done.stdout.split()), (line, done)


@pytest.mark.parametrize("shell", [pytest.param(s, marks=needs(s)) for s in ("bash", "zsh", "fish")])
def test_the_script_parses_in_its_shell(in_process: Command, shell: str) -> None:
    done = in_process("completion", shell)
    assert done.returncode == 0 and not done.stderr
    program = shutil.which(shell)
    assert program
    subprocess.run([program, "-n"], input=done.stdout, text=True, check=True)


LOGS = str(SAMPLES / "oom-on-second-host" / "logs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("forms", "outputs", "expected"), table("writing")["files"])
def test_each_format_finds_its_file(
    forms: list[str], outputs: list[str], expected: list[list[str | None]], here: Path
) -> None:
    found = targets([Format(form) for form in forms], outputs, ["logs"])
    assert [[t.form.value, t.path and str(t.path)] for t in found] == expected


@pytest.mark.parametrize(("forms", "outputs", "error"), table("writing")["dropped"])
def test_no_output_is_dropped(forms: list[str], outputs: list[str], error: str, here: Path) -> None:
    with pytest.raises(UsageError, match=error) as raised:
        targets([Format(form) for form in forms], outputs, ["logs"])
    assert raised.value.hint


def test_brief_applies_to_json_and_markdown(here: Path) -> None:
    assert run(["analyze", LOGS, "-o", "r.html", "-o", "r.json", "-o", "r.md", "--brief"]) == 0
    assert json.loads((here / "r.json").read_text())["schema"] == "postmortem/brief/1"
    assert len((here / "r.md").read_text()) <= 3000 and "<!doctype html>" in (here / "r.html").read_text()
    assert run(["analyze", LOGS, "-o", "r.html", "--brief"]) == 2


def test_a_failed_write_costs_no_other_output(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """/dev/full is a disk without room."""
    assert run(["analyze", LOGS, "-f", "html", "-o", "/dev/full", "-f", "json", "-o", "r.json"]) == 1
    error = capfd.readouterr().err
    assert "could not write /dev/full: No space left on device" in error and "free space there" in error
    assert json.loads((here / "r.json").read_text())["schema"] == "postmortem/incident/1"
    assert "report   r.json" in error


def test_quiet_prints_only_errors(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", LOGS, "--quiet"]) == 0
    assert capfd.readouterr() == ("", "") and (here / "postmortem-report.html").exists()
    assert run(["analyze", "no/such/place", "--quiet"]) == 2
    assert "no such file" in capfd.readouterr().err


@pytest.mark.slow
def test_binary_data_is_not_written_to_a_terminal() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "postmortem", "analyze", LOGS, "--format", "parquet"]
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2 and b"--output events.parquet" in done.stderr


PIPED = SAMPLES / "oom-on-second-host" / "logs"
KERNEL = (PIPED / "node-b" / "kernel" / "dmesg.txt").read_bytes()


def piped(given: bytes, *arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return python("-m", "postmortem", "analyze", *arguments, input=given, text=False, **how)


def verdict(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)["verdict"]
    return found


@pytest.mark.parametrize(("name", "pack"), [("-", gzip.compress), ("/dev/stdin", bytes)], ids=["gzip", "plain"])
def test_a_log_comes_through_standard_input(pack: Any, name: str, tmp_path: Path) -> None:
    """`kubectl logs … | postmortem analyze -`: cited as `stdin:85`, and nothing is left in the temporary folder."""
    there = analyze([str(PIPED / "node-b" / "kernel" / "dmesg.txt")]).document["verdict"]["evidence"][0]
    done = piped(pack(KERNEL), name, "--format", "json", env={"TMPDIR": str(tmp_path)})
    found = verdict(done)
    assert (found["pattern"], found["evidence"][0]["source"], found["evidence"][0]["line"]) == (
        "kernel-oom-killed-process",
        "stdin",
        there["line"],
    )
    assert list(tmp_path.iterdir()) == []


def test_an_archive_through_a_pipe_has_the_verdict_of_the_folder() -> None:
    whole = analyze([str(PIPED)]).document["verdict"]
    archive = tar_of({str(p.relative_to(PIPED)): p.read_bytes() for p in sorted(PIPED.rglob("*")) if p.is_file()})
    found = verdict(piped(gzip.compress(archive), "-", "--format", "json"))
    assert found["headline"] == whole["headline"]
    assert found["evidence"][0]["source"] == f"stdin!/{whole['evidence'][0]['source']}"


def test_a_pipe_and_a_folder_are_one_incident(tmp_path: Path) -> None:
    """The kernel log comes by ssh, the rest lies here: process substitution gives `/dev/fd/N`, mkfifo a name."""
    rest = tmp_path / "logs"
    for path in PIPED.rglob("*"):
        if path.is_file() and path.name != "dmesg.txt":
            copy = rest / path.relative_to(PIPED)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    fifo = tmp_path / "dmesg.txt"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(KERNEL,))
    writer.start()
    found = analyze([str(fifo), str(rest)]).document["verdict"]
    writer.join()
    assert (found["pattern"], found["culprit"]["ranks"]) == ("kernel-oom-killed-process", [3])
    assert found["evidence"][0]["source"] == "dmesg.txt"


def test_nothing_on_standard_input_is_one_sentence_with_a_next_step() -> None:
    done = piped(b"", "-")
    assert done.returncode == 3 and done.stderr.startswith(b"postmortem: standard input: no readable log")
    closed = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m postmortem analyze - <&-"], capture_output=True, check=False
    )
    assert closed.returncode == 2 and b"standard input is closed" in closed.stderr


def test_no_room_for_the_input_is_an_error_with_a_hint(tmp_path: Path) -> None:
    fifo = tmp_path / "train.log"
    os.mkfifo(fifo)
    # a file may have 1 KiB here: the same error path as a full disk
    script = f"ulimit -f 1; timeout 60 yes step 1 > {fifo} & exec {sys.executable} -m postmortem analyze {fifo}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False, timeout=120)
    assert done.returncode == 1 and b"could not store the input from train.log" in done.stderr
    assert b"TMPDIR=" in done.stderr and b"Traceback" not in done.stderr


def test_a_terminal_gets_a_prompt() -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-m", "postmortem", "analyze", "-"], stdin=theirs, stderr=subprocess.PIPE)
    assert run.stderr is not None and run.stderr.readline() == b"reading standard input; Ctrl-D ends it\n"
    os.write(ours, b"\x04")
    assert run.wait(60) == 3
    run.stderr.close()
    os.close(ours)
    os.close(theirs)


def test_a_path_that_was_given_twice_is_read_once(tmp_path: Path) -> None:
    with held([str(tmp_path), str(tmp_path)]) as files:
        assert files == [str(tmp_path), str(tmp_path)]
