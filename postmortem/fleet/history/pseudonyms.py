"""Pseudonyms for a store without names, made of the name and a key: a host has the same one in every incident, and
names cannot be tried without the key.

    gpu-017  ->  host-8213377046

The key is beside the SQLite file (`fleet.db.key`), or where POSTMORTEM_HISTORY_KEY points.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from postmortem.errors import HistoryError
from postmortem.fleet.history.place import Place
from postmortem.model.fingerprint import marked
from postmortem.privacy.anonymize import Anonymizer, learn

VARIABLE = "POSTMORTEM_HISTORY_KEY"
DIGITS = 10  # two of 10,000 hosts share a pseudonym in one fleet of 200


class Keyed(Anonymizer):
    """Pseudonyms that are the same in all incidents."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def _name(self, kind: str, key: str) -> str:
        digest = hmac.digest(self._key, f"{kind}:{key}".encode("utf-8", "backslashreplace"), "sha256")
        return self._names.setdefault((kind, key), f"{kind}-{int.from_bytes(digest) % 10**DIGITS:0{DIGITS}d}")


def key(at: Place) -> bytes:
    """Return the key of the store. Create a missing one, readable for its owner and group."""
    named, hint = os.environ.get(VARIABLE), f"name another: {VARIABLE}=FILE"
    if not named and at.file is None:
        raise HistoryError(
            "--anonymize needs a key for a history in PostgreSQL", f"name a file of yours: {VARIABLE}=FILE"
        )
    path = Path(named) if named else Path(f"{at.file}.key")
    try:
        if not path.exists():
            _create(path)
        found = path.read_bytes().strip()
    except OSError as error:
        raise HistoryError(f"the key {path} cannot be read: {error.strerror}", hint) from None
    if len(found) < 32:
        raise HistoryError(f"the key {path} is too short", f"remove it, or {hint}")
    return found


def _create(path: Path) -> None:
    """Write a new key as a whole; the first of several concurrent writers wins."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.touch(0o640, exist_ok=False)
    beside.write_text(secrets.token_hex(32) + "\n")
    try:
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()


def hidden(document: Any, names: Anonymizer) -> Any:
    """Return the document with pseudonyms. Its own fields suffice, since the store has no lines of logs."""
    learn(document, names)
    cleaned = names.document(document)
    cause, _, mark = str(document.get("fingerprint") or "").partition("-")
    if mark:  # the hash of a host name can be reversed by trying all names
        culprit = cleaned["verdict"]["culprit"]
        cleaned["fingerprint"] = marked(cause, [*culprit["hosts"], *culprit["gpus"]])
    return cleaned
