"""`postmortem patterns`: the pattern library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from postmortem.cli.options import Json, PatternFolders, PatternId, PatternIds
from postmortem.system import output
from postmortem.system.arguments import folder

app = typer.Typer(
    name="patterns",
    add_completion=False,
    no_args_is_help=True,
    help="List, show, test, lint or extend the pattern library.",
)


@app.command("list")
def list_patterns(as_json: Json = False, folders: PatternFolders = None) -> None:
    """List all patterns, one per line."""
    from postmortem.workshop import catalogue

    output.data(catalogue.listing(folders or (), as_json))


@app.command()
def show(pattern: PatternId, folders: PatternFolders = None) -> None:
    """Show one pattern in full: explanation, regular expressions, links, examples."""
    from postmortem.workshop import catalogue

    output.data(catalogue.show(catalogue.find(pattern, folders or ())))


@app.command()
def lint(ids: PatternIds = None, folders: PatternFolders = None) -> int:
    """Check the pattern files and print how to fix each finding. Exit 1 if there is any."""
    from postmortem.report.text import plural
    from postmortem.workshop import lint

    remarks = lint.run(tuple(folders or ()), tuple(ids or ()))
    for remark in remarks:
        output.data(str(remark))
    output.say(plural(len(remarks), "problem") if remarks else "nothing to fix")
    return 1 if remarks else 0


@app.command()
def test(ids: PatternIds = None, folders: PatternFolders = None) -> int:
    """Run every example through the scanner and parsers. Exit 1 if one does not match as its file states."""
    from postmortem.report.text import plural
    from postmortem.workshop import trial

    count, failures = trial.run(tuple(folders or ()), tuple(ids or ()))
    for failure in failures:
        output.data(failure)
    output.say(f"{plural(count, 'example')}, {plural(len(failures), 'problem')}")
    return 1 if failures else 0


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="FAMILY/ID", help="Such as nccl/nccl-remote-process-exited.")],
    line: Annotated[str, typer.Option("--from", metavar="FILE:LINE|TEXT", help="Log line for the first example.")] = "",
    target: Annotated[
        Path | None,
        typer.Option(
            "--patterns",
            metavar="DIR",
            help="Folder for the file; ~/.config/postmortem/patterns by default, in a checkout the library.",
        ),
    ] = None,
) -> None:
    """Write the skeleton of a new pattern, with your line as its first example."""
    from postmortem.workshop import trial

    path = trial.write(name, line, folder(target) if target else None)
    read = f"--patterns {target} reads it" if target else "every command reads it"
    output.say(f"wrote {path}; {read}\n  fill in the fields that `postmortem patterns lint {path.stem}` names")
