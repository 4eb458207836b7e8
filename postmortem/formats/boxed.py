r"""Tracebacks of rich (rich/traceback.py), as lines that Python would print.

    ╭───────────────── Traceback (most recent call last) ─────────────────╮
    │ /opt/train/data.py:10 in encode                                     │   File "data.py", line 10, in encode
    │ ❱ 10 │   return [vocab[token] for token in line]                    │
    ╰─────────────────────────────────────────────────────────────────────╯
    KeyError: 'é'                                                           KeyError: 'é'

A path wider than the box continues in the next row; a message wider than the box is broken between two words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from postmortem.formats.excerpt import Line
from postmortem.system import forms

MESSAGE = 12  # lines of one broken message
_REGEXES = forms.regexes("formats/exceptions")


def opens(body: str) -> bool:
    """Whether a line is the upper edge of such a box."""
    return _REGEXES["box-title"].match(body.lstrip()) is not None


def unboxed(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    """The lines below the upper edge `title`, as Python prints them."""
    row = ""
    for line in lines:
        body = line.envelope.body.strip()
        if body.startswith(("╰", "└", "+-")):
            if (first := next(lines, None)) is not None:
                yield from _message(first, lines, len(title.strip()))
            yield from lines
            return
        if body.startswith(("│", "|")):
            inside = body.strip("│|").strip()
            is_code = _REGEXES["box-code"].match(inside) is not None and (not row or "│" in inside)
            if not inside or inside[0] in "╭╰│" or len(row) > 1000 or is_code:
                row = ""
                continue
            row += inside if not row or not inside.startswith("in ") else f" {inside}"
            if place := _REGEXES["box-place"].match(row):
                yield line.with_body(f'  File "{place["file"]}", line {place["line"]}, in {place["func"]}')
                row = ""
        elif body:
            return


def _message(first: Line, lines: Iterator[Line], width: int) -> Iterator[Line]:
    """The exception's line, joined with the lines into which the box's width broke it."""
    body = last = first.envelope.body.strip()
    behind: list[Line] = []
    for line in islice(lines, MESSAGE):
        more = line.envelope.body.strip()
        if not more or line.envelope.stamp is not None or len(last) + 1 + len(more.partition(" ")[0]) <= width:
            behind.append(line)
            break
        body, last = f"{body} {more}", more
    yield from (first.with_body(body), *behind)
