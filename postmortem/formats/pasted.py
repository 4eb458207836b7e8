r"""Colors that lost their escape byte, and a margin of the whole log: removed.

    [36m(WorkerDict pid=3175143)[0m Fatal Python error: Aborted    a browser drops the ESC byte of a color
    #033[2m#033[33m(raylet)#033[0m 2 Workers killed                 rsyslog writes it in octal
    ^[[32mINFO^[[0m step 12                                         less and cat -v
        [rank1]: AssertionError                                     an indented paste

Colors count as lost only where lines both set and reset them: `[0m` alone may be a program's own text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from postmortem.system import lazy

Undo = Callable[[str], str]
FEW = 3  # lines that show a margin
_COLOR = lazy.regex(r"(?:#033|\^\[|\\(?:x1[bB]|033|u001[bB])|\u241b|\ufffd)?\[(?:\d{1,3}(?:;\d{1,3}){0,5})?m")
_RESET = lazy.regex(r"\[(?:00?|39)?m")


def learn(text: str) -> Undo | None:
    """The function that restores each line of a log that begins with `text`; None where nothing was changed."""
    indented, colored = text.lstrip("\n")[:1] in (" ", "\t"), _RESET.search(text) is not None
    if not indented and not colored:
        return None
    lines = [line for line in text.split("\n") if line.strip()]
    margin = _margin(lines) if indented else ""
    if colored and sum(map(_is_colored, lines)) > 1:
        return lambda line: _COLOR.sub("", line.removeprefix(margin))
    return (lambda line: line.removeprefix(margin)) if margin else None


def _is_colored(line: str) -> bool:
    """Whether a line sets and resets a color without escape bytes."""
    if "\x1b" in line or not _RESET.search(line):
        return False
    codes = [m[0] for m in _COLOR.finditer(line)]
    return len(codes) > 1 and any(_RESET.search(code) for code in codes[1:])


def _margin(lines: Sequence[str]) -> str:
    """The blanks in front of every line. A frame of a traceback is indented by two within its block."""
    if len(lines) < FEW:
        return ""
    shared = os.path.commonprefix([line[:200] for line in lines])
    margin = shared[: len(shared) - len(shared.lstrip())]
    framed = any(line.startswith('File "', len(margin)) for line in lines)
    return margin.removesuffix("  ") if framed else margin
