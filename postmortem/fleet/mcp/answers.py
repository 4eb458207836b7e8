"""Answers of bounded size, in which a log cannot pass for anything but a quotation.

    sealed({"brief": …}, key)  ->  {"begin": "quoted-9f2c41d0ab3e", "brief": …, "end": "quoted-9f2c41d0ab3e"}

The mark is a keyed digest of the answer, with a key that the server draws when it starts: whoever wrote the
log would have to know it before the answer exists. The same answer has the same mark.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from postmortem.report import json as plain
from postmortem.report import text

ROOM = 12_000  # bytes of the rows of one answer
Answer = dict[str, Any]


def sealed(answer: Mapping[str, Any], key: bytes) -> Answer:
    """The answer between two marks, with each character that acts on a terminal written out."""
    body = plain.harmless(plain.dump(answer, order=False))
    digest = hmac.new(key, body.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    mark = f"quoted-{digest[:12]}"
    return {"begin": mark, **json.loads(body), "end": mark}


def size(value: object) -> int:
    return len(plain.dump(value, order=False).encode("utf-8", "surrogatepass"))


def fitting(rows: Iterable[Any], most: int, room: int = ROOM) -> list[Any]:
    """The first rows, at most `most`, that take no more than `room` bytes."""
    kept: list[Any] = []
    for row in rows:
        room -= size(row) + 1
        if room < 0 or len(kept) == most:
            break
        kept.append(row)
    return kept


def page(name: str, rows: Sequence[Any], first: int, kept: Sequence[Any]) -> Answer:
    """The kept rows from number `first` on, how many there are, and how to ask for those behind them."""
    end = first + len(kept)
    found: Answer = {name: list(kept), "found": len(rows)}
    if end < len(rows):
        found["left_out"] = len(rows) - end
        found["next"] = {"after": end}
    return found


def short(value: Any, wide: int = 300) -> Any:
    """A plain value with its texts cut, and without what is empty in it."""
    if isinstance(value, str):
        return text.line(value, wide)
    if isinstance(value, Mapping):
        told = {str(name): short(item, wide) for name, item in value.items()}
        return {name: item for name, item in told.items() if item not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [short(item, wide) for item in value]
    return value
