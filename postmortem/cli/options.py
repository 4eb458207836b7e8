"""Options and arguments that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from postmortem.system import output
from postmortem.system.arguments import HISTORY, PATTERNS, folder, own_patterns

INPUT, OUTPUT = "Input", "Output"  # panels of the help
JOB_HELP = "Use only the ranks of this torchrun run or Slurm job."


def complete_pattern(incomplete: str) -> list[str]:
    """Return the pattern ids that start with the incomplete word."""
    from postmortem.library import load

    return [name for name in sorted(load().patterns) if name.startswith(incomplete)]


PatternId = Annotated[str, typer.Argument(metavar="PATTERN", help="Pattern id.", autocompletion=complete_pattern)]
PatternIds = Annotated[
    list[str] | None, typer.Argument(metavar="PATTERN...", help="Only these patterns.", autocompletion=complete_pattern)
]


def _pattern_folders(given: list[Path] | None) -> list[Path]:
    """Return the folders of --patterns, or else the user's own. A missing one that only the environment names prints a
    warning."""
    if not given:
        return [own] if any((own := own_patterns()).rglob("*.yaml")) else []
    default = os.environ.get(PATTERNS, "").split(os.pathsep)
    gone = [path for path in given if str(path) in default and not path.is_dir()]
    for path in gone:
        output.say(f"postmortem: {path} of {PATTERNS} is not a folder; its patterns are missing")
    return [folder(path) for path in given if path not in gone]


PatternFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--patterns",
        metavar="DIR",
        envvar=PATTERNS,
        callback=_pattern_folders,
        help="Folder with your own patterns; repeatable; ~/.config/postmortem/patterns by default.",
        rich_help_panel=INPUT,
    ),
]
History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="FILE|URL",
        envvar=HISTORY,
        help="History of incidents: a file, or postgresql://USER@HOST/DATABASE.",
    ),
]
Anonymise = Annotated[
    bool,
    typer.Option(
        "--anonymize", help="Replace hosts, users, addresses and paths by pseudonyms.", rich_help_panel=OUTPUT
    ),
]
AnonymiseMap = Annotated[
    Path | None,
    typer.Option(
        "--anonymize-map", metavar="FILE", help="Anonymize, and write the mapping to FILE.", rich_help_panel=OUTPUT
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.", rich_help_panel=OUTPUT)]
