"""`postmortem watch`: follow the logs of a running job."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli.options import JOB_HELP

Form = StrEnum("Form", "text json")


def watch(
    paths: Annotated[list[str], typer.Argument(metavar="LOGS|RUN...", help="Logs of the job, or the folder of `run`.")],
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 10 at the first hang.")] = False,
    on_hang: Annotated[str | None, typer.Option(metavar="COMMAND", help="Command to run at a hang.")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyze the logs when the job has ended.")] = False,
    form: Annotated[Form, typer.Option("--format", "-f", help="Output format: text or JSON lines.")] = Form.text,
    interval: Annotated[float, typer.Option(min=1, metavar="S", help="Seconds between two states.")] = 30,
    patience: Annotated[
        float, typer.Option(min=1, metavar="S", help="Minimum quiet time before a hang is reported (seconds).")
    ] = 60,
    quiet_factor: Annotated[
        float, typer.Option(min=1, metavar="N", help="Minimum quiet time as a multiple of the usual quiet time.")
    ] = 4,
    folder: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the evidence of hangs.")] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help=JOB_HELP)] = None,
) -> int:
    """Follow the logs of a running job and report a hang while it lasts."""
    from postmortem.live.watch.rhythm import Settings
    from postmortem.live.watch.watcher import Options, command_words, execute
    from postmortem.system.process import tune

    tune()

    options = Options(
        Settings(patience, quiet_factor, min(5.0, patience / 4)),
        interval,
        form,
        once,
        exit_code,
        analyze,
        command_words(on_hang),
        folder,
        job or "",
    )
    return execute(paths, options)
