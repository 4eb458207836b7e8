r"""`journalctl -o export` and `-o verbose`: the lines of each MESSAGE, with host, program, process and time.

    __REALTIME_TIMESTAMP=1795349130924762       export: one field a line, an empty line between records
    _HOSTNAME=node-a
    MESSAGE=[rank2]: step 20

    Sun 2026-11-22 12:05:30.924762 UTC [s=4d833a1568aa47eea76528c69b815aeb;i=48a;b=...]
        _HOSTNAME=node-a                        verbose: indented, further lines of a value even more
        MESSAGE=[rank2]: step 20

In an export, a value that is not plain text is below its name, behind its length in eight bytes, little-endian
(systemd, Journal Export Formats).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from postmortem.formats import records
from postmortem.formats.framing import MULTILINE, Framer, Group, Logical, Numbered

_FIELD = re.compile(r"([A-Z_][A-Z0-9_]{0,63})(?:=|$)")
_HEADER = re.compile(r"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d [\d:.]{8,18} [\w+:-]{1,8}) \[s=[0-9a-f]{8,32};i=")
_MARGIN, _UNDER = " " * 4, " " * len("    MESSAGE=")
_LENGTH = re.compile(rb"(.{0,8}?)\x00{4,7}", re.DOTALL)


def learn(lines: list[str]) -> Framer | None:
    """The reader for lines that are fields of a journal; None for others."""
    some = lines[:40]
    margins = sum(1 for line in some if line.startswith(_MARGIN) or _HEADER.match(line))
    if margins * 5 >= len(some) * 4 and any(map(_HEADER.match, some)):
        return partial(_groups, verbose=True)
    fields = sum(1 for line in some if _FIELD.match(line))
    known = fields * 5 >= len(some) * 4 and any(line.startswith("__REALTIME_TIMESTAMP=") for line in lines)
    return partial(_groups, verbose=False) if known else None


def _groups(lines: Iterator[Numbered], verbose: bool) -> Iterator[Group]:
    """One group for each record that has a message."""
    record: dict[str, str] = {}
    message: list[Numbered] = []
    field = ""
    for number, text in lines:
        header = _HEADER.match(text) if verbose else None
        body = text.removeprefix(_MARGIN) if verbose else text
        if header or not (text or verbose):
            yield from _group(record, message)
            record, message, field = {"time": header[1]} if header else {}, [], ""
        elif (m := _FIELD.match(body)) is None:
            if verbose and field == "MESSAGE":
                message.append((number, text.removeprefix(_UNDER)))
        elif not verbose and m[0] == body == m[1]:
            value = _binary(lines)
            message = value if m[1] == "MESSAGE" else message
        elif (field := m[1]) == "MESSAGE":
            message = [(number, body[m.end() :])]
        else:
            record[field] = body[m.end() : m.end() + 400]
    yield from _group(record, message)


def _group(record: dict[str, str], message: list[Numbered]) -> Iterator[Group]:
    if message:
        facts = records.facts(record)
        yield [Logical(number, text, facts) for number, text in message]


def _binary(lines: Iterator[Numbered]) -> list[Numbered]:
    """The lines of a value behind its length. Bytes of the length may be line ends."""
    number, text = next(lines, (0, ""))
    head = _bytes(text)
    while (m := _LENGTH.match(head)) is None and head.count(b"\n") < 3:
        number, text = next(lines, (0, ""))
        head += b"\n" + _bytes(text)
    if m is None:
        return []
    want = min(int.from_bytes(m[1], "little"), MULTILINE)
    have = len(head) - m.end()
    found = [(number, head[m.end() :].decode("utf-8", "backslashreplace"))]
    while have < want and (line := next(lines, None)) is not None:
        found.append(line)
        have += 1 + len(_bytes(line[1]))
    return found


def _bytes(text: str) -> bytes:
    """The bytes of a line; those that are not UTF-8 were written as \\xNN."""
    encoded = text.encode("utf-8", "surrogatepass")
    return re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), encoded)
