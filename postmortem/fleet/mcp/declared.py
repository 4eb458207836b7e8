"""The command line of `postmortem mcp`. What costs time is imported when it runs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from postmortem.cli.declarations import folder, history, pattern_folders
from postmortem.errors import UsageError


@click.command()
@click.option(
    "--root",
    "roots",
    metavar="DIR",
    type=Path,
    multiple=True,
    help="Only what lies below it is read; default: the working directory.",
)
@pattern_folders
@history
def mcp(roots: tuple[Path, ...], folders: tuple[Path, ...], where: str | None) -> None:
    """Answer an agent's questions about failed jobs by the Model Context Protocol, on stdin and stdout."""
    if find_spec("mcp") is None:
        raise UsageError("postmortem mcp needs the MCP SDK", "pip install 'torch-postmortem[mcp]'")
    own = [folder(path).resolve() for path in folders]
    from postmortem.fleet.mcp import server

    server.serve(roots or (Path(),), own, where)
