"""Values from the command line and the environment, parsed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from postmortem.errors import PathMissing, UsageError

HISTORY = "POSTMORTEM_HISTORY"  # environment variable: the default of --history
PATTERNS = "POSTMORTEM_PATTERNS"  # environment variable: the default of --patterns
NOTIFY = "POSTMORTEM_NOTIFY"  # environment variable: the default of --notify
_DAYS = ("today", "yesterday", "now")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"(?P<n>[0-9]{1,6}) ?(?P<unit>[smhdw])(?:ec(?:ond)?s?|in(?:ute)?s?|(?:ou)?rs?|ays?|eeks?)?(?: ago)?")
_NAMELESS = re.compile(r"(?i)(?:logs?|out(?:puts?)?|results?|te?mp|data|home|root|mnt|scratch)")


def own_patterns() -> Path:
    """Return the user's folder of patterns, which need not exist. It is read where no other is given."""
    home = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '/')}/.config"
    return Path(home, "postmortem", "patterns")


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
    name = next((part for part in reversed(parts) if not _NAMELESS.fullmatch(part)), None)
    return name if name and name.isprintable() and name != Path.home().name else None


def moment(text: str | None, flag: str) -> float | None:
    """Parse an ISO 8601 time (UTC without a time zone), `yesterday` or `3 hours ago` into seconds since 1970."""
    if text is None:
        return None
    words = text.strip().lower()
    if words in _DAYS:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return (today - timedelta(days=_DAYS.index(words))).timestamp() if words != "now" else time.time()
    if found := _AGO.fullmatch(words):
        return time.time() - int(found["n"]) * _UNITS[found["unit"]]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        hint = f"write it like this: {flag} 2026-11-20T03:12:08Z, or {flag} '3 hours ago'"
        raise UsageError(f"{flag} {text} is not a time", hint) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def window(since: str | None, until: str | None) -> dict[str, float | None]:
    """Return the times of --since and --until, the earlier one first."""
    first, last = moment(since, "--since"), moment(until, "--until")
    if first is not None and last is not None and first > last:
        raise UsageError(f"--since {since} is later than --until {until}", "give the earlier time to --since")
    return {"since": first, "until": last}
