"""`postmortem explain`: the meaning of a pattern."""

from __future__ import annotations

import typer

from postmortem.cli.options import PatternFolders, PatternId
from postmortem.system import output
from postmortem.system.arguments import folder

app = typer.Typer(add_completion=False)


@app.command()
def explain(pattern: PatternId, folders: PatternFolders = None) -> None:
    """Explain a pattern: its meaning, how it looks, and how to fix the cause."""
    from postmortem.workshop import catalogue

    output.data(catalogue.explain(catalogue.find(pattern, map(folder, folders or ()))))
