r"""`journalctl -o export` or `-o verbose` -> the lines of each MESSAGE, with the host, program, process and
time of its record.

    __REALTIME_TIMESTAMP=1795349130924762       one field a line, in any order, an empty line between records
    _HOSTNAME=node-a
    SYSLOG_IDENTIFIER=train-rank2
    MESSAGE=[rank2]: step 20
    _PID=777

A value that is no plain text (a line end, a colour) stands under its name, behind eight bytes that give its
length, little-endian (systemd, Journal Export Formats).

    Sun 2026-11-22 12:05:30.924762 UTC [s=4d833a1568aa47eea76528c69b815aeb;i=48a;b=...]
        _HOSTNAME=node-a                        verbose: indented, and a value of several lines further on
        MESSAGE=[rank2]: step 20
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.formats import records
from postmortem.formats.framing import MULTILINE, Group, Logical, Numbered

_FIELD = re.compile(r"([A-Z_][A-Z0-9_]{0,63})(?:=|$)")
_HEADER = re.compile(r"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d [\d:.]{8,18} [\w+:-]{1,8}) \[s=[0-9a-f]{8,32};i=")
_MARGIN, _UNDER = " " * 4, " " * len("    MESSAGE=")
_TOLD = frozenset(("_HOSTNAME", "SYSLOG_IDENTIFIER", "_COMM", "_PID", "_TRANSPORT", "__REALTIME_TIMESTAMP"))
_BYTE = re.compile(r"\\x([0-9a-f]{2})")
_ANY_BYTE = re.compile(r"\\x([0-9a-f]{2})|.", re.DOTALL)
_LENGTH = re.compile(r"(.{0,32}?)\x00{4,7}", re.DOTALL)  # as text: bytes above 0x7f may be written as \xNN


def looks(lines: list[str]) -> bool:
    """Whether the lines are fields of a journal."""
    some = lines[:40]
    fields = sum(1 for line in some if _FIELD.match(line))
    return fields * 5 >= len(some) * 4 and any(line.startswith("__REALTIME_TIMESTAMP=") for line in lines)


def looks_verbose(lines: list[str]) -> bool:
    """Whether the lines are records of a journal with all their fields."""
    some = lines[:40]
    fields = sum(1 for line in some if line.startswith(_MARGIN) or _HEADER.match(line))
    return fields * 5 >= len(some) * 4 and any(map(_HEADER.match, some))


def verbose(lines: Iterator[Numbered]) -> Iterator[Group]:
    """One group for each record, from its header to the next."""
    record: dict[str, str] = {}
    message: list[Numbered] = []
    field = ""
    for number, text in lines:
        if header := _HEADER.match(text):
            yield from _group(record, message)
            record, message, field = {"time": header[1]}, [], ""
        elif (m := _FIELD.match(text, len(_MARGIN))) and text.startswith(_MARGIN) and "=" in m[0]:
            field = m[1]
            if field == "MESSAGE":
                message = [(number, text[m.end() :])]
            elif field in _TOLD:
                record[field] = text[m.end() : m.end() + 400]
        elif field == "MESSAGE":
            message.append((number, text.removeprefix(_UNDER)))
    yield from _group(record, message)


def export(lines: Iterator[Numbered]) -> Iterator[Group]:
    """One group for each record that has a message."""
    record: dict[str, str] = {}
    message: list[Numbered] = []
    for number, text in lines:
        m = _FIELD.match(text)
        if not text:
            yield from _group(record, message)
            record, message = {}, []
        elif m is None:
            continue
        elif not text[m.end(1) :]:
            value = _binary(lines)
            if m[1] == "MESSAGE":
                message = value
        elif m[1] == "MESSAGE":
            message = [(number, text[m.end() :])]
        elif m[1] in _TOLD:
            record[m[1]] = text[m.end() : m.end() + 400]
    yield from _group(record, message)


def _group(record: dict[str, str], message: list[Numbered]) -> Iterator[Group]:
    if message:
        facts = records.facts(record)
        yield [Logical(number, text, facts) for number, text in message]


def _binary(lines: Iterator[Numbered]) -> list[Numbered]:
    """The lines of a value behind its length, of which bytes may be line ends, too."""
    last = next(lines, (0, ""))
    head = last[1]
    while (m := _LENGTH.match(head)) is None and head.count("\n") < 3:
        last = next(lines, (0, ""))
        head = f"{head}\n{last[1]}"
    if m is None:
        return []
    want = _length(m[1])
    found = [(last[0], head[m.end() :])]
    have = _size(found[0][1])
    while have < min(want, MULTILINE) and (line := next(lines, None)) is not None:
        found.append(line)
        have += 1 + _size(line[1])
    return found


def _length(text: str) -> int:
    """A number of eight bytes, of which the NULs at the end were cut off."""
    raw = b"".join(bytes([int(m[1], 16)]) if m[1] else m[0].encode() for m in _ANY_BYTE.finditer(text))
    return int.from_bytes(raw[:8], "little")


def _size(text: str) -> int:
    """How many bytes a line has in the file; one that is no UTF-8 was written as \\xNN."""
    return len(_BYTE.sub("?", text).encode("utf-8", "surrogatepass"))
