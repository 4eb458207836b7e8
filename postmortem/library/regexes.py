"""Facts about a regular expression that decide whether it may run over every line of a hostile log.

certain_literal(r"Killed process \\d+")  -> "Killed process "
slowest(regex, lines)                   -> how its time grows on lines made to annoy it
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import regex

LONG, SHORT = 16384, 1638  # a confirmation sees at most 16 KiB of a line
NOTICEABLE_S = 0.005  # below this even the longest line does not hurt, whatever the curve
MAX_GROWTH = 20  # a line ten times as long may take this many times as long: linear ones take up to 15
TIMEOUT_S = 0.5
PATIENCE = 2.0  # seconds that one search of a line may take: patterns of the user's own are not linted
TRIES = 3  # an attack must be slow each time: other processes take the processor, and its caches
CANDIDATES = 6  # as many attacks as are tried at full length
NOT_LITERAL = re.compile(r"\(\?P?<\w+>|\(\?\w*:|\[\^?\]?[^\]]*\]|\\\w|\{[0-9,]*\}")
LITERAL = re.compile(r"""(?:\\\W|[\w :,/=<>'"-])+""")
PUMPS = ("0", "a", " ", "-", "(", ":", "f ", "1,")


def search(expression: str, text: str) -> regex.Match[str] | None:
    """Search with an expression that may be a user's own; None where it does not end in time."""
    try:
        return regex.search(expression, text, timeout=PATIENCE)
    except TimeoutError:
        return None


class Growth(NamedTuple):
    """How much longer a search takes on a line ten times as long, and that line."""

    ratio: float
    seconds: float
    line: str


def certain_literal(expression: str) -> str:
    """Return the longest text, by letters, that every match contains; empty if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # the only parser of its own syntax that Python ships
        import re._parser as parser  # type: ignore[import-not-found]
    return _best(_runs(parser.parse(expression)))


def letters(text: str) -> int:
    """Return how many bytes the letters of a text have."""
    return sum(len(c.encode("utf-8", "replace")) for c in text if c.isalpha())


def _best(runs: Iterable[str]) -> str:
    return max(runs, key=letters, default="")


def _runs(tokens: Iterable[Any]) -> Iterator[str]:
    run = ""
    for name, value in _flat(tokens):
        if name == "LITERAL":
            run += chr(value)
            continue
        if name == "AT":  # zero-width
            continue
        yield run
        run = ""
        if name == "BRANCH":
            yield min((_best(_runs(branch)) for branch in value[1]), key=letters, default="")
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
            yield from _runs(value[2])
    yield run


def _flat(tokens: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for op, value in tokens:
        if str(op) == "SUBPATTERN":
            yield from _flat(value[3])
        else:
            yield str(op), value


class Attack(NamedTuple):
    """A line that is almost a match: `head`, `piece` again and again, `tail`."""

    head: str
    piece: str
    tail: str

    def line(self, size: int) -> bytes:
        head, tail = self.head.encode(), b"\x01" + self.tail.encode()
        piece = self.piece.encode()
        return head + piece * ((size - len(head) - len(tail)) // len(piece) + 1) + tail

    def __str__(self) -> str:
        return f"{self.head[-40:]!r} and {self.piece[:60]!r} again and again"


def attacks(expression: str, lines: Iterable[str]) -> list[Attack]:
    """Return attacks made of the expression's own literals and of the beginnings of `lines`."""
    bare = NOT_LITERAL.sub("(", expression)
    found = [re.sub(r"\\(.)", r"\1", s) for s in LITERAL.findall(bare)]
    heads = [s for s in found if len(s) > 1]
    pieces = [("", s) for s in heads] + [(s, pump) for s in heads for pump in PUMPS]
    for line in list(lines)[:2]:
        cuts = {line[: len(line) * n // 6] for n in range(1, 6)} | {line[:-1]}
        pieces += [("", cut) for cut in sorted(cuts) if cut]
        pieces += [(cut, pump) for cut in sorted(cuts) for pump in PUMPS[:3]]
    tail = found[-1] if found else ""  # a search gives up at once where a mandatory text is missing
    return [Attack(head, piece, tail) for head, piece in dict.fromkeys(pieces)]


def slowest(expression: str, lines: Sequence[str] = ()) -> Growth:
    """Return the growth on the first line found that `expression` is slow on, else a ratio of 1."""
    compiled = regex.compile(expression.encode())
    hardest = sorted(((_seconds(compiled, a.line(SHORT), 1), a) for a in attacks(expression, lines)), reverse=True)
    for _, attack in hardest[:CANDIDATES]:
        found = [g for _ in range(TRIES) if (g := _growth(compiled, attack))] if _growth(compiled, attack) else []
        if len(found) == TRIES:
            return min(found)
    return Growth(1.0, 0.0, "")


def _growth(compiled: Any, attack: Attack) -> Growth | None:
    long, short = _seconds(compiled, attack.line(LONG), 3), _seconds(compiled, attack.line(SHORT), 3)
    if long < NOTICEABLE_S or long <= MAX_GROWTH * short or long < _yardstick():
        return None
    return Growth(long / short, long, str(attack))


def _yardstick() -> float:
    """Return the time of a known search on this machine as busy as it is now; on an idle one NOTICEABLE_S."""
    return _seconds(regex.compile(b":[^;]+;"), (b":" + b"a" * 54) * (LONG // 55), 3)


def _seconds(compiled: Any, line: bytes, times: int) -> float:
    best = 1e9
    for _ in range(times):
        start = time.thread_time()
        try:
            compiled.search(line, timeout=TIMEOUT_S)
        except TimeoutError:
            return TIMEOUT_S
        best = min(best, time.thread_time() - start)
        if best < NOTICEABLE_S / 10:
            break
    return max(best, 1e-7)
