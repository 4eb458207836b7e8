r"""What a paste or a syslog did to the lines of a console, undone.

    [36m(WorkerDict pid=3175143)[0m Fatal Python error: Aborted    a browser drops the ESC byte of a colour
    #033[2m#033[33m(raylet)#033[0m 2 Workers killed                 rsyslog writes it in octal
    ^[[32mINFO^[[0m step 12                                         less and cat -v spell it
        [rank1]: AssertionError                                     a block that stands indented as a whole

Colours count as lost only where lines both set and reset them: `[0m` alone may be a program's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from postmortem.formats.framing import Framer, Numbered
from postmortem.system import lazy as late

Undo = Callable[[str], str]
FEW = 3  # lines that show a margin
_COLOUR = late.regex(r"(?:#033|\^\[|\\(?:x1[bB]|033|u001[bB])|\u241b|\ufffd)?\[(?:\d{1,3}(?:;\d{1,3}){0,5})?m")
_RESETS = ("[0m", "[m", "[39m", "[00m")
_FRAME = re.compile(r'File "[^"]+", line \d')


def learn(text: str) -> Undo | None:
    """What to undo on every line of a log that has this at its head; None where nothing happened to it."""
    indented, coloured = text.lstrip("\n")[:1] in (" ", "\t"), any(code in text for code in _RESETS)
    if not indented and not coloured:  # as most are
        return None
    said = [line for line in text.split("\n") if line.strip()]
    margin = _margin(said) if indented else ""
    tinted = coloured and sum(map(_tinted, said)) > 1
    if tinted:
        return lambda line: _COLOUR.sub("", line.removeprefix(margin))
    return (lambda line: line.removeprefix(margin)) if margin else None


def undone(undo: Undo, framer: Framer) -> Framer:
    """Read the lines as `framer` does, once they are what was printed."""

    def read(numbered: Iterator[Numbered]) -> Iterator[Numbered]:
        return ((number, undo(text)) for number, text in numbered)

    return lambda numbered: framer(read(numbered))


def _tinted(line: str) -> bool:
    """Whether a line sets a colour and resets it, with escape bytes that are none."""
    if "\x1b" in line or not any(code in line for code in _RESETS):
        return False
    codes = [m[0] for m in _COLOUR.finditer(line)]
    return len(codes) > 1 and any(code.endswith(_RESETS) for code in codes[1:])


def _margin(lines: Sequence[str]) -> str:
    """The blanks in front of every line. A frame of a traceback stands two further in than its block."""
    if len(lines) < FEW:
        return ""
    shared = os.path.commonprefix([line[:200] for line in lines])
    margin = shared[: len(shared) - len(shared.lstrip())]
    framed = any(_FRAME.match(line, len(margin)) for line in lines)
    return margin.removesuffix("  ") if framed else margin
