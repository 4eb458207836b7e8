"""The command line and its exit codes -> docs/reference/cli.md, exit-codes.md and the man page, postmortem.1.

    python scripts/reference.py            writes them
    python scripts/reference.py --check    says which are out of date; exit 1 if any is

All three are one walk over the same data: the overview that `postmortem --help` prints, the declarations of
the commands, the errors (postmortem/cli/overview.py, cli.py, errors.py). The other parts of the reference have
scripts of their own: pattern_catalogue.py writes the patterns, contract.py the document.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from postmortem.cli import app as cli
from postmortem.cli import declarations as commands
from postmortem.cli import overview
from postmortem.cli.declarations import Command, Parameter
from postmortem.errors import PostmortemError
from postmortem.system import process
from postmortem.version import __version__

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
COMMANDS = commands.read(cli.app)
NOTE = "Written by scripts/reference.py from {}. Edit those."
CLI_HEAD = """\
The same is in `man postmortem`, and in short in `postmortem --help`. What a command tells a script:
[exit codes](exit-codes.md). What a shell completes: [completion](../how-to/completion.md).
"""
CODES_HEAD = """\
Without `--strict` and `--exit-code`, `postmortem analyze` ends with 0 when the report is written, whatever it
says: a script that stops at the first error does not lose the report of a failed job.
"""


def single() -> Iterator[tuple[str, Command]]:
    """Every command that can be run, by its words, as the overview has them in order."""
    order = [*overview.COMMANDS]
    for path, command in sorted(commands.walk(COMMANDS), key=lambda row: order.index(row[0][0]) if row[0] else -1):
        if path and not command.commands:
            yield " ".join(path), command


def usage(words: str, command: Command) -> str:
    shown = [f"[{a.metavar}]" if not a.required and "[" not in a.metavar else a.metavar for a in command.arguments]
    return " ".join(("postmortem", words, *["[OPTIONS]"] * bool(command.options), *shown))


def notes(parameter: Parameter) -> list[str]:
    """What click adds to the help of a parameter: bounds, default, and whether it can be given again."""
    said = [parameter.bounds, f"default: {parameter.default}" if parameter.default else ""]
    if parameter.repeatable and parameter.names and "repeatable" not in parameter.help:
        said.append("repeatable")
    if not parameter.names and not parameter.required:
        said.append("may be left out")
    return [text for text in said if text]


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────


def cli_page() -> str:
    """Every command, argument and option."""
    lines = [
        f"<!-- {NOTE.format('postmortem/cli/app.py and postmortem/cli/overview.py')} -->",
        "",
        "# The command line",
        "",
    ]
    lines += [overview.DESCRIPTION, "", *CLI_HEAD.splitlines(), ""]
    lines += ["| command | |", "|---|---|"]
    for words, command in single():
        lines.append(f"| [`postmortem {words}`](#{words.replace(' ', '-')}) | {command.help} |")
    lines += ["", *(f"- `{name}`: {does}" for name, does in overview.OPTIONS.items())]
    lines += [f"- `{name}` in the environment {does}" for name, does in overview.ENVIRONMENT.items()]
    for words, command in single():
        lines += ["", f"## {words}", "", f"    {usage(words, command)}", "", command.help, ""]
        lines += [_item(p) for p in (*command.arguments, *command.options)]
    return "\n".join(lines) + "\n"


def _item(parameter: Parameter) -> str:
    value = "" if parameter.choices and parameter.names else f" {parameter.metavar}"
    choices = f" One of {', '.join(f'`{c}`' for c in parameter.choices)}." if parameter.choices else ""
    more = "; ".join(notes(parameter))
    spelled = (", ".join(parameter.names) + value).strip()
    return f"- `{spelled}`: {parameter.help}{choices}" + (f" ({more})" if more else "")


def codes_page() -> str:
    """What each exit code means, and what `analyze` makes of an outcome."""
    lines = [
        f"<!-- {NOTE.format('postmortem/cli/overview.py, cli.py and errors.py')} -->",
        "",
        "# Exit codes",
        "",
    ]
    lines += [*CODES_HEAD.splitlines(), ""]
    lines += ["| exit code | |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in overview.EXIT_CODES.items()]
    others = [s for s in process.STOPS if s != process.INTERRUPTED - 128]
    lines += ["", "130 is Ctrl-C. " + ", ".join(f"{128 + s} is {s.name}" for s in others) + "."]
    lines += ["", "## The outcome of an analysis", ""]
    lines += ["| outcome | alone | `--strict` | `--exit-code` |", "|---|---|---|---|"]
    for outcome in cli.OUTCOME_CODES:
        row = [cli.code(outcome, strict, full) for strict, full in ((False, False), (True, False), (False, True))]
        lines.append(f"| {outcome} | {' | '.join(map(str, row))} |")
    lines += [
        "",
        "## Errors",
        "",
        "Each comes with one sentence on standard error, and the next step below it.",
        "",
    ]
    lines += ["| exit code | error | |", "|---|---|---|"]
    for error in errors():
        lines.append(f"| {error.exit_code} | {error.__name__} | {commands.one_line(error.__doc__ or '')} |")
    return "\n".join(lines) + "\n"


def errors(error: type[PostmortemError] = PostmortemError) -> Iterator[type[PostmortemError]]:
    """Every kind of error below this one."""
    for inner in error.__subclasses__():
        yield inner
        yield from errors(inner)


# ── roff ────────────────────────────────────────────────────────────────────────────────────────────────────


def man_page() -> str:
    """postmortem(1)."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    lines = [f'.\\" {NOTE.format("postmortem/cli/app.py and postmortem/cli/overview.py")}']
    lines += [f'.TH POSTMORTEM 1 "" "postmortem {__version__}" "User Commands"']
    lines += [".SH NAME", f"postmortem \\- {roff(about[0].lower() + about[1:])}", ".SH SYNOPSIS"]
    for words, command in single():
        name, _, rest = usage(words, command).partition(f" {words}")
        lines += [f".B {name} {roff(words)}", *([roff(rest.strip())] if rest.strip() else []), ".br"]
    lines += [".SH DESCRIPTION", roff(commands.one_line(overview.DESCRIPTION)), ".SH OPTIONS"]
    lines += [line for name, does in overview.OPTIONS.items() for line in (".TP", f".B {roff(name)}", roff(does))]
    lines += [".SH COMMANDS"]
    for words, command in single():
        lines += [f'.SS "{roff(usage(words, command))}"', roff(command.help)]
        lines += [line for p in (*command.arguments, *command.options) for line in _entry(p)]
    lines += [".SH EXIT STATUS"]
    for codes, meaning in overview.EXIT_CODES.items():
        lines += [".TP", f".B {codes}", roff(meaning)]
    lines += [".SH ENVIRONMENT"]
    for name, does in overview.ENVIRONMENT.items():
        lines += [".TP", f".B {roff(name)}", roff(does)]
    lines += [".SH EXAMPLES"]
    for line, means in overview.EXAMPLES.items():
        lines += [".PP", *([roff(means) + ":", ".br"] if means else []), f".B {roff(line)}"]
    lines += [".SH SEE ALSO", ".BR dmesg (1),", ".BR journalctl (1)"]
    return "\n".join(lines) + "\n"


def _entry(parameter: Parameter) -> Iterator[str]:
    yield ".TP"
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in parameter.names)
    yield f"{names} \\fI{roff(parameter.metavar)}\\fR".strip() if parameter.metavar else names
    more = "; ".join(notes(parameter))
    yield roff(parameter.help + (f" ({more})" if more else ""))


def roff(text: str) -> str:
    """Text as roff has it: a hyphen that can be copied, and no first character that begins a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def pages() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    texts = {"cli.md": cli_page(), "exit-codes.md": codes_page(), "postmortem.1": man_page()}
    return {REFERENCE / name: text for name, text in texts.items()}


def main() -> int:
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"out of date: {path.relative_to(ROOT)}")
        if stale:
            print(f"run {sys.executable} scripts/reference.py")
        return 1 if stale else 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(pages()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
