"""The command line of `postmortem diff`. What costs time is imported when it runs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

import click

from postmortem.cli import declarations as commands
from postmortem.cli.declarations import Described, argument, choice, flag, pattern_folders
from postmortem.errors import UsageError
from postmortem.system import output

DIFFERENT = 13  # what --exit-code ends with


class Form(StrEnum):
    terminal = "terminal"
    md = "md"
    html = "html"
    json = "json"


@click.command(cls=Described)
@argument("a", metavar="A", help="Logs, an archive, or a document or report that analyze wrote: the good run.")
@argument("b", metavar="B", help="The same of the other run.")
@click.option("--output", "-o", "out", metavar="FILE|-", help="Output file; default standard output.")
@click.option(
    "--format",
    "-f",
    "form",
    type=choice(Form),
    help="Output format; default by the file's name, or terminal.",
)
@pattern_folders
@commands.anonymised
@commands.anonymise_map
@flag("--exit-code", help=f"Exit {DIFFERENT} if they differ in something that matters, otherwise 0.")
@commands.quiet
@click.pass_context
def diff(
    context: click.Context,
    a: str,
    b: str,
    out: str | None,
    form: str | None,
    folders: tuple[Path, ...],
    anonymise: bool,
    anonymise_map: Path | None,
    exit_code: bool,
    quiet: bool,
) -> None:
    """Say what differs between two runs: versions, settings, world, steps, first lines, verdict."""
    target = None if out in (None, "-") else Path(str(out))
    chosen = form or _by_name(target)
    if target is not None:
        _check(target, (a, b))
    if anonymise_map:
        output.check_key(anonymise_map, target, (a, b))
    from postmortem.fleet.diff import run
    from postmortem.fleet.diff.comparison import compared
    from postmortem.report.difference import render
    from postmortem.system import pool

    pool.tune()
    with output.progress_bar(quiet) as progress:
        pair = run.both(a, b, tuple(map(commands.folder, folders)), progress)
        found = compared(*pair)
    if anonymise or anonymise_map:
        from postmortem.report import pseudonyms

        found = pseudonyms.put_in_comparison(found, pair, anonymise_map)
    if target is None:
        output.data(render(found, chosen, output.width(), output.colour() and sys.stdout.isatty()))
    else:
        output.write_file(target, render(found, chosen))
        if not quiet:
            output.say(f"{found['headline']}\n  wrote {target}")
    context.exit(DIFFERENT if exit_code and found["differs"] else 0)


def _by_name(target: Path | None) -> str:
    suffix = target.suffix.lstrip(".") if target is not None else ""
    return suffix if suffix in Form.__members__ else Form.html.value if target is not None else Form.terminal.value


def _check(target: Path, paths: tuple[str, str]) -> None:
    output.check_target(target)
    if target.is_file() and any(Path(path).is_file() and target.samefile(path) for path in paths):
        raise UsageError(f"--output {target} would overwrite what is compared", "name another file")
