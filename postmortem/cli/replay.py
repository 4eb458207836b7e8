"""`postmortem replay`: a small real reproduction of a failure."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli.options import Json
from postmortem.errors import UsageError
from postmortem.system import output

app = typer.Typer(add_completion=False)


class Backend(StrEnum):
    auto = "auto"
    nccl = "nccl"
    gloo = "gloo"


def complete_scenario(incomplete: str) -> list[str]:
    """Return the scenario ids that start with the incomplete word."""
    from postmortem.replay.catalogue import SCENARIOS

    return [row.id for row in SCENARIOS if row.id.startswith(incomplete)]


@app.command()
def replay(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO|REPORT", help="Scenario id, or a report of analyze.", autocompletion=complete_scenario
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scenarios and their requirements.")] = False,
    pairs: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Parameter, such as rank=2; repeatable.")
    ] = None,
    nproc: Annotated[int | None, typer.Option(min=1, max=64, metavar="N", help="Number of ranks.")] = None,
    backend: Annotated[
        Backend, typer.Option(help="Backend; auto is nccl if every rank has a GPU, otherwise gloo.")
    ] = Backend.auto,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained script instead of running it.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the logs of the replay here.")] = None,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Store the run as a sample incident.")] = None,
    attach: Annotated[Path | None, typer.Option(metavar="REPORT", help="Add the result to this report.")] = None,
    as_json: Json = False,
) -> int:
    """Reproduce a failure with a few real processes and check that the verdict is the same."""
    from postmortem.replay import command

    if listed:
        output.data(command.listing(as_json))
        return 0
    if not name:
        raise UsageError(
            "nothing to replay",
            "name a scenario of `postmortem replay --list`, or a report of `postmortem analyze`",
        )
    wishes = command.Wishes(tuple(pairs or ()), nproc or 0, backend, write, keep, record, attach, as_json)
    return command.execute(name, wishes)
