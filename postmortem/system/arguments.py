"""Values from the command line and the environment, parsed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from postmortem.errors import PathMissing, UsageError

HISTORY = "POSTMORTEM_HISTORY"  # environment variable: the default of --history
NOTIFY = "POSTMORTEM_NOTIFY"  # environment variable: the default of --notify


def folder(path: Path) -> Path:
    """Return the path of an existing folder. Raise PathMissing otherwise."""
    if not path.is_dir():
        raise PathMissing(f"{path} is not a folder", "name an existing folder")
    return path


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
