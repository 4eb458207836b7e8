"""`postmortem schema`: JSON Schemas of the documents."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from postmortem.system import output, resources

Document = StrEnum("Document", "incident brief event diff")
app = typer.Typer(add_completion=False)


@app.command()
def schema(name: Annotated[Document, typer.Argument(help="Kind of document.")]) -> None:
    """Print the JSON Schema of the incident document, its brief, an event of ndjson or a diff."""
    output.data(resources.schema(name))
