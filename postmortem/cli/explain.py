"""`postmortem explain`: the meaning of a pattern, or of a usual cause."""

from __future__ import annotations

from typing import Annotated

import typer

from postmortem.cli.options import PatternFolders, complete_pattern
from postmortem.system import output

app = typer.Typer(add_completion=False)
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN",
        help="Pattern id, or words to find it by; or the id of a usual cause.",
        autocompletion=complete_pattern,
    ),
]


@app.command()
def explain(pattern: Words, folders: PatternFolders = None) -> None:
    """Explain a pattern or a usual cause: its meaning, how it looks, and how to fix the cause."""
    from postmortem.library import load
    from postmortem.workshop import catalogue, causes

    own, words = folders or (), " ".join(pattern)
    if causes.known(words) and words not in load(*own).patterns:
        return output.data(causes.explain(words))
    output.data(catalogue.search(words, own) or catalogue.explain(catalogue.find(words, own)))
