"""Texts of events -> templates and streams of what differs between them.

    "step 812: loss 0.4310"  ->  template "step \\0: loss \\0" with slots (3 digits) and (1 digit, 4 decimals), values 812 and 4310

Lines of a job differ in their numbers, and most of those count on from line to line or stay as they are. A slot whose values
mostly do is written as differences (`numbers`, zigzag varints; small ones compress to almost nothing), any other as its bare
digits, for a slot's width is part of its template. What is no decimal number is written out (`words`, a line each).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_ARGUMENT = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?", re.ASCII)
MAX_DIGITS = 15  # what a double holds exactly
SMALL = 64  # a difference below this is one byte
SHARE = 0.7
Slot = tuple[int, int] | None  # digits before and behind the point (-1: no point); None: written out
Template = tuple[tuple[str, ...], tuple[Slot, ...]]
Parsed = tuple[int, tuple[int | str, ...]]


@dataclass(frozen=True, slots=True)
class Phrases:
    """`which` names the template of each text; `templates` and `streams` go into the page."""

    which: list[int]
    templates: list[Any]
    streams: dict[str, bytes]


def pack(texts: Iterable[str], lanes: Sequence[int]) -> Phrases:
    """Pack texts that lie lane by lane; `lanes` counts the texts of each."""
    numbers: dict[Template, int] = {}
    seen: dict[str, Parsed] = {}
    parsed = [seen.get(text) or seen.setdefault(text, _parsed(text, numbers)) for text in texts]
    templates = list(numbers)
    counting = _counting(parsed, lanes, templates)
    streams = {"numbers": bytearray(), "digits": bytearray(), "words": bytearray()}
    for (which, values), before in zip(parsed, _befores(parsed, lanes), strict=True):
        for place, slot in enumerate(templates[which][1]):
            value = values[place]
            if slot is None or isinstance(value, str):
                streams["words"] += f"{value}\n".encode()
            elif (which, place) in counting:
                streams["numbers"] += varint(zigzag(value - (before[place] if before else 0)))
            else:
                streams["digits"] += f"{value:0{_width(slot)}d}".encode()
    told = [
        [literals, [_told(slot, (which, place) in counting) for place, slot in enumerate(slots)]]
        for which, (literals, slots) in enumerate(templates)
    ]
    return Phrases([which for which, _ in parsed], told, {name: bytes(stream) for name, stream in streams.items()})


def varint(number: int) -> bytes:
    """LEB128: seven bits in each byte, the lowest first."""
    if number < 128:
        return _BYTES[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_BYTES = [bytes([number]) for number in range(128)]


def zigzag(number: int) -> int:
    """Small numbers of either sign as small numbers without one."""
    return number * 2 if number >= 0 else -number * 2 - 1


def _parsed(text: str, numbers: dict[Template, int]) -> Parsed:
    found = _ARGUMENT.findall(text)
    slots = tuple(map(_slot, found))
    template = (tuple(_ARGUMENT.sub("\0", text).split("\0")), slots)
    values = tuple(word if slot is None else int(word.replace(".", "")) for word, slot in zip(found, slots, strict=True))
    return numbers.setdefault(template, len(numbers)), values


def _slot(word: str) -> Slot:
    whole, point, part = word.partition(".")
    if word.startswith("0x") or len(whole) + len(part) > MAX_DIGITS:
        return None
    return len(whole), len(part) if point else -1


def _width(slot: tuple[int, int]) -> int:
    return slot[0] + max(slot[1], 0)


def _told(slot: Slot, counts: bool) -> Any:
    return 0 if slot is None else [*slot, int(counts)]


def _befores(parsed: Sequence[Parsed], lanes: Sequence[int]) -> Iterable[Any]:
    """For each text, the values of the text before it in the lane that has the same template; None for the first."""
    at = 0
    for count in lanes:
        last: dict[int, tuple[int | str, ...]] = {}
        for which, values in parsed[at : at + count]:
            yield last.get(which)
            last[which] = values
        at += count


def _counting(parsed: Sequence[Parsed], lanes: Sequence[int], templates: Sequence[Template]) -> set[tuple[int, int]]:
    """The slots (template, place) whose values mostly stay near the one before."""
    small: dict[tuple[int, int], int] = {}
    total: dict[int, int] = {}
    for (which, values), before in zip(parsed, _befores(parsed, lanes), strict=True):
        total[which] = total.get(which, 0) + 1
        for place, slot in enumerate(templates[which][1]):
            value = values[place]
            if slot is not None and isinstance(value, int) and abs(value - (before[place] if before else 0)) < SMALL:
                small[which, place] = small.get((which, place), 0) + 1
    return {key for key, count in small.items() if count >= SHARE * total[key[0]]}
