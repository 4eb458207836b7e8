"""The head of a file -> the binary format that it has, by its first bytes or by its control characters."""

from __future__ import annotations

import re

from postmortem.system import forms

ELF_TYPES = {1: "ELF object", 2: "ELF program", 3: "ELF library or program", 4: "ELF core"}
IN_PARTS = {"ELF core": "core", "minidump": "minidump"}  # formats that are documents, and their kinds of source
CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\v\f\r\b\x1b\a") + b"\x7f"
HOLES = re.compile(rb"\0{64,}")  # shorter runs of NULs are numbers in binary data, longer ones are holes in a text

_ZIPS = forms.byte_regexes("input/formats")
_STARTS = [
    (start.encode("latin-1"), row.get("at", 0), name)
    for name, row in forms.rows("input/formats").items()
    for start in row.get("starts", ())
]


def magic(head: bytes) -> str | None:
    """Return the name of a binary format by its first bytes, or None."""
    if head[:4] == b"\x7fELF":
        return ELF_TYPES.get(int.from_bytes(head[16:18], "big" if head[5:6] == b"\2" else "little"), "ELF")
    if head[:4] == b"PK\x03\x04":  # zips of other things may hold logs
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return next((kind for kind, first_member in _ZIPS.items() if first_member.search(name)), None)
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 100 << 20:
        return "safetensors"
    return next((name for start, at, name in _STARTS if head.startswith(start, at)), None)


def binary(head: bytes) -> str | None:
    """Return the reason why a head is not text, or None.

    Control characters decide, not NULs alone: a text log may have NULs where the disk lost a page or where
    logrotate truncated a file that its writer did not open for appending. Text in an old encoding has bad
    UTF-8 but no controls.
    """
    if name := magic(head):
        return name
    if head.isascii() and b"\0" not in head:
        return None
    text = HOLES.sub(b"", head)
    controls = len(text) - len(text.translate(None, CONTROLS))
    bad = len(text) - len(text.decode("utf-8", "ignore").encode())
    if controls > 0.1 * len(text) or bad > 0.3 * len(text) and controls > 0.01 * len(text):
        return "no text"
    return None
