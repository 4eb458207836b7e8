"""`postmortem mcp`: a Model Context Protocol server on standard input and output."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli.options import History, PatternFolders
from postmortem.errors import UsageError


def mcp(
    roots: Annotated[
        list[Path] | None,
        typer.Option("--root", metavar="DIR", help="Read only below it; the working directory by default."),
    ] = None,
    folders: PatternFolders = None,
    history: History = None,
) -> None:
    """Answer an agent's questions about failed jobs with the Model Context Protocol on stdin and stdout."""
    if find_spec("mcp") is None:
        raise UsageError("postmortem mcp needs the MCP SDK", "pip install 'torch-postmortem[mcp]'")
    own = [path.resolve() for path in folders or ()]
    from postmortem.fleet.mcp import server

    server.serve(tuple(roots or ()) or (Path(),), own, history)
