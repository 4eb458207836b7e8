"""`postmortem completion SHELL`, typed into the real shells.

Each test has an empty PATH but for the shell's own needs: a completion that started `postmortem` or Python to find
its words would find none here.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import needs
from postmortem.cli import app as cli
from postmortem.cli import completion
from postmortem.cli import declarations as commands
from postmortem.library import load
from postmortem.replay.catalogue import SCENARIOS

ROOT_COMMAND = commands.read(cli.app)
NAMES = {"PATTERN": sorted(load().patterns), "SCENARIO": [row.id for row in SCENARIOS]}
COMMANDS = {command.name for command in ROOT_COMMAND.commands}
SETUP = {
    "bash": (
        ("bash", "--norc", "--noprofile", "-i"),
        "bind 'set show-all-if-ambiguous on' 'set page-completions off' 'set completion-query-items 0'; . {script}",
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        "LISTMAX=10000; fpath=({folder} $fpath); autoload -Uz compinit; compinit -D -u; unsetopt always_last_prompt",
    ),
}
Completes = Callable[[str], set[str]]


def read_until(terminal: int, mark: str, seconds: float = 20) -> str:
    """What the shell prints until the mark comes."""
    seen, end = b"", time.monotonic() + seconds
    while mark.encode() not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{mark} did not come; the shell printed {seen[-2000:]!r}"
        seen += os.read(terminal, 65536)
    return seen.decode(errors="replace")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with a log, a report, a file with a space, a folder, and no program on the PATH."""
    (tmp_path / "bin").mkdir()
    for tool in ("sed", "uname"):  # fish and zsh ask for these
        if path := shutil.which(tool):
            (tmp_path / "bin" / tool).symlink_to(path)
    work = tmp_path / "work"
    (work / "zz-logs").mkdir(parents=True)
    for name in ("zz-rank0.log", "zz report.html"):
        (work / name).write_text("")
    return tmp_path


def script_of(shell: str, folder: Path) -> Path:
    path = folder / ("_postmortem" if shell == "zsh" else f"postmortem.{shell}")
    path.write_text(completion.script(shell, ROOT_COMMAND, NAMES) + "\n")
    return path


@pytest.fixture(params=[pytest.param(s, marks=needs(s)) for s in ("bash", "zsh", "fish")])
def completes(request: pytest.FixtureRequest, bare: Path) -> Completes:
    """What the shell offers at TAB behind a line."""
    shell = str(request.param)
    script = script_of(shell, bare)
    program = shutil.which(shell)
    assert program
    env = {"PATH": str(bare / "bin"), "HOME": str(bare), "TERM": "xterm", "LC_ALL": "C.UTF-8"}

    def fish(line: str) -> set[str]:
        code = f"source {script}; complete -C '{line}'"
        done = subprocess.run(
            [program, "--no-config", "-c", code], cwd=bare / "work", env=env, capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        return {found.partition("\t")[0] for found in done.stdout.splitlines()}

    def typed(line: str) -> set[str]:
        words, setup = SETUP[shell]
        process, terminal = pty.fork()
        if not process:
            os.chdir(bare / "work")
            os.execve(program, [*words], env | {"COLUMNS": "200", "LINES": "2000"})
        try:
            os.write(terminal, (setup.format(script=script, folder=bare) + "; PS1='rea''dy> '\n").encode())
            read_until(terminal, "ready> ")  # before its prompt, the terminal would take ^U and TAB itself
            os.write(terminal, line.encode() + b"\t")
            os.write(terminal, b"\x15echo o''ver\n")  # kills the line, whatever TAB made of it
            shown = read_until(terminal, "over\r")
        finally:
            os.close(terminal)
            os.kill(process, 9)
            os.waitpid(process, 0)
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown.partition("echo o")[0])  # bold may begin within a name
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x07\x08\r]", " ", shown)
        return set(re.split(r"\s+", shown.replace("\\ ", "_")))

    return fish if shell == "fish" else typed


