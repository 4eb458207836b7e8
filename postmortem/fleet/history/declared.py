"""How `postmortem history` is called; `cli.py` puts it among the others. What costs time is imported when
it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from postmortem.cli.declarations import Group, anonymised, argument, flag, moment
from postmortem.cli.declarations import history as where
from postmortem.system import output

incident = argument("incident", metavar="ID", help="An incident, as `history list` shows it.")
as_json = flag("--json", "as_json", help="As JSON.")


def asking(command: Any) -> Any:
    """The options that choose incidents."""
    for option in reversed(
        (
            click.option(
                "--since", metavar="TIME", help="Only later incidents (ISO 8601; UTC if it has no time zone)."
            ),
            click.option("--until", metavar="TIME", help="Only earlier incidents."),
            click.option("--category", metavar="NAME", help="Only of this category, such as host-oom."),
            click.option("--outcome", metavar="NAME", help="Only of this outcome, such as incident."),
            click.option("--host", metavar="NAME", help="Only where this host or GPU is at fault."),
            click.option("--job", metavar="ID", help="Only of this job."),
            click.option("--fingerprint", metavar="HEX", help="Only with this fingerprint, or its first part."),
        )
    ):
        command = option(command)
    return command


def _asked(**options: Any) -> dict[str, Any]:
    """The options as the store takes them."""
    from postmortem.fleet.history.rows import stamp

    found = {name: value for name, value in options.items() if value is not None}
    for name in ("since", "until"):
        if name in found:
            found[name] = stamp(moment(found[name], f"--{name}") or 0.0)
    if "fingerprint" in found and "-" not in found["fingerprint"]:
        found["cause"] = found.pop("fingerprint")
    return found


@click.group("history", cls=Group, no_args_is_help=True)
def history() -> None:
    """File verdicts, and ask what came before: how often, on which hosts, and what helped."""


@history.command("add")
@argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    help="Reports or documents of analyze, journals of run, or folders of them.",
)
@where
@flag("--anonymise", help="Keep pseudonyms in place of names; a host has the same one in every incident.")
def add(paths: tuple[str, ...], where: str | None, anonymise: bool) -> None:
    """File incidents that were analyzed before, and runs that ended well; what is there already is not added
    again."""
    from postmortem.fleet.history import command

    command.add(paths, where, anonymise)


@history.command("list")
@where
@asking
@click.option("-n", "limit", type=click.IntRange(min=1), metavar="N", default=50, help="At most so many; default 50.")
@as_json
def list_(where: str | None, limit: int, as_json: bool, **asked: Any) -> None:
    """List incidents, the latest first."""
    from postmortem.fleet.history import command

    output.data(command.listing(where, _asked(**asked) | {"limit": limit}, as_json))


@history.command("show")
@incident
@where
@as_json
def show(incident: str, where: str | None, as_json: bool) -> None:
    """Show one incident: what is kept of it, its notes, and when the same was seen."""
    from postmortem.fleet.history import command

    output.data(command.show(where, incident, as_json))


@history.command("note")
@incident
@argument("text", metavar="TEXT", help="What the cause was, or what helped.")
@where
def note(incident: str, text: str, where: str | None) -> None:
    """Attach a note to an incident; a verdict with the same fingerprint quotes the latest one."""
    from postmortem.fleet.history import command

    command.note(where, incident, text)


@history.command("hosts")
@where
@asking
@click.option(
    "--map",
    "mapping",
    metavar="FILE",
    type=Path,
    help="CSV: a column host, and others such as rack and switch.",
)
@click.option("--categories", metavar="LIST", help="What counts against a host, separated by commas; all: everything.")
@click.option(
    "--rate",
    type=click.FloatRange(0.0001, 0.5),
    metavar="Q",
    default=0.05,
    help="Share of false accusations; default 0.05.",
)
@as_json
def hosts(
    where: str | None, mapping: Path | None, categories: str | None, rate: float, as_json: bool, **asked: Any
) -> None:
    """Name hosts, GPUs, racks and switches that are at fault more often than chance explains."""
    from postmortem.fleet.history import command

    output.data(command.hosts(where, _asked(**asked), mapping, categories, rate, as_json))


@history.command("export")
@where
@asking
@click.option(
    "--output",
    "-o",
    "out",
    metavar="FILE|-",
    required=True,
    help="The file: .parquet, .csv or .ndjson; - is standard output, as ndjson.",
)
@anonymised
def export(where: str | None, out: str, anonymise: bool, **asked: Any) -> None:
    """Write incidents as a table, one row each."""
    from postmortem.fleet.history import command

    command.export(where, _asked(**asked), out, anonymise)


@history.command("report")
@where
@asking
@click.option("--output", "-o", "folder", metavar="DIR", type=Path, required=True, help="Where the pages go.")
def report(where: str | None, folder: Path, **asked: Any) -> None:
    """Write a static site: incidents over time, causes, hosts, and a page for each month."""
    from postmortem.fleet.history import command

    command.report(where, _asked(**asked), folder)


@history.command("forget")
@argument("incidents", metavar="[ID]...", nargs=-1, help="Incidents to delete.")
@click.option("--keep", metavar="AGE", help="Delete all that happened longer ago, such as 180d or 52w.")
@where
def forget(incidents: tuple[str, ...], keep: str | None, where: str | None) -> None:
    """Delete incidents, with their notes. Their reports stay."""
    from postmortem.fleet.history import command

    command.forget(where, incidents, keep)
