"""JSON to plain values in bounded memory: 63 MB of `[{},{},...]` would take 1.7 GiB.

Each value has a comma, a colon or a bracket beside it, so their number bounds the number of values.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_VALUES = 4_000_000  # commas, colons and brackets; a recorder's dump of 20,000 collectives has one million
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class TooMuch(ValueError):
    """A document of more values than any tool writes."""


def bounded(text: str) -> str:
    """The same text, or TooMuch."""
    if len(text) > MOST_VALUES and sum(map(text.count, ",:[{")) > MOST_VALUES:
        raise TooMuch(f"it has more than {MOST_VALUES:,} values")
    return text


def reason(error: Exception) -> str:
    """What is wrong with a document that `loads` refused."""
    if isinstance(error, TooMuch):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"its JSON is broken: {error.msg}"
    if isinstance(error, UnicodeDecodeError):
        return "its JSON is not UTF-8"
    # CPython refuses integers of more than 4,300 digits
    return f"its JSON {'is nested too deep' if isinstance(error, RecursionError) else 'has a number that is too long'}"


def loads(content: bytes, errors: str = "strict") -> object:
    """The value of a document; raises a ValueError of the standard library, or TooMuch."""
    text = bounded(content.decode("utf-8", errors))
    return without_surrogates(json.loads(text), text)


def without_surrogates(value: Any, text: str) -> Any:
    """A value read from `text`, with lone surrogates (`\\ud800`) written out: no encoding has them."""
    return _written_out(value) if _SURROGATE.search(text) else value


def _written_out(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_written_out(key): _written_out(inner) for key, inner in value.items()}
    return [_written_out(inner) for inner in value] if isinstance(value, list) else value
