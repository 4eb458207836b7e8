"""Facts about a regular expression that decide whether it may run over every line of a hostile log.

    certain_literal(r"Killed process \\d+")  -> "Killed process "
    slowest(regex, lines)                   -> how its time grows on lines made to annoy it
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

LONG, SHORT = 16384, 1638  # a confirmation sees at most 16 KiB of a line
NOTICEABLE_S = 0.005  # below this even the longest line does not hurt, whatever the curve
MAX_GROWTH = 15  # a line ten times as long may take this many times as long
TIMEOUT_S = 0.5
PUMPS = ("0", "a", " ", "-", "(", ":", "f ", "1,")


class Growth(NamedTuple):
    """How much longer a search takes on a line ten times as long, and what line that was."""

    ratio: float
    seconds: float
    line: str


def certain_literal(expression: str) -> str:
    """Return the text with the most letters that stands in every match; empty if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import re._parser as parser  # type: ignore[import-not-found]  # the only parser of its own syntax that Python ships
    return _best(_runs(parser.parse(expression)))


def letters(text: str) -> int:
    return sum(c.isalpha() for c in text)


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


def attacks(expression: str, lines: Iterable[str]) -> list[str]:
    """Return pieces that, repeated, come near to a match again and again without being one."""
    found = [re.sub(r"\\(.)", r"\1", s) for s in re.findall(r"(?:\\[^\w]|[\w :,/=<>'\"-]){2,}", expression)]
    pieces: list[tuple[str, str]] = [("", s) for s in found]
    pieces += [(s, pump) for s in found for pump in PUMPS]
    for line in list(lines)[:4]:
        cuts = {line[: len(line) * n // 6] for n in range(1, 6)} | {line[:-1]}
        pieces += [("", cut) for cut in cuts if cut]
        pieces += [(cut, pump) for cut in cuts for pump in PUMPS[:3]]
    return ["\0".join(p) for p in dict.fromkeys(pieces)]


def _line(attack: str, size: int) -> bytes:
    head, piece = attack.split("\0")
    repeated = piece * (max(0, size - len(head)) // len(piece) + 1)
    return (head + repeated)[:size].encode("latin-1", "replace") + b"\x01"


def slowest(expression: str, lines: Sequence[str] = ()) -> Growth:
    """Return how a search by `expression` grows on the first line found that it is slow on, else a ratio of 1.

    The lines are built from the expression's own literals and from `lines`.
    """
    import regex

    compiled = regex.compile(expression.encode())
    for attack in attacks(expression, lines):
        long = _seconds(compiled, _line(attack, LONG), 1)
        if long < NOTICEABLE_S:
            continue
        long = min(long, _seconds(compiled, _line(attack, LONG), 2))  # once may have been another process's turn
        ratio = long / max(_seconds(compiled, _line(attack, SHORT), 3), 1e-7)
        if long >= NOTICEABLE_S and ratio > MAX_GROWTH:
            return Growth(ratio, long, attack.replace("\0", " … ")[:80])
    return Growth(1.0, 0.0, "")


def _seconds(compiled: Any, line: bytes, times: int) -> float:
    best = 1e9
    for _ in range(times):
        start = time.thread_time()
        try:
            compiled.search(line, timeout=TIMEOUT_S)
        except TimeoutError:
            return TIMEOUT_S
        best = min(best, time.thread_time() - start)
    return best


@lru_cache(maxsize=4096)
def refusal(gate: bytes) -> str:
    """Say which engine refuses `gate`, and why; empty if both take it."""
    import hyperscan
    import re2

    try:
        _database([gate])
    except hyperscan.error as e:
        return f"Hyperscan refuses the gate: {e}"
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    try:
        re2.compile(gate, options)
    except re2.error as e:
        return f"RE2 refuses the gate: {e}"
    return ""


def callbacks(gates: Sequence[bytes], data: bytes) -> list[int]:
    """Return how often the scanner is called back for each gate over `data`."""
    counts = [0] * len(gates)
    if gates and data:

        def count(number: int, start: int, end: int, flags: int, context: object) -> None:
            counts[number] += 1

        _database(gates).scan(data, match_event_handler=count)
    return counts


def _database(gates: Sequence[bytes]) -> Any:
    import hyperscan

    database: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=list(gates), ids=list(range(len(gates))), flags=hyperscan.HS_FLAG_MULTILINE)
    return database
