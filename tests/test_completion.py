"""Shell completion: the scripts parse, and TAB in bash completes commands, options and names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from conftest import Command, needs, table

CASES = table("completion")["cases"]


def test_words_are_completed() -> None:
    for line, wanted in CASES.items():
        given = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_POSTMORTEM_COMPLETE": "complete_bash"}
        done = subprocess.run(
            [sys.executable, "-m", "postmortem"], env=os.environ | given, capture_output=True, text=True
        )
        assert any(word.startswith(wanted) for word in done.stdout.split()), (line, done)


@pytest.mark.parametrize("shell", [pytest.param(s, marks=needs(s)) for s in ("bash", "zsh", "fish")])
def test_the_script_parses_in_its_shell(in_process: Command, shell: str) -> None:
    done = in_process("completion", shell)
    assert done.returncode == 0 and not done.stderr
    program = shutil.which(shell)
    assert program
    subprocess.run([program, "-n"], input=done.stdout, text=True, check=True)
