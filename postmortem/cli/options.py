"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from postmortem.system.arguments import HISTORY

ANONYMIZE = ("--anonymize", "--anonymise")
INPUT, OUTPUT = "Input", "Output"  # panels of the help
JOB_HELP = "Use only the ranks of this torchrun run or Slurm job."


def complete_pattern(incomplete: str) -> list[str]:
    """Return the pattern ids that start with the incomplete word."""
    from postmortem.library import load

    return [name for name in sorted(load().patterns) if name.startswith(incomplete)]


PatternId = Annotated[str, typer.Argument(metavar="PATTERN", help="Pattern id.", autocompletion=complete_pattern)]
PatternIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATTERN...", help="Only these patterns.", autocompletion=complete_pattern),
]
PatternFolders = Annotated[
    list[Path] | None,
    typer.Option("--patterns", metavar="DIR", help="Folder with your own patterns; repeatable.", rich_help_panel=INPUT),
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
        *ANONYMIZE,
        help="Replace hosts, users, addresses and paths by pseudonyms.",
        rich_help_panel=OUTPUT,
    ),
]
AnonymiseMap = Annotated[
    Path | None,
    typer.Option(
        *(f"{name}-map" for name in ANONYMIZE),
        metavar="FILE",
        help="Anonymize, and write the mapping to FILE.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.", rich_help_panel=OUTPUT)]
