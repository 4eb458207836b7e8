"""Names as a store keeps them that shall hold none: a pseudonym from the name and a key, so that a host has
the same one in every incident, and nobody without the key can try names.

    gpu-017  ->  host-8213377046

The key lies beside the SQLite file (`fleet.db.key`), or where POSTMORTEM_HISTORY_KEY says.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path
from typing import Any

from postmortem.errors import HistoryError
from postmortem.fleet.history.place import Place
from postmortem.model.fingerprint import marked
from postmortem.privacy.anonymize import Anonymizer

VARIABLE = "POSTMORTEM_HISTORY_KEY"
DIGITS = 10  # two of 10,000 hosts share a pseudonym in one fleet of 200


class Keyed(Anonymizer):
    """Pseudonyms that stay the same over incidents."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def name_of(self, kind: str, word: str) -> str:
        digest = hmac.digest(self._key, f"{kind}:{word}".encode("utf-8", "backslashreplace"), "sha256")
        return f"{kind}-{int.from_bytes(digest) % 10**DIGITS:0{DIGITS}d}"

    def _name(self, kind: str, key: str) -> str:
        return self._names.setdefault((kind, key), self.name_of(kind, key))


def key(at: Place) -> bytes:
    """The key of the store; one that is not there is made, and only its owner and group can read it."""
    named = os.environ.get(VARIABLE)
    if not named and at.file is None:
        raise HistoryError(
            "--anonymise needs a key for a history in PostgreSQL", f"name a file of yours: {VARIABLE}=FILE"
        )
    path = Path(named) if named else Path(f"{at.file}.key")
    try:
        if not path.exists():
            _made(path)
        found = path.read_bytes().strip()
    except OSError as error:
        raise HistoryError(
            f"the key {path} cannot be read: {error.strerror}", f"name another: {VARIABLE}=FILE"
        ) from None
    if len(found) < 32:
        raise HistoryError(f"the key {path} is too short", f"remove it, or name another: {VARIABLE}=FILE")
    return found


def _made(path: Path) -> None:
    """Whole or not at all, and the first of several that do it at once wins."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.touch(0o640, exist_ok=False)
    beside.write_text(secrets.token_hex(32) + "\n")
    try:
        os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink()


def hidden(document: Any, names: Anonymizer) -> Any:
    """The document with pseudonyms; the texts of the logs are not in the store, so its own fields are
    enough."""
    for source in document.get("sources") or []:
        names.learn(source)
    names.learn(document)
    names.learn_paths(str(source.get("path") or "") for source in document.get("sources") or [])
    names.document(document)  # once for the names that paths and URLs hold: they may stand bare in an earlier line
    cleaned = names.document(document)
    cause, _, mark = str(document.get("fingerprint") or "").partition("-")
    if mark:  # a hash of a host's name tells it to whoever tries them all
        culprit = cleaned["verdict"]["culprit"]
        cleaned["fingerprint"] = marked(cause, [*culprit["hosts"], *culprit["gpus"]])
    return cleaned
