"""The command line of `postmortem collect`. What costs time is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from postmortem.cli.declarations import flag, moment
from postmortem.system import output


@click.command()
@click.option("--output", "-o", "out", metavar="FILE", type=Path, help="The archive: .tar.zst, .tar.gz or .tar.")
@click.option("--srun", metavar="JOB", help="On all hosts of this running Slurm job.")
@click.option("--ssh", metavar="HOSTS|@FILE", help="On these hosts, separated by commas, or one a line.")
@click.option("--kubectl", metavar="SELECTOR", help="On the pods with these labels, such as app=train.")
@click.option("--namespace", "-n", metavar="NAME", help="With --kubectl: their namespace.")
@click.option("--container", "-c", metavar="NAME", help="With --kubectl: the container of each pod.")
@click.option("--python", metavar="PROGRAM", help="The Python of the other hosts, 3.8 or later.")
@click.option("--timeout", type=click.IntRange(min=1), metavar="S", help="Seconds that each of many hosts may take.")
@click.option("--parallel", type=click.IntRange(1, 512), metavar="N", help="How many hosts at a time.")
@click.option("--job", metavar="ID", help="Only ranks of this torchrun run or Slurm job.")
@click.option("--since", metavar="TIME", help="The job's start. Default: its oldest rank's, or a day ago.")
@flag("--list", "listed", help="List what is taken: why, and with which command.")
@flag("--no-redact", help="Do not mask secrets.")
@flag("--quiet", "-q", help="No table.")
def collect(listed: bool, **asked: Any) -> None:
    """Save what a host forgets first (stacks, counters, kernel log, GPUs) into one archive."""
    from postmortem.live.collect import command

    if listed:
        output.data(command.listing())
        return
    asked["since"] = moment(asked["since"], "--since")
    command.execute(command.wishes(**asked))
