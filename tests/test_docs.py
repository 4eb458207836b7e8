"""Commands, options, exit codes and links in the documents exist; the verdict in the README is up to date."""

from __future__ import annotations

import re
import shlex

from conftest import ROOT
from postmortem import analyze, report
from postmortem.cli import overview
from postmortem.cli.analyze import OUTCOME_CODES, STRICT_CODE
from postmortem.errors import PostmortemError
from scripts import reference

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "patterns" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
README = (ROOT / "README.md").read_text()
ALL = {context.command_path: command for command, context in reference.commands()}


def mentioned_commands() -> list[tuple[str, list[str]]]:
    """Return every `postmortem …` line of the documents, cut at its comment."""
    found = []
    for document in DOCUMENTS:
        for line in re.findall(r"(?:^    |`|\$ )postmortem ([a-z][^`\n]*)", document.read_text(), re.MULTILINE):
            ours = re.split(r" --(?: |$)", line.partition("  #")[0])[0]  # behind it is the command of a job
            found.append((document.name, shlex.split(ours.replace("…", ""))))
    return found


def test_commands_in_the_documents_exist() -> None:
    for document, arguments in mentioned_commands():
        path = "postmortem"
        while arguments and hasattr(ALL[path], "list_commands"):
            name = arguments.pop(0)
            if "|" in name:  # `patterns list|show|...`
                assert all(f"{path} {each}" in ALL for each in name.split("|")), (document, name)
                break
            path = f"{path} {name}"
            assert path in ALL, (document, path)
        else:
            options = {option for parameter in ALL[path].params for option in parameter.opts}
            assert {a for a in arguments if a.startswith("--")} <= options, (document, arguments)


def test_every_command_and_option_has_a_help_text() -> None:
    for path, command in ALL.items():
        assert command.help, path
        assert all(parameter.help for parameter in command.params), path


def test_every_exit_code_is_in_the_readme_and_in_the_overview() -> None:
    def codes(error: type[PostmortemError]) -> set[int]:
        return {error.exit_code}.union(*map(codes, error.__subclasses__()))

    all_codes = codes(PostmortemError) | set(OUTCOME_CODES.values()) | {STRICT_CODE, 130}
    table = "\n".join(line for line in README.splitlines() if re.match(r"\| [0-9]", line))
    for code in all_codes:
        assert re.search(rf"\b{code}\b", table), code
        assert re.search(rf"\b{code}\b", overview.text().partition("exit codes:")[2]), code


def test_links_lead_to_files() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert target.startswith("http") or (document.parent / target).exists(), (document, target)


def test_the_verdict_in_the_readme_is_todays() -> None:
    command = re.search(r"\$ postmortem analyze (\S+)", README)
    assert command
    shown = README.split(command[0])[1].split("```")[0].splitlines()
    today = [line.rstrip() for line in report.render_terminal(analyze([str(ROOT / command[1])])).splitlines()]
    of_a_command = ("…", "report")  # omissions, and lines that `_summary` adds
    stale = [line for line in shown if line.rstrip() not in today and not line.strip().startswith(of_a_command)]
    assert not stale, "paste what `make demo` prints into README.md"


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets == {*("help", "demo", "test", "check", "soak", "bench", "docs", "examples", "lock", "dist", "clean")}
    for document in DOCUMENTS:
        assert set(re.findall(r"^    make ([a-z]+)", document.read_text(), re.MULTILINE)) <= targets
