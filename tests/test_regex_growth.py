"""No regex of the package takes more than linear time on the longest text that its callers pass to it.

A process of its own reads the logs of tests/data/excerpts/, many of their lines made very long, and records each regex
with its methods and the length of its longest text. Each is then tried on texts built from its own syntax tree, almost a
match, of a quarter of that length and of the whole; one that those logs did not reach is tried with `match`.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conftest import ROOT, python

RECORDER = ROOT / "tests" / "regexes" / "recorder.py"
MOST = 1 << 14  # of a text, where the callers pass the whole line
SHORT = 1 << 11  # up to here n² steps are some milliseconds
CHARACTERS = "0a A-_./:,;=x\"'()[]{}<>|\\\t"
CATEGORIES: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdigit,
    "SPACE": str.isspace,
    "WORD": lambda c: c.isalnum() or c == "_",
}
Tokens = Iterable[tuple[Any, Any]]


def members(items: list[tuple[Any, Any]]) -> list[str]:
    """Some characters of a class."""
    name, value = items[0]
    if str(name) == "NEGATE":
        return [c for c in CHARACTERS if c not in members(items[1:])] or ["\x02"]
    found = [chr(v if str(op) == "LITERAL" else v[0]) for op, v in items if str(op) in ("LITERAL", "RANGE")]
    for name in (str(v).removeprefix("CATEGORY_") for op, v in items if str(op) == "CATEGORY"):
        is_member = CATEGORIES[name.removeprefix("NOT_")]
        found += [c for c in CHARACTERS if is_member(c) != name.startswith("NOT_")]
    return found


def shortest(tokens: Tokens) -> str:
    """A short text that the tokens match, but for their assertions."""
    text = ""
    for op, value in tokens:
        name = str(op)
        if name in ("LITERAL", "NOT_LITERAL"):
            text += chr(value) if name == "LITERAL" else "a" if value != ord("a") else "b"
        elif name == "IN":
            text += members(value)[0]
        elif name == "ANY":
            text += "a"
        elif name == "BRANCH":
            text += min(map(shortest, value[1]), key=len)
        elif name.endswith("REPEAT"):
            text += shortest(value[2]) * value[0]
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            text += shortest(value[3] if name == "SUBPATTERN" else value)
    return text


def repeats(tokens: Tokens, before: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each repeat of the tokens: what comes before it, and texts that it repeats."""
    for op, value in tokens:
        name = str(op)
        inner = {"SUBPATTERN": -1, "BRANCH": 1, "ASSERT": 1, "ASSERT_NOT": 1}.get(name)
        if name.endswith("REPEAT"):
            (first, of), *more = list(value[2])
            if value[1] >= 40:
                yield before, members(of)[:6] if str(first) == "IN" and not more else [shortest(value[2]) or "a"]
            yield from repeats(value[2], before)
        elif inner is not None or name == "ATOMIC_GROUP":
            parts = value if inner is None else value[inner]
            for part in parts if name == "BRANCH" else [parts]:
                yield from repeats(part, before)
        before += shortest([(op, value)])


def attacks(source: str, flags: int) -> list[tuple[str, str]]:
    """Beginnings and pieces of texts that are almost a match."""
    import re._parser as parser  # type: ignore[import-not-found]

    tree = parser.parse(source, flags)
    whole = shortest(tree)
    found = [("", piece) for piece in (*"0a _.-", whole[:-1], f"{whole[:-1]} ", whole[: len(whole) // 2]) if piece]
    for before, pieces in repeats(tree):
        for piece in pieces:
            found += [("", piece), (before, piece), (before[-3:], piece)]
            found += [("", before[-1:] + piece), ("", before + piece), ("", piece + before)]
    return list(dict.fromkeys(found))[:60]


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """`re` looks for signals while it searches."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds(search: Any, text: object, times: int = 1) -> float:
    found = []
    for _ in range(times):
        start = time.thread_time()
        search(text)
        found.append(time.thread_time() - start)
    return max(min(found), 1e-6)


def growth(source: str, flags: int, is_bytes: bool, method: str, size: int, limit: float = 60) -> tuple[float, str]:
    """How many times as long the worst text of four times the length takes: 4 is linear, 16 quadratic."""
    whole = re.compile(source.encode("latin1") if is_bytes else source, flags & ~re.UNICODE if is_bytes else flags)
    search, worst = getattr(whole, method), (0.0, "")
    for head, piece in attacks(source, flags):
        line = f"{head}{piece * (size // len(piece))}"
        few, many = (f"{line[:n]}\x01" for n in (size // 4, size))
        if is_bytes:
            few, many = (text.encode("latin1", "replace") for text in (few, many))  # type: ignore[assignment]
        try:
            with patience(limit):
                if (long := seconds(search, few)) > 1e-4 and (long := seconds(search, many)) > 1e-3:
                    worst = max(
                        worst, (min(long, seconds(search, many)) / seconds(search, few, 5), f"{head!r} {piece!r}")
                    )
        except TimeoutError:
            return 1e9, f"{head!r} {piece!r}"
    return worst


def test_the_measure_finds_nested_and_neighboring_repeats() -> None:
    for source, method, most in ((r"\|\s*[\w/]+(?:[ _/][\w/]+)*\s*\|", "match", 100), (r" *(?:a )? *b", "match", 10)):
        assert growth(source, 0, False, method, 200 if most == 100 else 4000, limit=2)[0] > most
    assert growth(r"\d+x", 0, False, "search", 4000)[0] > 10 > growth(r"(?<!\d)\d+x", 0, False, "search", 4000)[0]


@pytest.mark.slow
def test_no_regex_is_slower_than_its_longest_text() -> None:
    done = python(RECORDER, check=True)
    known = json.loads(done.stdout)
    assert len(known) > 700 and sum(size >= MOST for *_, size in known) > 50
    slow = {}
    for source, flags, is_bytes, methods, size in known:
        size = min(size, MOST)
        for method in methods:
            limit = 10 if size > SHORT else 30
            for _ in range(4):  # a busy neighbor slows one measurement, a slow regex all of them
                found, text = growth(source, flags, is_bytes, method, size)
                if found <= limit:
                    break
            else:
                slow[f"{method} {source[:200]}"] = f"{found:.0f} times as long for 4 times {text}"
    assert not slow
