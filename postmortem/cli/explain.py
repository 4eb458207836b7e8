"""`postmortem explain`: the meaning of a pattern."""

from __future__ import annotations

from typing import Annotated

import typer

from postmortem.cli.options import PatternFolders, complete_pattern
from postmortem.system import output

app = typer.Typer(add_completion=False)
Words = Annotated[
    list[str],
    typer.Argument(metavar="PATTERN", help="Pattern id, or words to find it by.", autocompletion=complete_pattern),
]


@app.command()
def explain(pattern: Words, folders: PatternFolders = None) -> None:
    """Explain a pattern: its meaning, how it looks, and how to fix the cause."""
    from postmortem.workshop import catalogue

    own = folders or ()
    output.data(catalogue.search(" ".join(pattern), own) or catalogue.explain(catalogue.find(" ".join(pattern), own)))
