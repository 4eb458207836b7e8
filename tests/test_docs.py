"""Commands, options, exit codes and links in the documents exist; the verdict in the README and the generated reference
are up to date, as are the rendered reports in reports/examples/; every recipe has its row in a page of docs/how-to that
states how it was tested."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from recipe_runs import RECIPES

from conftest import ROOT, Command, needs, python
from postmortem.cli import overview
from postmortem.cli.analyze import OUTCOME_CODES, STRICT_CODE
from postmortem.errors import PostmortemError
from scripts import examples, reference

DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "patterns/README.md")]
DOCUMENTS += [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
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
    assert (mentioned := [*mentioned_commands()])
    for document, arguments in mentioned:
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


def test_every_exit_code_is_in_the_overview() -> None:
    def codes(error: type[PostmortemError]) -> set[int]:
        return {error.exit_code}.union(*map(codes, error.__subclasses__()))

    all_codes = codes(PostmortemError) | set(OUTCOME_CODES.values()) | {STRICT_CODE, 130}
    for code in all_codes:
        assert re.search(rf"\b{code}\b", overview.text().partition("exit codes:")[2]), code


def test_links_lead_to_files() -> None:
    links = [(page, target) for page in DOCUMENTS for target in re.findall(r"\]\(([^)#]+)", page.read_text())]
    assert links
    for document, target in links:
        assert target.startswith("http") or (document.parent / target).exists(), (document, target)


def test_the_verdict_in_the_readme_is_todays(in_process: Command) -> None:
    command = re.search(r"\$ postmortem analyze (\S+)", README)
    assert command
    shown = README.split(command[0])[1].split("```")[0].splitlines()
    done = in_process("analyze", ROOT / command[1])
    today = [line.rstrip() for line in done.stderr.splitlines()]
    apart = ("…", "report")  # what is left out, and the path
    stale = [line for line in shown if line.rstrip() not in today and not line.strip().startswith(apart)]
    assert not stale, "paste what `make demo` prints into README.md"


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets == {*("help", "demo", "test", "check", "soak", "bench", "docs", "examples", "lock", "dist", "clean")}
    named = {name for page in DOCUMENTS for name in re.findall(r"^    make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert named and named <= targets


def test_the_generated_pages_are_up_to_date() -> None:
    done = python("scripts/reference.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_have_every_command_and_option() -> None:
    page, man = reference.cli_page(), reference.man_page().replace("\\-", "-")
    assert (commands := reference.commands()[1:])
    for command, context in commands:
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


RECIPE_FILES = sorted(p for p in RECIPES.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
FILES = [p for p in RECIPE_FILES if p.parent.name != "slurm"]  # its page has sentences
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
ROW = re.compile(r"^\| \[`[^`]+`\]\(([^)]+)\) \| .+ \| (.+) \|$", re.MULTILINE)
WORDS = re.compile(r"(commands )?run(; (manifest|file) validated|; \w+ itself did not)?|file validated")


def linked(pattern: re.Pattern[str]) -> dict[Path, tuple[str, ...]]:
    """Return the files that the pages link to in this way, and the other groups of the pattern."""
    return {
        (page.parent / found[1]).resolve(): found.groups()[1:]
        for page in PAGES
        for found in pattern.finditer(page.read_text())
    }


def test_each_recipe_has_a_page() -> None:
    assert RECIPE_FILES and {*RECIPE_FILES} <= linked(re.compile(r"\]\(([^)#]+)")).keys()


def test_page_states_how_each_recipe_was_tested() -> None:
    """Run, or validated by its schema only. A recipe that was run is named by a test of this folder."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*recipe*_*.py"))
    rows = linked(ROW)
    assert FILES
    for path in FILES:
        assert path in rows and WORDS.fullmatch(rows[path][0]), path.name
        assert path.name in tests or not rows[path][0].startswith(("run", "commands run")), path.name


@pytest.mark.slow
def test_examples_are_up_to_date() -> None:
    stale = examples.outdated(examples.everything())
    assert not stale, f"run `make examples` and look at what changed: {', '.join(stale)}"


def test_examples_have_a_page_for_each_kind_of_failure_and_are_small() -> None:
    readme, files = (examples.FOLDER / "README.md").read_text(), {f.name: f for f in examples.FOLDER.iterdir()}
    listed = re.findall(r"^\| \[\S+\]\(\S+\)(.*?) \| (\S+) \|", readme, re.MULTILINE)
    assert {kind for page, kind in listed if page} == {kind for _, kind in listed}
    assert files.keys() == {"README.md", *(f"{n}.md" for n in examples.SAMPLES), *(f"{n}.html" for n in examples.PAGES)}
    assert sum(file.stat().st_size for file in files.values()) < 5_000_000
