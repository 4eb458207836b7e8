"""The reference of the command line, and the man page: written from the code, complete, and readable."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from conftest import ROOT, needs
from postmortem.cli import app as cli
from postmortem.cli import declarations as commands
from postmortem.cli import overview

REFERENCE = ROOT / "docs" / "reference"
MAN = REFERENCE / "postmortem.1"
COMMANDS = [(" ".join(path), c) for path, c in commands.walk(commands.read(cli.app)) if path and not c.commands]


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "scripts/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_option_that_changes_makes_them_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT))
    from scripts import reference

    monkeypatch.setitem(overview.OPTIONS, "--colour", "paint it")
    stale = [path.name for path, text in reference.pages().items() if path.read_text() != text]
    assert stale == ["cli.md", "postmortem.1"]


@pytest.fixture(scope="module")
def read() -> str:
    """The man page as a terminal shows it, without the bold."""
    done = subprocess.run(["groff", "-Tutf8", "-man", "-ww", "-rLL=200n", MAN], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)


@needs("groff")
def test_the_man_page_renders_without_a_warning(read: str) -> None:
    heads = re.findall(r"(?m)^([A-Z][A-Z ]+)$", read)
    wanted = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "COMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "EXAMPLES",
    ]
    assert [head for head in heads if head in wanted] == wanted


@needs("groff")
@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_the_man_page_names_each_command_and_option(read: str, words: str, command: commands.Command) -> None:
    body = read.partition("\nCOMMANDS\n")[2].partition("\nEXIT STATUS\n")[0]
    parts = re.split(r"(?m)^   (?=postmortem )", body)
    (section,) = (part for part in parts if re.match(rf"postmortem {words}( [\[A-Za-z]|\n)", part))
    for parameter in command.parameters:
        for word in (*parameter.names, parameter.metavar, *parameter.help.split()):
            assert word in section, word


@needs("groff")
def test_the_man_page_says_what_the_overview_says(read: str) -> None:
    flat = " ".join(read.split())
    for text in (overview.DESCRIPTION, *overview.EXAMPLES, *overview.EXIT_CODES.values()):
        assert " ".join(text.split()) in flat


def test_a_hostile_help_text_stays_text() -> None:
    sys.path.insert(0, str(ROOT))
    from scripts import reference

    assert reference.roff(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert reference.roff("a\\fB b--c") == "a\\efB b\\-\\-c"
