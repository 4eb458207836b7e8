"""`postmortem run`: start a job and keep evidence of its failure."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli.options import History
from postmortem.live.run.switches import SWITCHES

Keep = StrEnum("Keep", "failed always")


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run, with its arguments.")],
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Folder with one subfolder per run.")] = Path(
        "postmortem-runs"
    ),
    keep: Annotated[Keep, typer.Option(help="Keep the folder of failed runs, or of every run.")] = Keep.failed,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="SWITCH", help=f"Do not set this diagnostic; repeatable: {', '.join(SWITCHES)}."),
    ] = None,
    no_analyze: Annotated[bool, typer.Option("--no-analyze", help="Do not analyze a failure.")] = False,
    history: History = None,
) -> int:
    """Run a job unchanged, keep evidence of a failure, and analyze it."""
    from postmortem.live.run.wrapper import execute

    return execute(command, folder, keep, without or (), not no_analyze, history)
