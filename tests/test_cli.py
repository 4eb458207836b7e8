"""The command line as its users meet it:
exit codes, what goes where, and sentences that say what to do next."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import stat
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from conftest import Command
from postmortem.cli import app as cli
from postmortem.cli.analyze import code as exit_code
from postmortem.errors import PostmortemError, UsageError
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


def postmortem(*arguments: str | Path, cwd: Path | None = None, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "postmortem", *map(str, arguments)]
    more |= {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, cwd=cwd, **more)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank0.log").write_text(PROGRESS)
    (logs / "rank1.log").write_text(PROGRESS[:300] + CRASH)
    return logs


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    logs = tmp_path / "fine"
    logs.mkdir()
    for rank in range(2):
        (logs / f"rank{rank}.log").write_text(PROGRESS)
    return logs


def one_sentence_and_a_hint(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr
    first, hint, *rest = done.stderr.splitlines()
    assert first.startswith("postmortem: ") and hint.startswith("  ") and not rest, done.stderr
    return done.stderr


# ── what goes where ─────────────────────────────────────────────────────────────────────────────────────────


def test_default_is_a_verdict_in_words_and_a_report_in_this_folder(crashed: Path, tmp_path: Path) -> None:
    done = postmortem("analyze", crashed, cwd=tmp_path)
    assert done.returncode == 0
    assert not done.stdout
    assert "ValueError: batch 7 has no labels" in done.stderr
    assert done.stderr.rstrip().endswith("postmortem-report.html")
    assert (tmp_path / "postmortem-report.html").read_text().lower().startswith("<!doctype html>")


def test_json_on_standard_output_is_the_document_and_nothing_else(crashed: Path, tmp_path: Path) -> None:
    done = postmortem("analyze", crashed, "--format", "json", "--output", "-", cwd=tmp_path)
    assert json.loads(done.stdout)["schema"] == "postmortem/incident/1"
    assert not done.stderr
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(("name", "start"), [("out.json", "{"), ("out.md", "#"), ("out.html", "<!")])
def test_the_format_follows_the_name_of_the_output(
    in_process: Command, crashed: Path, tmp_path: Path, name: str, start: str
) -> None:
    assert in_process("analyze", crashed, "--output", tmp_path / name).returncode == 0
    assert (tmp_path / name).read_text().startswith(start)


def test_a_reader_that_leaves_is_no_error() -> None:
    script = f"set -o pipefail; {sys.executable} -m postmortem patterns list | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0"
    assert not done.stderr


def test_interrupt_exits_130_without_a_traceback() -> None:
    # lint takes seconds, so the signal arrives while it works
    command = [sys.executable, "-m", "postmortem", "patterns", "lint"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in words


# ── exit codes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_exit_code_of_an_incident(in_process: Command, crashed: Path, tmp_path: Path) -> None:
    assert in_process("analyze", crashed).returncode == 0
    assert postmortem("analyze", crashed, "--exit-code", cwd=tmp_path).returncode == 10


def test_exit_code_of_a_healthy_run(in_process: Command, fine: Path) -> None:
    assert in_process("analyze", fine, "--exit-code", "--strict").returncode == 0


@pytest.mark.parametrize(
    ("outcome", "strict", "asked", "code"),
    [
        ("undetermined", False, False, 0),
        ("undetermined", True, False, 4),
        ("undetermined", False, True, 11),
        ("recovered", True, True, 12),
        ("incident", True, False, 0),
        ("healthy", False, True, 0),
    ],
)
def test_exit_codes_are_the_documented_ones(outcome: str, strict: bool, asked: bool, code: int) -> None:
    assert exit_code(outcome, strict, asked) == code


# ── what the user can mend ──────────────────────────────────────────────────────────────────────────────────


def test_missing_path(in_process: Command) -> None:
    assert "nowhere" in one_sentence_and_a_hint(in_process("analyze", "nowhere"), 2)


def test_empty_folder(in_process: Command, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    one_sentence_and_a_hint(in_process("analyze", "logs"), 3)
    assert not (tmp_path / "postmortem-report.html").exists()


def test_folder_without_readable_logs(in_process: Command, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "model.bin").write_bytes(bytes(range(256)) * 64)
    os.mkfifo(tmp_path / "logs" / "pipe")
    one_sentence_and_a_hint(in_process("analyze", "logs"), 3)


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", ".", "--since", "yesterday"),
        ("analyze", ".", "--output", "no/such/folder/report.html"),
        ("analyze", ".", "--output", "."),
        ("analyze", ".", "--patterns", "nowhere"),
        ("analyze", "a.log", "--output", "a.log"),
        ("analyze", "a.log", "--anonymise-map", "a.log"),
        ("analyze", ".", "--anonymise-map", "no/such/folder/key.json"),
        ("analyze", ".", "--open", "--format", "json"),
        ("explain", "kernel-oom"),
        ("patterns", "show", "no-such-thing"),
        ("patterns", "new", "NotAName"),
    ],
    ids=" ".join,
)
def test_usage_is_explained_before_anything_is_read(
    in_process: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "a.log").write_text(PROGRESS)
    one_sentence_and_a_hint(in_process(*arguments), 2)
    assert (tmp_path / "a.log").read_text() == PROGRESS


def test_the_key_of_the_pseudonyms_is_for_its_owner(crashed: Path, tmp_path: Path) -> None:
    host = crashed / "falcon-x1"
    host.mkdir()
    (crashed / "rank1.log").rename(host / "rank1.log")
    key, shown = tmp_path / "key.json", tmp_path / "out.json"
    key.write_text("{}")
    key.chmod(0o644)
    postmortem("analyze", crashed, "--anonymise-map", key, "--output", shown, cwd=tmp_path)
    said = json.loads(key.read_text())
    assert "falcon-x1" in said.values() and "falcon" not in shown.read_text()
    assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "arguments", [("analyze",), ("analize", "."), ("analyze", ".", "--format", "pdf")], ids=" ".join
)
def test_unknown_words_exit_2(in_process: Command, arguments: tuple[str, ...]) -> None:
    assert in_process(*arguments).returncode == 2


def test_a_pattern_that_does_not_load_is_named_with_its_line(
    in_process: Command, crashed: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "broken.yaml").write_text("id: broken\nrole: guess\n")
    words = one_sentence_and_a_hint(in_process("analyze", crashed, "--patterns", tmp_path / "mine"), 2)
    assert "broken.yaml:" in words


def test_an_error_of_our_own_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("postmortem.workshop.catalogue.listing", broken)
    assert cli.run(["patterns", "list"]) == 1
    assert "POSTMORTEM_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("POSTMORTEM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run(["patterns", "list"])


# ── files: the old one, or a complete new one ───────────────────────────────────────────────────────────────


def test_write_honours_the_umask_and_keeps_the_mode_of_an_old_file(tmp_path: Path) -> None:
    old_umask = os.umask(0o027)
    try:
        output.write_file(tmp_path / "new", "x")
        (tmp_path / "old").touch(0o600)
        output.write_file(tmp_path / "old", "x")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


def test_write_follows_a_link_and_leaves_it_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    output.write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    """A file-size limit stands in for a full disk: both fail in the middle of the write."""
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


def test_a_device_is_written_in_place() -> None:
    output.write_file(Path(os.devnull), "x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_target_is_checked_early(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        output.check_target(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        output.check_target(tmp_path / "no" / "report.html")


def test_words_survive_a_terminal_without_unicode(tmp_path: Path) -> None:
    done = postmortem("explain", "√", env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 2
    assert "\\u221a" in done.stderr


@pytest.mark.parametrize("call", ["is_dir", "exists"])
def test_what_the_system_refuses_is_no_error_of_our_own(
    call: str, in_process: Command, crashed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that may not be searched, or a file server that is ill, already where the output is checked."""
    real = getattr(Path, call)

    def refused(path: Path, **more: bool) -> bool:
        if path.name == "refused.html":
            raise PermissionError(13, "Permission denied", str(path))
        return bool(real(path, **more))

    monkeypatch.setattr(Path, call, refused)
    done = in_process("analyze", crashed, "--output", "refused.html")
    assert done.returncode == 1
    assert "refused.html: Permission denied" in done.stderr and "our own" not in done.stderr


def test_progress_fits_a_terminal_of_80_columns_and_shows_the_end_of_a_long_path() -> None:
    """A path of 100 characters pushed the bar, the speed and the rest of the path out of the line."""
    script = (
        "import time\nfrom postmortem.system import output\n"
        "with output.progress_bar() as show:\n"
        "    show(122 << 20, 655 << 20, 'node-0112/' * 12 + 'attempt_0/7/stderr.log')\n"
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
