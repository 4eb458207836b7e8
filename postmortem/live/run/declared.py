"""How `postmortem run` is called; `cli.py` puts it among the others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import click

from postmortem.cli.declarations import Described, argument, choice, flag, history


class Keep(StrEnum):
    failed = "failed"
    always = "always"


@click.command("run", cls=Described, context_settings={"allow_interspersed_args": False})
@argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED, help="What to run.")
@click.option(
    "--folder",
    metavar="DIR",
    type=Path,
    default=Path("postmortem-runs"),
    help="Where each run gets a folder of its own.",
)
@click.option(
    "--keep",
    type=choice(Keep),
    default="failed",
    help="Keep the folder of a run that failed, or of every run.",
)
@click.option("--without", metavar="SWITCH", multiple=True, help="Do not switch this on for the job; repeatable.")
@flag("--no-analyze", help="Only keep the evidence of a failure.")
@history
@click.pass_context
def run(
    context: click.Context,
    command: tuple[str, ...],
    folder: Path,
    keep: str,
    without: tuple[str, ...],
    no_analyze: bool,
    where: str | None,
) -> None:
    """Run a job as it would run alone, keep what tells why it failed, and analyze it if it does."""
    from postmortem.live.run.command import Wishes, execute

    context.exit(execute(command, Wishes(folder, keep, without, not no_analyze, where)))
