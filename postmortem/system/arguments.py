"""Values from the command line and the environment, parsed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from postmortem.errors import PathMissing, UsageError

HISTORY = "POSTMORTEM_HISTORY"  # environment variable: the default of --history
NOTIFY = "POSTMORTEM_NOTIFY"  # environment variable: the default of --notify
_NAMELESS = ("log", "logs", "out", "output", "outputs", "results", "tmp", "data", "home", "root", "mnt", "scratch")


def folder(path: Path) -> Path:
    """Return the path of an existing folder. Raise PathMissing otherwise."""
    if not path.is_dir():
        raise PathMissing(f"{path} is not a folder", "name an existing folder")
    return path


def folder_of(paths: Sequence[str]) -> str | None:
    """Return the name of the folder that the logs are of: `run-7` for `run-7/logs/rank0.log`; None for streams, and
    where no folder around them has a name of its own."""
    path = Path(paths[0])
    if len(paths) > 1 or not path.exists():
        return None
    parts = (path if path.is_dir() else path.parent).resolve().relative_to("/").parts
    name = next((part for part in reversed(parts) if part.lower() not in _NAMELESS), None)
    return name if name and name.isprintable() and name != Path.home().name else None


def moment(text: str | None, flag: str) -> float | None:
    """Parse an ISO 8601 time into seconds since 1970; UTC without a time zone."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        hint = f"write it like this: {flag} 2026-11-20T03:12:08Z"
        raise UsageError(f"{flag} {text} is not a time", hint) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
