"""`postmortem history`: stored verdicts of many jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from postmortem.cli.options import Anonymise, History, Json
from postmortem.system import output
from postmortem.system.arguments import moment

Id = Annotated[str, typer.Argument(metavar="ID", help="Incident, as `history list` shows it.")]
FILTER = "Filter"


def _filter(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=FILTER)


Since = Annotated[str | None, _filter("TIME", "Only later incidents (ISO 8601; UTC without a time zone).")]
Until = Annotated[str | None, _filter("TIME", "Only earlier incidents.")]
Category = Annotated[str | None, _filter("NAME", "Only this category, such as host-oom.")]
Outcome = Annotated[str | None, _filter("NAME", "Only this outcome, such as incident.")]
Host = Annotated[str | None, _filter("NAME", "Only incidents with this host or GPU at fault.")]
Job = Annotated[str | None, _filter("ID", "Only this job.")]
Fingerprint = Annotated[str | None, _filter("HEX", "Only this fingerprint, or its first part.")]

app = typer.Typer(
    name="history",
    add_completion=False,
    no_args_is_help=True,
    help="Store verdicts and find earlier ones: how often, on which hosts, and which fix helped.",
)


def _query(
    since: str | None,
    until: str | None,
    category: str | None,
    outcome: str | None,
    host: str | None,
    job: str | None,
    fingerprint: str | None,
) -> dict[str, Any]:
    """Return the filter options as keyword arguments of the store."""
    from postmortem.fleet.history.rows import stamp

    wanted = {
        "since": stamp(moment(since, "--since") or 0.0) if since is not None else None,
        "until": stamp(moment(until, "--until") or 0.0) if until is not None else None,
        "category": category,
        "outcome": outcome,
        "host": host,
        "job": job,
        "fingerprint" if fingerprint and "-" in fingerprint else "cause": fingerprint,
    }
    return {name: value for name, value in wanted.items() if value is not None}


@app.command()
def add(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Reports or documents of analyze, journals of run, or folders with them."
        ),
    ],
    history: History = None,
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymize",
            "--anonymise",
            help="Store pseudonyms for names, the same ones in every incident.",
        ),
    ] = False,
) -> None:
    """Store incidents that were analyzed before, and runs that ended well. Known ones are not added again."""
    from postmortem.fleet.history import command

    command.add(paths, history, anonymise)


@app.command("list")
def list_incidents(
    history: History = None,
    since: Since = None,
    until: Until = None,
    category: Category = None,
    outcome: Outcome = None,
    host: Host = None,
    job: Job = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[int, typer.Option("-n", min=1, metavar="N", help="Maximum number of incidents.")] = 50,
    as_json: Json = False,
) -> None:
    """List incidents, the latest first."""
    from postmortem.fleet.history import command

    query = _query(since, until, category, outcome, host, job, fingerprint)
    output.data(command.listing(history, query | {"limit": limit}, as_json))


@app.command()
def show(incident: Id, history: History = None, as_json: Json = False) -> None:
    """Show one incident: its record, its notes, and when the same one was seen."""
    from postmortem.fleet.history import command

    output.data(command.show(history, incident, as_json))


@app.command()
def check(history: History = None) -> None:
    """Check the file of a history for damage."""
    from postmortem.fleet.history import command

    output.data(command.check(history, repair=False))


@app.command()
def repair(history: History = None) -> None:
    """Replace a damaged file by the copy of the last day, and by what can be read of the file."""
    from postmortem.fleet.history import command

    output.data(command.check(history, repair=True))


@app.command()
def note(
    incident: Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The cause, or the fix that helped.")],
    history: History = None,
) -> None:
    """Attach a note to an incident. A verdict with the same fingerprint quotes the latest note."""
    from postmortem.fleet.history import command

    command.note(history, incident, text)


@app.command()
def hosts(
    history: History = None,
    since: Since = None,
    until: Until = None,
    category: Category = None,
    outcome: Outcome = None,
    host: Host = None,
    job: Job = None,
    fingerprint: Fingerprint = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="CSV with a column host, and others such as rack and switch."),
    ] = None,
    categories: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Categories that count against a host, separated by commas, or all."),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.0001, max=0.5, metavar="Q", help="Expected share of false accusations.")
    ] = 0.05,
    as_json: Json = False,
) -> None:
    """List hosts, GPUs, racks and switches that are at fault more often than chance explains."""
    from postmortem.fleet.history import command

    query = _query(since, until, category, outcome, host, job, fingerprint)
    output.data(command.hosts(history, query, mapping, categories, rate, as_json))


@app.command()
def export(
    out: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|-",
            help="Output file: .parquet, .csv or .ndjson; - is standard output, as ndjson.",
        ),
    ],
    history: History = None,
    since: Since = None,
    until: Until = None,
    category: Category = None,
    outcome: Outcome = None,
    host: Host = None,
    job: Job = None,
    fingerprint: Fingerprint = None,
    anonymise: Anonymise = False,
) -> None:
    """Write incidents as a table, one row each."""
    from postmortem.fleet.history import command

    command.export(history, _query(since, until, category, outcome, host, job, fingerprint), out, anonymise)


@app.command()
def report(
    target: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the pages.")] = Path(
        "postmortem-history"
    ),
    history: History = None,
    since: Since = None,
    until: Until = None,
    category: Category = None,
    outcome: Outcome = None,
    host: Host = None,
    job: Job = None,
    fingerprint: Fingerprint = None,
) -> None:
    """Write a static site: incidents over time, causes, hosts, and a page for each month."""
    from postmortem.fleet.history import command

    command.report(history, _query(since, until, category, outcome, host, job, fingerprint), target)


@app.command()
def forget(
    incidents: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Incidents to delete.")] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="AGE", help="Delete all incidents that are older, such as 180d or 52w.")
    ] = None,
    history: History = None,
) -> None:
    """Delete incidents and their notes. Their reports stay."""
    from postmortem.fleet.history import command

    command.forget(history, incidents or [], keep)
