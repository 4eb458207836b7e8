"""What this program made once and keeps for its next start, under `~/.cache/postmortem/`.

    path = named("gates", hashlib.sha256(b"what it is made from"), "scan/gates.py")
    store(path, b"what was made"); fetch(path)   ->   b"what was made"

A file's name is the hash of all that it was made from and of this program's own text, so an old one is never
read again. Content stands behind a digest of the name and of itself. What is damaged, stands under another
file's name, or belongs to another user, counts as missing. A folder that cannot be written costs nothing but
time: the next start makes it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from postmortem.system.resources import PACKAGE

KEPT = 24  # files of a kind


def folder() -> Path:
    """Return where caches are kept."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home() raises where there is none
    return Path(os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache") / "postmortem"


def named(kind: str, content: hashlib._Hash, *code: str) -> Path:
    """Return the file for what these files of the program make of this content."""
    for name in code:
        try:
            content.update((PACKAGE / name).read_bytes())
        except OSError:
            content.update(b"?")
    return folder() / f"{content.hexdigest()}.{kind}"


def fetch(path: Path) -> bytes | None:
    """Return what is kept in `path`, or None.

    What is made of it may be as good as machine code (an automaton, a compiled template), so only a file of
    this user (or of root) counts.
    """
    try:
        with path.open("rb") as f:
            if hasattr(os, "geteuid") and os.fstat(f.fileno()).st_uid not in (0, os.geteuid()):
                return None
            digest, body = f.read(32), f.read()
    except (OSError, ValueError):
        return None
    return body if _sealed(path, body) == digest else None


def store(path: Path, body: bytes) -> None:
    """Keep the content for the next start, where that is possible."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as f:
            f.write(_sealed(path, body) + body)
        Path(temporary).replace(path)
        _forget(path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def fetch_rows(path: Path) -> list[Any] | None:
    """Return the list kept in `path`, or None."""
    try:
        rows = json.loads(fetch(path) or b"")
    except ValueError:
        return None
    return rows if isinstance(rows, list) else None


def store_rows(path: Path, rows: list[Any]) -> None:
    """Keep a list for the next start."""
    store(path, json.dumps(rows, separators=(",", ":")).encode())


def _sealed(path: Path, body: bytes) -> bytes:
    """The digest in front of `body` in this file. It covers the name, which says what the body was made from:
    a good file copied over another's name is not that other's content."""
    digest = hashlib.sha256(os.fsencode(path.name) + b"\0")
    digest.update(body)
    return digest.digest()


def _forget(path: Path) -> None:
    """Remove all but the newest files of the kind: each change of a pattern leaves one behind."""
    for old in sorted(path.parent.glob(f"*{path.suffix}"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
