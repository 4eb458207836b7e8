"""The command line of `postmortem replay`. What costs time is imported when it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import click

from postmortem.cli.declarations import argument, choice, flag
from postmortem.errors import UsageError
from postmortem.system import output


class Backend(StrEnum):
    auto = "auto"
    nccl = "nccl"
    gloo = "gloo"


@click.command()
@argument("what", metavar="SCENARIO|REPORT", required=False, help="A scenario, or a report.")
@flag("--list", "listed", help="List the scenarios and what each needs.")
@click.option("--set", "set_", metavar="KEY=VALUE", multiple=True, help="A parameter, such as rank=2.")
@click.option("--nproc", type=click.IntRange(1, 64), metavar="N", help="Number of ranks.")
@click.option(
    "--backend",
    type=choice(Backend),
    default="auto",
    help="auto: nccl if every rank has a GPU, otherwise gloo.",
)
@click.option("--write", metavar="FILE", type=Path, help="Write a stand-alone script instead of running it.")
@click.option("--keep", metavar="DIR", type=Path, help="Keep the logs of the replay.")
@click.option("--record", metavar="DIR", type=Path, help="Store the run as a sample incident.")
@click.option("--attach", metavar="REPORT", type=Path, help="Add the result to this report.")
@flag("--json", "as_json", help="As JSON.")
@click.pass_context
def replay(
    context: click.Context,
    what: str | None,
    listed: bool,
    set_: tuple[str, ...],
    nproc: int | None,
    backend: str,
    write: Path | None,
    keep: Path | None,
    record: Path | None,
    attach: Path | None,
    as_json: bool,
) -> None:
    """Reproduce a failure in miniature with real processes, and check that the verdict is the same."""
    from postmortem.replay import command

    if listed:
        output.data(command.listing(as_json))
        return
    if not what:
        raise UsageError(
            "nothing to replay",
            "name a scenario of `postmortem replay --list`, or a report of `postmortem analyze`",
        )
    wishes = command.Wishes(set_, nproc or 0, backend, write, keep, record, attach, as_json)
    context.exit(command.execute(what, wishes))
