"""`postmortem collect`: short-lived evidence of hosts in one archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli.options import JOB_HELP
from postmortem.system import output
from postmortem.system.arguments import moment

HOSTS = "Several hosts"

app = typer.Typer(add_completion=False)


@app.command()
def collect(
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Archive: .tar.zst, .tar.gz or .tar.")
    ] = None,
    srun: Annotated[
        str | None, typer.Option(metavar="JOB", help="All hosts of this running Slurm job.", rich_help_panel=HOSTS)
    ] = None,
    ssh: Annotated[
        str | None,
        typer.Option(
            metavar="HOSTS|@FILE",
            help="These hosts, separated by commas, or one per line of FILE.",
            rich_help_panel=HOSTS,
        ),
    ] = None,
    kubectl: Annotated[
        str | None,
        typer.Option(metavar="SELECTOR", help="Pods with these labels, such as app=train.", rich_help_panel=HOSTS),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="With --kubectl: namespace of the pods.", rich_help_panel=HOSTS
        ),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(
            "--container", "-c", metavar="NAME", help="With --kubectl: container of each pod.", rich_help_panel=HOSTS
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="PROGRAM", help="Python 3.8 or later on the other hosts.", rich_help_panel=HOSTS),
    ] = None,
    timeout: Annotated[
        int | None, typer.Option(min=1, metavar="S", help="Time limit per host (seconds).", rich_help_panel=HOSTS)
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, max=512, metavar="N", help="Number of hosts at a time.", rich_help_panel=HOSTS),
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help=JOB_HELP)] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start of the job; by default that of its oldest rank, or a day ago."),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the items of the archive, with reasons and commands.")
    ] = False,
    no_redact: Annotated[bool, typer.Option("--no-redact", help="Do not mask secrets.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no table.")] = False,
) -> None:
    """Save short-lived evidence of a host (stacks, counters, kernel log, GPUs) in one archive."""
    from postmortem.live.collect import collection

    if listed:
        output.data(collection.listing())
        return
    options = collection.Options(
        out, srun, ssh, kubectl, namespace, container, python, timeout, parallel, job or "", moment(since, "--since")
    )
    collection.execute(replace(options, redact=not no_redact, quiet=quiet))
