"""`postmortem diff`: differences between two runs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli import writing
from postmortem.cli.options import Anonymise, AnonymiseMap, PatternFolders, Quiet
from postmortem.system import output

DIFFERENT = 13  # exit code of --exit-code for runs that differ

Form = StrEnum("Form", "terminal md html json")


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="The good run: logs, an archive, or a document or report of analyze.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The other run, in the same forms.")],
    out: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE|-", help="Output file; standard output by default.")
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", "-f", help="Output format; by default from the file's suffix, or terminal."),
    ] = None,
    folders: PatternFolders = None,
    anonymise: Anonymise = False,
    anonymise_map: AnonymiseMap = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Exit {DIFFERENT} if the runs differ in something that matters.")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Compare two runs: versions, settings, world, steps, first lines, verdict."""
    target = None if out in (None, "-") else Path(str(out))
    chosen = form or _by_name(target)
    if target is not None:
        output.check_target(target, (a, b))
    if anonymise_map:
        output.check_target(anonymise_map, [a, b, *filter(None, [target])], "--anonymize-map")
    from postmortem.fleet.diff import run
    from postmortem.fleet.diff.comparison import compared
    from postmortem.report.difference import render
    from postmortem.system import pool

    pool.tune()
    with output.progress_bar(quiet) as progress:
        pair = run.both(a, b, tuple(folders or ()), progress)
        found = compared(*pair)
    if anonymise or anonymise_map:
        from postmortem.report import anonymous

        found = anonymous.hidden_comparison(found, pair, anonymise_map)
    if target is None:
        output.data(render(found, chosen, output.width(), output.colour() and sys.stdout.isatty()))
    else:
        output.write_file(target, render(found, chosen))
        if not quiet:
            output.say(f"{found['headline']}\n  wrote {target}")
    return DIFFERENT if exit_code and found["differs"] else 0


def _by_name(target: Path | None) -> str:
    if target is None:
        return Form.terminal
    suffix = target.suffix.lstrip(".")
    return suffix if suffix in Form.__members__ else writing.html(target)
