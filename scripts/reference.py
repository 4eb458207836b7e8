"""Write the reference of the command line, docs/reference/cli.md and the man page postmortem.1, and the ratios
that `make bench` measured into docs/performance.md.

python scripts/reference.py            write them
python scripts/reference.py --check    list outdated pages; exit 1 if there are any
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from postmortem.cli import app as cli
from postmortem.cli import overview
from postmortem.version import __version__

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "Written by scripts/reference.py from postmortem/cli/. Edit those files."
PERFORMANCE = ROOT / "docs" / "performance.md"
RATIOS = ROOT / "benchmarks" / "ratios.json"
HEAD = """\
`man postmortem` has the same text, and `postmortem --help` the overview. See also:
[exit codes](exit-codes.md), [shell completion](../how-to/completion.md).
"""


def walk(command: Any, context: typer.Context) -> Iterator[tuple[Any, typer.Context]]:
    """Yield every command with its context, the root first."""
    yield command, context
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        inner = command.get_command(context, name)
        yield from walk(inner, typer.Context(inner, parent=context, info_name=name))


def commands() -> list[tuple[Any, typer.Context]]:
    """Return all commands, with Typer's plain help in place of the boxes."""
    found = list(
        walk(cli.root(), typer.Context(cli.root(), info_name="postmortem", help_option_names=["-h", "--help"]))
    )
    for command, context in found:
        command.rich_markup_mode = None
        context.obj = {}
        context.terminal_width = context.max_content_width = 100
    return found


def cli_page() -> str:
    """Return the Markdown page of all commands, from Typer's own generator."""
    root, context = commands()[0]
    docs = get_docs_for_click(obj=root, ctx=context, name="postmortem", title="Command line")
    title, _, rest = docs.partition("\n\n")
    environment = "".join(f"* `{name}`: {meaning}\n" for name, meaning in overview.ENVIRONMENT.items())
    body = f"{HEAD}\n{rest.strip()}\n\n## Environment variables\n\n{environment}"
    lines = [line.rstrip() for line in body.splitlines()]
    return "\n".join([f"<!-- {NOTE} -->", "", title, "", *lines, ""])


def man_page() -> str:
    """Return postmortem(1): the overview and the help of each command."""
    lines = [f'.\\" {NOTE}', f'.TH POSTMORTEM 1 "" "postmortem {__version__}" "User Commands"', ".SH NAME"]
    lines += ["postmortem \\- find the root cause of a dead or hung distributed PyTorch job"]
    lines += [".SH SYNOPSIS", ".B postmortem", "COMMAND [OPTIONS] ...", ".SH DESCRIPTION", ".nf"]
    lines += [*roff(overview.text().partition("\n\n")[2]), ".fi", ".SH COMMANDS"]
    for command, context in commands()[1:]:
        help_text = textwrap.dedent(command.get_help(context).partition("\n")[2])
        lines += [f'.SS "{roff(context.command_path)[0]}"', ".nf", *roff(help_text.strip()), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR dmesg (1),", ".BR journalctl (1)", ""])


def performance_page() -> str:
    """Return docs/performance.md with the ratios of the last `make bench`."""
    made = json.loads(RATIOS.read_text())
    sizes = "the sizes above" if made["scale"] == 1 else f"{made['scale']:g} of the sizes above"
    lines = [
        f"`make bench` on {made['day']}: {made['cpus']} processors, load {' to '.join(map(str, made['load']))},",
        f"seed {made['seed']}, medians of {made['runs']} pairs, logs of {sizes};",
        f"ripgrep has {made['patterns'] or 'the same gates'}.",
        "",
        "| logs | ratio | median | range | goal |",
        "|---|---|---:|---|---:|",
    ]
    for row in made["ratios"]:
        goal, median = row["goal"] or "", f"{row['median']:.2f}"
        if goal and row["median"] > goal:
            median += ": **missed**"
        cells = (row["logs"], row["ratio"], median, f"{row['low']:.2f} to {row['high']:.2f}", goal)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    table = "\n".join(["\\g<1>", *lines, "\\g<2>"])
    return re.sub(r"(?s)(<!-- ratios: .*? -->)\n.*?(<!-- end of ratios -->)", table, PERFORMANCE.read_text())


def roff(text: str) -> list[str]:
    """Return the lines of a text, escaped for roff."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return [f"\\&{line}" if line.startswith((".", "'")) else line.rstrip() for line in plain.splitlines()]


def main() -> int:
    pages = {REFERENCE / "cli.md": cli_page(), REFERENCE / "postmortem.1": man_page(), PERFORMANCE: performance_page()}
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"out of date: {path.relative_to(ROOT)}; run {sys.executable} scripts/reference.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
