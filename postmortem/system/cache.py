"""A cache on disk, under `~/.cache/postmortem/`, that makes the next start faster.

    path = named("gates", hashlib.sha256(b"the input"), "scan/gates.py")
    store(path, b"the result"); fetch(path)   ->   b"the result"

A file's name is the hash of the input and of this program's own text, so an old one is never read again. A
digest of the name and the content precedes the content. A file that is damaged, was renamed, or belongs to
another user counts as missing. A folder that cannot be written costs time only.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from postmortem.system.resources import PACKAGE

MOST_FILES = 24  # files of a kind


def folder() -> Path:
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home() raises where there is none
    return Path(os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache") / "postmortem"


def named(kind: str, content: hashlib._Hash, *code: str) -> Path:
    """Return the file for the result of these files of the program for this content."""
    for name in code:
        try:
            content.update((PACKAGE / name).read_bytes())
        except OSError:
            content.update(b"?")
    return folder() / f"{content.hexdigest()}.{kind}"


def fetch(path: Path) -> bytes | None:
    """Return the content stored in `path`, or None.

    It may be as powerful as machine code (an automaton, a compiled template), so only a file of this user (or of
    root) counts.
    """
    try:
        with path.open("rb") as f:
            if os.fstat(f.fileno()).st_uid not in (0, os.geteuid()):
                return None
            digest, body = f.read(32), f.read()
    except (OSError, ValueError):
        return None
    return body if _sealed(path, body) == digest else None


def store(path: Path, body: bytes) -> None:
    """Store the content for the next start, where that is possible."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as f:
            f.write(_sealed(path, body) + body)
        Path(temporary).replace(path)
        # remove all but the newest files of the kind: each change of a pattern adds one
        for old in sorted(path.parent.glob(f"*{path.suffix}"), key=lambda p: p.stat().st_mtime)[:-MOST_FILES]:
            old.unlink(missing_ok=True)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def fetch_rows(path: Path) -> list[Any] | None:
    try:
        rows = json.loads(fetch(path) or b"")
    except ValueError:
        return None
    return rows if isinstance(rows, list) else None


def store_rows(path: Path, rows: list[Any]) -> None:
    """Store a list for the next start."""
    store(path, json.dumps(rows, separators=(",", ":")).encode())


def _sealed(path: Path, body: bytes) -> bytes:
    """Return the digest before `body` in this file. It covers the name, and so the input of the body."""
    digest = hashlib.sha256(os.fsencode(path.name) + b"\0")
    digest.update(body)
    return digest.digest()
