"""Commands that print a text: `postmortem explain`, `postmortem schema`, `postmortem completion`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer import completion as shells

from postmortem.cli.options import PatternFolders, complete_pattern
from postmortem.system import output, resources

Document = StrEnum("Document", "incident brief event diff")
Shell = StrEnum("Shell", "bash zsh fish")
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN",
        help="Pattern id, or words to find it by; or the id of a usual cause.",
        autocompletion=complete_pattern,
    ),
]


def explain(pattern: Words, folders: PatternFolders = None) -> None:
    """Explain a pattern or a usual cause: its meaning, how it looks, and how to fix the cause."""
    from postmortem.library import load
    from postmortem.workshop import catalogue, causes

    own, words = folders or (), " ".join(pattern)
    if causes.known(words) and words not in load(*own).patterns:
        return output.data(causes.explain(words))
    output.data(catalogue.search(words, own) or catalogue.explain(catalogue.find(words, own)))


def schema(name: Annotated[Document, typer.Argument(help="Kind of document.")]) -> None:
    """Print the JSON Schema of the incident document, its brief, an event of ndjson or a diff."""
    output.data(resources.schema(name))


def completion(shell: Annotated[Shell, typer.Argument(help="Shell that reads the script.")]) -> None:
    """Print the script that completes commands, options and names in a shell."""
    values = {"prog_name": "postmortem", "complete_var": "_POSTMORTEM_COMPLETE", "shell": shell.value}
    output.data(shells.get_completion_script(**values))  # type: ignore[attr-defined]  # not in its __all__
