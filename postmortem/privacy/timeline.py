"""Secrets removed from the events of a timeline before any conclusion: a headline quotes a piece of a line, and a
piece may no longer be recognized as a part of a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from postmortem.model.details import Details
from postmortem.model.frame import Extras, plain, renamed
from postmortem.privacy.redact import SHORTEST, Redactor

if TYPE_CHECKING:
    import pandas as pd

PROSE = 8  # characters of a field that may hold more than a word


def without_secrets(rows: pd.DataFrame, extras: Extras, redactor: Redactor) -> tuple[pd.DataFrame, Extras]:
    """Return the rows and their details with marks in their texts. Contexts remain: they are redacted where shown."""
    rows = rows.copy(deep=False)
    texts = rows["text"].cat.remove_unused_categories()
    words: list[str] = texts.cat.categories.tolist()
    shown = redactor.texts(words)
    secrets = {text: redactor.found(text) for text, new in zip(words, shown, strict=True) if text != new}
    of_event = dict(zip(rows.index.tolist(), plain(texts), strict=True)) if secrets else {}
    rows["text"] = renamed(texts, shown)
    own = enumerate(extras.fields)
    hidden = [_fields(fields, redactor, secrets.get(of_event.get(i, ""), {})) for i, fields in own]
    return rows, extras._replace(fields=hidden)


def for_the_report(rows: pd.DataFrame, redactor: Redactor) -> pd.DataFrame:
    """Return the rows without secrets in their texts and in the names of files and hosts."""
    rows = rows.copy(deep=False)
    rows["source"] = renamed(rows["source"], map(redactor.path, rows["source"].cat.categories))
    for name in ("host", "run"):
        rows[name] = renamed(rows[name], map(redactor.text, rows[name].cat.categories))
    rows["text"] = renamed(rows["text"], redactor.again(rows["text"].cat.categories.tolist()))
    return rows


def _fields(fields: Details, redactor: Redactor, secrets: Mapping[str, str]) -> Details:
    if not secrets and not any(type(value) is str and len(value) >= PROSE for value in fields.values()):
        return fields
    new = {key: _field(value, redactor, secrets) for key, value in fields.items()}
    return fields if all(new[key] is value for key, value in fields.items()) else cast(Details, new)


def _field(value: object, redactor: Redactor, secrets: Mapping[str, str]) -> object:
    """Return the same object if nothing changes. Short words are searched only for the text's own secrets."""
    if isinstance(value, tuple) and secrets:
        return tuple(_field(item, redactor, secrets) for item in value)
    if not isinstance(value, str):
        return value
    new = redactor.text(value) if len(value) >= PROSE else value
    for secret, mark in secrets.items():
        if len(secret) >= SHORTEST and secret in new:
            new = new.replace(secret, mark)
    return value if new == value else new