def test_commands_at_the_first_word(completes: Completes) -> None:
    assert completes("postmortem ") >= COMMANDS
    assert "analyze" in completes("postmortem ana")
    assert completes("postmortem patterns ") >= {"list", "show", "lint", "test", "new"}


def test_options_of_the_command_and_no_others(completes: Completes) -> None:
    offered = completes("postmortem analyze --")
    assert offered >= {"--output", "--format", "--anonymise-map", "--strict"}
    assert not offered & {"--nproc", "--from", "--list"}
    assert completes("postmortem patterns new --") >= {"--from", "--patterns"}


@pytest.mark.parametrize("line", ["analyze --format ", "analyze -f ", "analyze x.log --format="])
def test_choices_of_an_option(completes: Completes, line: str) -> None:
    offered = {word.removeprefix("--format=") for word in completes(f"postmortem {line}")}
    assert offered >= {"json", "parquet", "junit"} and "zz-rank0.log" not in offered


def test_shapes_and_shells(completes: Completes) -> None:
    assert completes("postmortem schema ") >= {"incident", "brief", "event"}
    assert completes("postmortem completion ") >= {"bash", "zsh", "fish"}


@pytest.mark.parametrize("command", ["explain", "patterns show", "patterns lint", "patterns test"])
def test_names_of_patterns(completes: Completes, command: str) -> None:
    """The one word of a verdict that nobody wants to type, at 3 a.m. least of all."""
    wanted = {name for name in NAMES["PATTERN"] if name.startswith("kernel-oom-")}
    offered = completes(f"postmortem {command} kernel-oom-")
    assert wanted and offered >= wanted
    assert not {name for name in offered if name in NAMES["PATTERN"]} - wanted


def test_names_of_scenarios(completes: Completes) -> None:
    wanted = {name for name in NAMES["SCENARIO"] if name.startswith("host-oom-")}
    assert len(wanted) > 1 and completes("postmortem replay host-oom-") >= wanted


def test_files_where_files_are_read_or_written(completes: Completes) -> None:
    for line in (
        "analyze zz",
        "analyze --format json zz",
        "replay zz",
        "replay --attach zz",
        "analyze -o zz",
    ):
        offered = completes(f"postmortem {line}")
        assert "zz-rank0.log" in offered and "zz-logs/" in offered, line


def test_only_folders_where_a_folder_is_wanted(completes: Completes) -> None:
    for line in ("analyze --baseline zz", "replay --keep zz", "explain --patterns zz"):
        offered = completes(f"postmortem {line}")
        assert "zz-logs/" in offered and "zz-rank0.log" not in offered, line


def test_nothing_where_nothing_is_known(completes: Completes) -> None:
    """A time or a job's id is no file: completing one to `zz-rank0.log` would be a trap."""
    for line in ("analyze --since zz", "analyze --job zz", "patterns new zz"):
        assert not completes(f"postmortem {line}") & {"zz-rank0.log", "zz-logs/"}, line


# ── the command, and what it is written from ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(in_process: Callable[..., subprocess.CompletedProcess[str]], shell: str) -> None:
    done = in_process("completion", shell)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout == completion.script(shell, ROOT_COMMAND, NAMES) + "\n"
    assert shell != "zsh" or done.stdout.startswith("#compdef postmortem\n")  # compinit finds it by this


def test_bounds_choices_and_defaults_are_known() -> None:
    known = {
        (" ".join(path), p.names[0] if p.names else p.metavar): p
        for path, c in commands.walk(ROOT_COMMAND)
        for p in c.parameters
    }
    assert known["replay", "--nproc"].bounds == "1 to 64" and known["analyze", "--jobs"].bounds == "at least 1"
    assert known["replay", "--backend"].default == "auto"
    assert known["replay", "--backend"].choices == ("auto", "nccl", "gloo")
    assert known["analyze", "PATH..."].required and known["analyze", "PATH..."].repeatable
