"""`postmortem attach`: a report on the ticket of its incident."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from postmortem.cli import writing
from postmortem.cli.options import Quiet
from postmortem.errors import PathMissing, UsageError


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
