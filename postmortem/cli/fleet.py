"""`postmortem attach`, `diff` and `mcp`: reports for tickets, for comparisons, and for agents."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from postmortem.cli import writing
from postmortem.cli.options import Anonymise, AnonymiseMap, History, PatternFolders, Quiet
from postmortem.errors import PathMissing, UsageError
from postmortem.system import output


def attach(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="HTML report of `postmortem analyze`.")],
    ticket: Annotated[
        str, typer.Argument(metavar="URL", help="Issue of GitHub, GitLab, Jira or Redmine, or record of ServiceNow.")
    ],
    report_url: Annotated[str, typer.Option(metavar="URL", help="Address of the report, for the comment.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, and print what would be sent.")] = False,
    quiet: Quiet = False,
) -> None:
    """Attach a report to a ticket: the page, and a comment with the verdict."""
    from postmortem.replay import documents

    to = writing.Fleet((), ticket, report_url, dry_run)
    writing.check_fleet(to._replace(dry_run=True))  # the addresses; the credentials are asked for last
    if not report.is_file():
        raise PathMissing(f"{report} is not a file", "give the HTML report that `postmortem analyze` wrote")
    document = documents.read(report)
    page = report.read_bytes()
    writing.check_fleet(to)
    if page.lstrip().startswith(b"{"):
        raise UsageError(f"{report} is JSON, and a ticket gets the page", "give the HTML report")
    writing.ticket(SimpleNamespace(document=document, timeline=None), to, page, quiet)


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


def mcp(
    roots: Annotated[
        list[Path] | None,
        typer.Option("--root", metavar="DIR", help="Read only below it; the working directory by default."),
    ] = None,
    folders: PatternFolders = None,
    history: History = None,
) -> None:
    """Answer an agent's questions about failed jobs with the Model Context Protocol on stdin and stdout."""
    if find_spec("mcp") is None:
        raise UsageError("postmortem mcp needs the MCP SDK", "pip install 'torch-postmortem[mcp]'")
    own = [path.resolve() for path in folders or ()]
    from postmortem.fleet.mcp import server

    server.serve(tuple(roots or ()) or (Path(),), own, history)
