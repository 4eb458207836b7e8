"""Regular expressions from data files, compiled when they are first used.

A file maps names to forms. A form is one regex as text, or a mapping with `regex` (text, or a list whose items
are joined) or `any` (a list of alternatives), `ignore_case`, and `sample`: lines that match, as a test checks.
`{{name}}` is replaced by a fragment from the file's own `fragments`. Other keys belong to the reader of the file.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, cast

from postmortem.system import cache, lazy
from postmortem.system.resources import PACKAGE

Form = dict[str, Any]


@lru_cache(maxsize=32)
def rows(file: str) -> dict[str, Form]:
    """Return the forms of `file` ("blocks/signs"), each with its whole regex under "regex"."""
    content = (PACKAGE / f"{file}.yaml").read_bytes()
    # a kind for each file: one analysis reads twenty, and the cache keeps some files of each kind
    place = cache.named(file.replace("/", "-"), hashlib.sha256(content), "system/forms.py")
    cached = cache.fetch_rows(place)
    if cached is None:
        import yaml

        found = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        fragments = found.pop("fragments", {})
        cached = [{name: _form(value, fragments) for name, value in found.items()}]
        cache.store_rows(place, cached)
    return cast("dict[str, Form]", cached[0])


@lru_cache(maxsize=32)
def regexes(file: str) -> dict[str, re.Pattern[str]]:
    return {name: lazy.regex(row["regex"]) for name, row in rows(file).items() if "regex" in row}


@lru_cache(maxsize=32)
def byte_regexes(file: str) -> dict[str, re.Pattern[bytes]]:
    return {name: lazy.regex(row["regex"].encode()) for name, row in rows(file).items() if "regex" in row}


def _form(value: object, fragments: dict[str, str]) -> Form:
    row: Form = dict(value) if isinstance(value, dict) else {"regex": value}
    row = {key: item if key == "sample" else _filled(item, fragments) for key, item in row.items()}
    if "any" in row:
        row["regex"] = "|".join(row.pop("any"))
    if isinstance(row.get("regex"), list):
        row["regex"] = "".join(row["regex"])
    if row.pop("ignore_case", False):
        row["regex"] = f"(?i){row['regex']}"
    return row


def _filled(value: Any, fragments: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_filled(item, fragments) for item in value]
    for _ in range(2 if isinstance(value, str) and "{{" in value else 0):  # a fragment may contain others
        for name, fragment in fragments.items():
            value = value.replace("{{" + name + "}}", fragment)
    return value
