"""`postmortem completion`: shell completion."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer import completion as shells

from postmortem.system import output

Shell = StrEnum("Shell", "bash zsh fish")
app = typer.Typer(add_completion=False)


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="Shell that reads the script.")]) -> None:
    """Print the script that completes commands, options and names in a shell."""
    values = {"prog_name": "postmortem", "complete_var": "_POSTMORTEM_COMPLETE", "shell": shell.value}
    output.data(shells.get_completion_script(**values))  # type: ignore[attr-defined]  # not in its __all__
