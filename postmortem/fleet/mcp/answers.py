"""Answers of bounded size, in which a log cannot pass for anything but a quotation.

    sealed({"brief": …}, key)  ->  {"begin": "quoted-9f2c41d0ab3e", "brief": …, "end": "quoted-9f2c41d0ab3e"}

The mark is a keyed digest of the answer, with a random key of the server: the author of a log would have to know
it before the answer exists. The same answer has the same mark.
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
    """Return the answer between two marks, with terminal control characters written out."""
    body = plain.harmless(plain.dump(answer, order=False))
    mark = f"quoted-{hmac.new(key, body.encode('utf-8', 'surrogatepass'), hashlib.sha256).hexdigest()[:12]}"
    return {"begin": mark, **json.loads(body), "end": mark}


def fitting(rows: Iterable[Any], most: int, room: int = ROOM) -> list[Any]:
    """Return the first rows, at most `most` and of at most `room` bytes."""
    shown: list[Any] = []
    for row in rows:
        room -= len(plain.dump(row, order=False).encode("utf-8", "surrogatepass")) + 1
        if room < 0 or len(shown) == most:
            break
        shown.append(row)
    return shown


def page(rows: Sequence[Any], first: int, shown: Sequence[Any]) -> Answer:
    """Return the shown rows from number `first` on, the number of all, and the arguments for the rest."""
    end = first + len(shown)
    rest = {"left_out": len(rows) - end, "next": {"after": end}} if end < len(rows) else {}
    return {"rows": list(shown), "found": len(rows), **rest}


def short(value: Any, wide: int = 300) -> Any:
    """Return a plain value with its texts cut, and without empty parts."""
    if isinstance(value, str):
        return text.line(value, wide)
    if isinstance(value, Mapping):
        parts = {str(name): short(item, wide) for name, item in value.items()}
        return {name: item for name, item in parts.items() if item not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [short(item, wide) for item in value]
    return value
