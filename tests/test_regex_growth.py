"""No regex of the package takes more than linear time on the longest text that its callers pass to it.

A process of its own reads the logs of tests/data/excerpts/, many of their lines made very long, and records each regex
with its methods and the length of its longest text. Each is then tried on texts built from its own syntax tree, almost a
match, of a quarter of that length and of the whole; one that those logs did not reach is tried with `match`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from fuzz.watch import Slow, in_time

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


def repeats(tokens: Tokens, before: str = "", outer: int = 1) -> Iterator[tuple[str, list[str]]]:
    """Each repeat of the tokens that can be long: what comes before it, and texts that it repeats."""
    for op, value in tokens:
        name = str(op)
        inner = {"SUBPATTERN": -1, "BRANCH": 1, "ASSERT": 1, "ASSERT_NOT": 1}.get(name)
        if name.endswith("REPEAT"):
            (first, of), *more = list(value[2])
            times = outer * max(int(value[1]), 1)
            if times >= 40:
                yield before, members(of)[:6] if str(first) == "IN" and not more else [shortest(value[2]) or "a"]
            yield from repeats(value[2], before, times)
        elif inner is not None or name == "ATOMIC_GROUP":
            parts = value if inner is None else value[inner]
            for part in parts if name == "BRANCH" else [parts]:
                yield from repeats(part, before, outer)
        before += shortest([(op, value)])


def attacks(regex: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Beginnings and pieces of texts that are almost a match; none where nothing is repeated."""
    import re._parser as parser  # type: ignore[import-not-found]

    tree = parser.parse(regex.pattern, regex.flags)
    whole, many = shortest(tree), list(repeats(tree))
    if not many:
        return []
    found = [("", piece) for piece in (*"0a _.-", whole[:-1], f"{whole[:-1]} ", whole[: len(whole) // 2]) if piece]
    for before, pieces in many:
        for piece in pieces:
            found += [("", piece), (before, piece), (before[-3:], piece)]
            found += [("", before[-1:] + piece), ("", before + piece), ("", piece + before)]
    return list(dict.fromkeys(found))[:60]


def seconds(search: Any, text: object, times: int = 1) -> float:
    found = []
    for _ in range(times):
        start = time.thread_time()
        search(text)
        found.append(time.thread_time() - start)
    return max(min(found), 1e-6)


def growth(regex: re.Pattern[Any], method: str, size: int, limit: float, most: float = 1) -> tuple[float, str]:
    """How many times as long a text of four times the length takes: 4 is linear, 16 quadratic. The worst of all, or the
    first above the limit in each of four measurements, or one of more than `most` seconds."""
    search, worst = getattr(regex, method), (0.0, "")
    for head, piece in attacks(regex):
        line = f"{head}{piece * (size // len(piece))}"
        few, many = (f"{line[:n]}\x01" for n in (size // 4, size))
        if isinstance(regex.pattern, bytes):
            few, many = (text.encode("latin1", "replace") for text in (few, many))  # type: ignore[assignment]
        try:
            with in_time(most):  # `re` looks for signals while it searches
                # a short text is fast however it grows; a busy neighbor slows one measurement, a slow regex all of them
                if (short := seconds(search, few)) <= 1e-4 or (long := seconds(search, many)) <= 1e-3:
                    continue
                for _ in range(4 if long > limit * short / 2 else 0):
                    short, long = seconds(search, few, 5), min(long, seconds(search, many))
                    if long <= limit * short:
                        break
        except Slow:
            return 1e9, f"{head!r} {piece!r}"
        worst = max(worst, (long / short, f"{head!r} {piece!r}"))
        if worst[0] > limit:
            break
    return worst


@pytest.mark.slow
def test_the_measure_finds_nested_and_neighboring_repeats() -> None:
    for source, method, most in ((r"\|\s*[\w/]+(?:[ _/][\w/]+)*\s*\|", "match", 100), (r" *(?:a )? *b", "match", 10)):
        assert growth(re.compile(source), method, 200 if most == 100 else 16_000, most)[0] > most
    sizes = {r"\d+x": 16_000, r"(?<!\d)\d+x": 4000, r"\dx": 4000}
    found = [growth(re.compile(source), "search", size, 10)[0] for source, size in sizes.items()]
    assert found[0] > 10 > found[1] and not found[2]


@pytest.mark.slow
def test_no_regex_is_slower_than_its_longest_text() -> None:
    done = python(RECORDER, check=True)
    known = json.loads(done.stdout)
    assert len(known) > 700 and sum(size >= MOST for *_, size in known) > 50
    slow = {}
    for source, flags, is_bytes, methods, size in known:
        regex = re.compile(source.encode("latin1") if is_bytes else source, flags & ~re.UNICODE if is_bytes else flags)
        limit = 10 if size > SHORT else 30
        for method in methods:
            found, text = growth(regex, method, min(size, MOST), limit)
            if found > limit:
                slow[f"{method} {source[:200]}"] = f"{found:.0f} times as long for 4 times {text}"
    assert not slow
