"""JSON -> plain values, in bounded memory: 63 MB of `[{},{},...]` would take 1.7 GiB.

Each value has a comma, a colon or a bracket beside it, so counting those bounds how many there are before the
first one is made.
"""

from __future__ import annotations

import json

MOST = 4_000_000  # commas, colons and brackets; a recorder's dump of 20,000 collectives has one million


class TooMuch(ValueError):
    """A document of more values than any tool writes."""

    def __init__(self) -> None:
        super().__init__(f"it has more than {MOST:,} values")


def bounded(text: str) -> str:
    """The same text, if what it holds is not too much."""
    if len(text) > MOST and sum(map(text.count, ",:[{")) > MOST:
        raise TooMuch
    return text


def loads(content: bytes, errors: str = "strict") -> object:
    """What the standard library reads, or its ValueError, or TooMuch."""
    return json.loads(bounded(content.decode("utf-8", errors)))
