"""How `postmortem watch` is called; `cli.py` puts it among the others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import click

from postmortem.cli.declarations import Described, argument, choice, flag


class Form(StrEnum):
    text = "text"
    json = "json"


@click.command("watch", cls=Described)
@argument("paths", metavar="LOGS|RUN...", nargs=-1, required=True, help="Its logs, or the folder of `run`.")
@flag("--once", help="Look once, and end.")
@flag("--exit-code", help="End at the first hang, with exit code 10.")
@click.option("--on-hang", metavar="COMMAND", help="Run this when a hang is named.")
@flag("--analyze", help="Analyze the logs when the job has ended.")
@click.option("--format", "-f", "form", type=choice(Form), default="text", help="Text, or JSON lines.")
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=30.0,
    metavar="S",
    help="Seconds between two states; 30.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=1),
    default=60.0,
    metavar="S",
    help="Seconds of quiet that never count; default 60.",
)
@click.option(
    "--quiet-factor",
    type=click.FloatRange(min=1),
    default=4.0,
    metavar="N",
    help="Nor does N times the usual quiet; default 4.",
)
@click.option("--folder", metavar="DIR", type=Path, help="Where evidence is kept.")
@click.option("--job", metavar="ID", help="Only ranks of this torchrun run or Slurm job.")
@click.pass_context
def watch(
    context: click.Context,
    paths: tuple[str, ...],
    once: bool,
    exit_code: bool,
    on_hang: str | None,
    analyze: bool,
    form: str,
    interval: float,
    patience: float,
    quiet_factor: float,
    folder: Path | None,
    job: str | None,
) -> None:
    """Follow the logs of a running job, and name a hang while it hangs."""
    from postmortem.live.watch.command import Wishes, command_of, execute
    from postmortem.live.watch.rhythm import Settings

    wishes = Wishes(
        Settings(patience, quiet_factor, min(5.0, patience / 4)),
        interval,
        form,
        once,
        exit_code,
        analyze,
        command_of(on_hang),
        folder,
        job or "",
    )
    context.exit(execute(paths, wishes))
