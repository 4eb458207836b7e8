"""The reference of the command line and the man page are generated and complete."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import ROOT, needs
from postmortem.cli import overview
from scripts import reference


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "scripts/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_have_every_command_and_option() -> None:
    page, man = reference.cli_page(), reference.man_page().replace("\\-", "-")
    for command, context in reference.commands()[1:]:
        assert f"`{context.command_path}`" in page and f'.SS "{context.command_path}"' in man
        for option in (option for p in command.params if p.param_type_name == "option" for option in p.opts):
            assert option in page and option in man, (context.command_path, option)


def test_the_exit_codes_page_has_the_table_of_the_overview() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    rows = dict(re.findall(r"(?m)^\| ([0-9, ]+) \| (.+) \|$", page.partition("\n## ")[0]))
    assert rows == overview.EXIT_CODES


@needs("groff")
def test_the_man_page_renders_without_a_warning() -> None:
    words = ["groff", "-Tutf8", "-man", "-ww", "-rLL=200n", reference.REFERENCE / "postmortem.1"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr


def test_text_is_escaped_for_roff() -> None:
    assert reference.roff(".so /etc/passwd") == ["\\&.so /etc/passwd"]
    assert reference.roff("a\\fB b--c") == ["a\\efB b\\-\\-c"]
