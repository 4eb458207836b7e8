"""Texts of events -> templates and streams of what differs between them.

    "step 812: loss 0.4310"  ->  template "step \\0: loss \\0" with slots (3 digits) and
    (1 digit, 4 decimals), values 812 and 4310

Lines of a job differ in their numbers, and most of those count on from line to line or stay as they are. A
slot whose values mostly do is written as differences (`numbers`, zigzag varints; small ones compress to
almost nothing), any other as its bare digits, for a slot's width is part of its template. What is no decimal
number is written out (`words`, a line each).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

_ARGUMENT = re.compile(r"(0x[0-9a-f]+|\d+(?:\.\d+)?)", re.ASCII)
MAX_DIGITS = 15  # what a double holds exactly
SMALL = 64  # a difference below this is one byte
SHARE = 0.7
Slot = tuple[int, int] | None  # digits before and behind the point (-1: no point); None: written out
Template = tuple[tuple[str, ...], tuple[Slot, ...]]
Values = tuple[Any, ...]  # a number for each slot that counts its digits, else a word
Parsed = tuple[int, Values]


@dataclass(frozen=True, slots=True)
class Phrases:
    """`which` names the template of each text; `templates` and `streams` go into the page."""

    which: list[int]
    templates: list[Any]
    streams: dict[str, bytes]


def pack(texts: Sequence[str], lanes: Sequence[int]) -> Phrases:
    """Pack texts that lie lane by lane; `lanes` counts the texts of each.
    Most texts are said by many ranks, and taken apart once."""
    numbers: dict[Template, int] = {}
    parsed = {text: _parsed(text, numbers) for text in dict.fromkeys(texts)}
    templates = list(numbers)
    said = [parsed[text] for text in texts]
    befores = _befores(said, lanes)
    counting = _counting(said, befores, templates)
    counts = bytearray()
    for (which, values), before in zip(said, befores, strict=True):
        for place in counting[which]:
            counts += signed(values[place] - before[place])
    bare = {text: _bare(values, templates[which][1], counting[which]) for text, (which, values) in parsed.items()}
    streams = {
        "numbers": bytes(counts),
        "digits": "".join([bare[text][0] for text in texts]).encode(),
        "words": "".join([bare[text][1] for text in texts]).encode(),
    }
    told = [
        [literals, [_told(slot, place in counting[which]) for place, slot in enumerate(slots)]]
        for which, (literals, slots) in enumerate(templates)
    ]
    return Phrases([which for which, _ in said], told, streams)


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


def signed(number: int) -> bytes:
    """The varint of a number of either sign."""
    return _BYTES[number * 2 if number >= 0 else -number * 2 - 1] if -64 <= number < 64 else varint(zigzag(number))


def zigzag(number: int) -> int:
    """Small numbers of either sign as small numbers without one."""
    return number * 2 if number >= 0 else -number * 2 - 1


def _parsed(text: str, numbers: dict[Template, int]) -> Parsed:
    bits = _ARGUMENT.split(text)
    found = bits[1::2]
    slots = tuple(map(_slot, found))
    values = tuple(
        word if slot is None else int(word.replace(".", "")) for word, slot in zip(found, slots, strict=True)
    )
    return numbers.setdefault((tuple(bits[::2]), slots), len(numbers)), values


def _slot(word: str) -> Slot:
    whole, point, part = word.partition(".")
    if word.startswith("0x") or len(whole) + len(part) > MAX_DIGITS:
        return None
    return len(whole), len(part) if point else -1


def _told(slot: Slot, counts: bool) -> Any:
    return 0 if slot is None else [*slot, int(counts)]


def _bare(values: Values, slots: Sequence[Slot], counting: Container[int]) -> tuple[str, str]:
    """What is written of a text without regard to the one before it:
    digits, and words with their line ends."""
    rest = [
        (value, slot) for place, (value, slot) in enumerate(zip(values, slots, strict=True)) if place not in counting
    ]
    digits = "".join(f"{value:0{slot[0] + max(slot[1], 0)}d}" for value, slot in rest if slot is not None)
    return digits, "".join(f"{value}\n" for value, slot in rest if slot is None)


def _befores(said: Sequence[Parsed], lanes: Sequence[int]) -> list[Values]:
    """For each text, the values of the text before it in the lane that has the same template;
    zeros for the first."""
    out, at = [], 0
    for count in lanes:
        last: dict[int, Values] = {}
        for which, values in said[at : at + count]:
            out.append(last.get(which) or (0,) * len(values))
            last[which] = values
        at += count
    return out


def _counting(said: Sequence[Parsed], befores: Sequence[Values], templates: Sequence[Template]) -> list[list[int]]:
    """For each template the slots whose values mostly stay near the one before."""
    pairs: list[list[tuple[Values, Values]]] = [[] for _ in templates]
    for (which, values), before in zip(said, befores, strict=True):
        pairs[which].append((values, before))
    return [
        [
            place
            for place, slot in enumerate(slots)
            if slot is not None
            and sum([-SMALL < value[place] - before[place] < SMALL for value, before in found]) >= SHARE * len(found)
        ]
        for (_, slots), found in zip(templates, pairs, strict=True)
    ]
