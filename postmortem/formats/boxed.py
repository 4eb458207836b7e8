r"""rich's tracebacks -> their lines as Python prints them (rich/traceback.py, `install()` or
`RichHandler(rich_tracebacks=True)`).

    ╭───────────────── Traceback (most recent call last) ─────────────────╮
    │ /opt/train/data.py:10 in encode                                     │   File "data.py", line 10, in encode
    │ ❱ 10 │   return [vocab[token] for token in line]                    │
    │ ╭──────────── locals ────────────╮                                  │
    ╰─────────────────────────────────────────────────────────────────────╯
    KeyError: 'é'                                                           KeyError: 'é'

A path that is wider than the box goes on in the next row of it; a message wider than the box is broken
between two words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.formats.excerpt import Line

MESSAGE = 12  # lines that one message is broken into, at most
_PLACE = re.compile(r"(?P<file>[^\s❱│][^│]{0,400}?):(?P<line>\d{1,7}) in (?P<func>[\w<>.]{1,200})$")
_CODE = re.compile(r"(?:❱ *)?\d{1,7}(?: |$)|❱")
_TITLE = re.compile(r"[╭+┌][─-]{2}.*Traceback \(most recent call last\)")


def opens(body: str) -> bool:
    """Whether a line is the upper edge of such a box."""
    return _TITLE.match(body.lstrip()) is not None


def unboxed(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    """The lines below the upper edge `title`, as Python prints them."""
    width = len(title.strip())
    row, closed = "", False
    for line in lines:
        body = line.envelope.body.strip()
        if closed:
            yield from _message(line, lines, width)
            yield from lines
            return
        if body.startswith(("╰", "└", "+-")):
            closed = True
        elif body.startswith(("│", "|")):
            inside = body.strip("│|").strip()
            if not inside or inside[0] in "╭╰│" or len(row) > 1000 or _is_code(inside, row):
                row = ""
                continue
            row += inside if not row or not inside.startswith("in ") else f" {inside}"
            if place := _PLACE.match(row):
                text = f'  File "{place["file"]}", line {place["line"]}, in {place["func"]}'
                yield line._replace(envelope=line.envelope._replace(body=text))
                row = ""
        elif body:
            return


def _is_code(inside: str, row: str) -> bool:
    """Whether a row shows a line of the source, and is not the end of a path that did not fit."""
    return _CODE.match(inside) is not None and (not row or "│" in inside)


def _message(first: Line, lines: Iterator[Line], width: int) -> Iterator[Line]:
    """The exception's line, and what of it did not fit into a line of the box's width."""
    body = last = first.envelope.body.strip()
    behind = None
    for _, line in zip(range(MESSAGE), lines, strict=False):
        more = line.envelope.body.strip()
        word = more.partition(" ")[0]
        if not more or line.envelope.stamp is not None or len(last) + 1 + len(word) <= width:
            behind = line
            break
        body, last = f"{body} {more}", more
    yield first._replace(envelope=first.envelope._replace(body=body))
    if behind is not None:
        yield behind
