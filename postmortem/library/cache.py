"""The parsed library on disk: reading 700 YAML files takes half a second, their patterns as JSON 30 ms.

    store(place(hash_of_files), patterns); fetch(path)   ->   {"kernel-oom-killed-process": Pattern(...), ...}

The bytes of 700 pattern files take 80 ms to read and hash, and on a network file system longer. So a second
file, the signpost, is named by the metadata of their folders (`files.stamp`) and contains the first one's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from postmortem.model import Action, Example, Explains, Pattern, ReadsAs, Variant
from postmortem.system import cache

_MADE_BY = ("library/files.py", "library/read.py", "library/cache.py", "model/__init__.py")


def place(content: hashlib._Hash) -> Path:
    """Return the file for pattern files of this hash, read by this version of the program."""
    return cache.named("patterns", content, *_MADE_BY)


def fetch(path: Path) -> dict[str, Pattern] | None:
    """Return the patterns stored in `path`, or None."""
    rows = cache.fetch_rows(path)
    try:
        return None if rows is None else {row["id"]: _pattern(row) for row in rows}
    except (LookupError, TypeError):
        return None


def store(path: Path, patterns: Mapping[str, Pattern]) -> None:
    """Store the patterns for the next start."""
    rows = list(patterns.values())
    cache.store(path, json.dumps(rows, separators=(",", ":"), default=_row).encode())


def signpost(stamps: Iterable[str | None]) -> Path | None:
    """Return the signpost to the patterns of folders with these stamps; None where one of them has no stamp."""
    content = hashlib.sha256()
    for stamp in stamps:
        if stamp is None:
            return None
        content.update(stamp.encode())
    return cache.named("stamps", content, *_MADE_BY)


def follow(post: Path) -> tuple[dict[str, Pattern], str] | None:
    """Return the patterns and the library's digest that `post` leads to."""
    match cache.fetch_rows(post):
        case [str(name), str(digest)]:
            patterns = fetch(cache.folder() / Path(name).name)
            return None if patterns is None else (patterns, digest)
    return None


def point(post: Path, path: Path, digest: str) -> None:
    """Let `post` lead the next start to the patterns in `path`."""
    cache.store_rows(post, [path.name, digest])


def _row(one: object) -> dict[str, object]:
    """Return a pattern, or a part of one, for JSON; a tenth of the time of `dataclasses.asdict`."""
    return {name: getattr(one, name) for name in one.__slots__}  # type: ignore[attr-defined]


def _pattern(row: dict[str, Any]) -> Pattern:
    row["variants"] = tuple(Variant(**v) for v in row["variants"])
    row["explains"] = tuple(Explains(**e) for e in row["explains"])
    row["reads_as"] = ReadsAs(**row["reads_as"]) if row["reads_as"] else None
    row["actions"] = tuple(Action(**a) for a in row["actions"])
    for name in ("matches", "no_matches"):
        row[name] = tuple(Example(**e) for e in row[name])
    for name in ("sources", "references", "tells", "cause_if", "bears_out"):
        row[name] = tuple(row[name])
    return Pattern(**row)
