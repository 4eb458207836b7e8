r"""One line of bytes -> the parts that a regex may see: without colors and NULs, cut at each `\r`.

    b"\x1b[31m 12%|#   | 5/40\rTraceback (most recent call last):"
    ->  " 12%|#   | 5/40", "Traceback (most recent call last):"

Colors come from rich, structlog and torchrun's own `--log-line-prefix-template`; NULs from a file that was truncated
under its writer (`copytruncate`), or from a console that lost power; `\r` from tqdm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WINDOW = 8 << 10
WHOLE = 2 * WINDOW  # a part of a line up to this length is looked at in one piece, a longer one in windows

# ECMA-48: CSI (colors, cursor), OSC (titles, links; ended by BEL or ST), and the character set of `tput sgr0`
ESCAPES = re.compile(rb"\x00+|\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)|\([0-9A-Z])")


def has_escapes(data: bytes, start: int, end: int) -> bool:
    return data.find(b"\x1b", start, end) >= 0 or data.find(b"\0", start, end) >= 0


def clean(raw: bytes) -> bytes:
    """Remove escape sequences and NULs. Line ends stay, so the n-th line stays the n-th line."""
    return ESCAPES.sub(b"", raw)


def raw_index(raw: bytes, index: int) -> int:
    """Return the index in `raw` of the byte at `index` in `clean(raw)`."""
    gone = 0
    for escape in ESCAPES.finditer(raw):
        if escape.start() - gone > index:
            break
        gone += len(escape[0])
    return index + gone


def units(text: bytes, *, inside: bool = False) -> Iterator[tuple[int, int]]:
    r"""Cut a cleaned line into (start, end): its parts between two `\r`, and long parts into windows.

    Windows are 24 KiB on a grid of 8 KiB, so that each match of up to 8 KiB is in one of them with 8 KiB after it.
    `inside`: the line does not begin at the first byte, which only shows that.
    """
    start = 1 if inside else 0
    while start < len(text):
        end = text.find(b"\r", start)
        end = len(text) if end < 0 else end
        if end - start > WHOLE:
            yield from _windows(start, end)
        elif end > start:
            yield start, end
        start = end + 1


def _windows(start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start // WINDOW * WINDOW
    while True:
        high = min(end, at + 3 * WINDOW)
        yield max(start, at), high
        if high == end:
            return
        at += WINDOW


def begins(text: bytes, at: int) -> bool:
    """Return whether a line or a part of one begins at `at`, so that `^` may match there."""
    return at == 0 or text[at - 1] == 13


def ends(text: bytes, at: int) -> bool:
    return at == len(text) or text[at] == 13
