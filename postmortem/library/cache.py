"""What is derived from pattern files, on disk:
reading 500 YAML files takes 0.3 s, deriving their gates 0.2 s, reading JSON 20 ms.

    store(path, patterns); fetch(path)   ->   {"kernel-oom-killed-process": Pattern(...), ...}

A file's name is the hash of all that it was derived from and of this program's own text, so an old one is
never read again. It holds data only, behind a digest of its name and that data. What is damaged, stands under
another file's name, or belongs to another user, counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from postmortem.model import Action, Example, Explains, Pattern, ReadsAs, Variant
from postmortem.resources import PACKAGE

KEPT = 24


def folder() -> Path:
    """Return where caches are kept."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home() raises where there is none
    return Path(os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache") / "postmortem"


def place(files: hashlib._Hash) -> Path:
    """Return the cache file for pattern files of this hash, read by this version of the program."""
    return named("patterns", files, "library/read.py", "library/cache.py", "model.py")


def named(kind: str, content: hashlib._Hash, *code: str) -> Path:
    """Return the cache file for what these files of the program make of this content."""
    for name in code:
        try:
            content.update((PACKAGE / name).read_bytes())
        except OSError:
            content.update(b"?")
    return folder() / f"{content.hexdigest()}.{kind}.json"


def sealed(path: Path, body: bytes) -> bytes:
    """Return the digest that stands in front of `body` in this file. It covers the name, which says what the
    body was made from: a good file copied over another's name is not that other's content."""
    digest = hashlib.sha256(os.fsencode(path.name) + b"\0")
    digest.update(body)
    return digest.digest()


def fetch(path: Path) -> dict[str, Pattern] | None:
    """Return the patterns kept in `path`, or None."""
    try:
        return {row["id"]: _pattern(row) for row in fetch_rows(path)}
    except (LookupError, TypeError):
        return None


def fetch_rows(path: Path) -> list[Any]:
    """Return the list kept in `path`. Raises LookupError where there is none."""
    try:
        with path.open("rb") as f:
            if hasattr(os, "geteuid") and os.fstat(f.fileno()).st_uid not in (0, os.geteuid()):
                raise LookupError
            digest, body = f.read(64), f.read()
        if sealed(path, body).hex().encode() == digest:
            return list(json.loads(body))
    except (OSError, ValueError, TypeError):
        pass
    raise LookupError


def store(path: Path, patterns: Mapping[str, Pattern]) -> None:
    """Keep the patterns for the next start."""
    store_rows(path, [asdict(p) for p in patterns.values()])


def store_rows(path: Path, rows: list[Any]) -> None:
    """Keep a list for the next start. Where that is not possible, the next start derives it again."""
    body = json.dumps(rows, separators=(",", ":")).encode()
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as f:
            f.write(sealed(path, body).hex().encode() + body)
        Path(temporary).replace(path)
        _forget(path.parent)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _forget(parent: Path) -> None:
    """Remove all but the newest files: each change of a pattern leaves one behind."""
    for kind in ("*.patterns.json", "*.gates.json", "*.hsdb"):
        for old in sorted(parent.glob(kind), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)


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
