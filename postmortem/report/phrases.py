"""Texts of events as templates and streams of the numbers that differ between them.

    "step 812: loss 0.4310"  ->  template "step \\0: loss \\0" with slots (3 digits) and
    (1 digit, 4 decimals), values 812 and 4310

Lines of a job differ in their numbers, most of which count on from line to line or stay the same. A slot whose values
mostly do is written as differences (`numbers`, zigzag varints; small ones compress to almost nothing), any other as
its bare digits, for a slot's width is part of its template. A word that is no decimal number is written out (`words`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

_ARGUMENT = re.compile(r"(0x[0-9a-f]+|\d+(?:\.\d+)?)", re.ASCII)
MAX_DIGITS = 15  # the precision of a double
SMALL = 64  # a difference below this is one byte
SHARE = 0.7
Slot = tuple[int, int] | None  # digits before and after the point (-1: no point); None: written out
Template = tuple[tuple[str, ...], tuple[Slot, ...]]
Values = tuple[Any, ...]  # a number for each slot that counts its digits, else a word
Parsed = tuple[int, Values]


@dataclass(frozen=True, slots=True)
class Phrases:
    """`which` is the template of each text; `templates` and `streams` are embedded in the page."""

    which: list[int]
    templates: list[Any]
    streams: dict[str, bytes]


def pack(texts: Sequence[str], lanes: Sequence[int]) -> Phrases:
    """Pack texts that are sorted by lane; `lanes` counts the texts of each. Equal texts are parsed once."""
    numbers: dict[Template, int] = {}
    parsed = {text: _parsed(text, numbers) for text in dict.fromkeys(texts)}
    templates = list(numbers)
    rows = [parsed[text] for text in texts]
    befores = _befores(rows, lanes)
    counting = _counting(rows, befores, templates)
    counts = bytearray()
    for (which, values), before in zip(rows, befores, strict=True):
        for place in counting[which]:
            counts += signed(values[place] - before[place])
    bare = {text: _bare(values, templates[which][1], counting[which]) for text, (which, values) in parsed.items()}
    streams = {
        "numbers": bytes(counts),
        "digits": "".join([bare[text][0] for text in texts]).encode(),
        "words": "".join([bare[text][1] for text in texts]).encode(),
    }
    described = [
        [
            literals,
            [0 if slot is None else [*slot, int(place in counting[which])] for place, slot in enumerate(slots)],
        ]
        for which, (literals, slots) in enumerate(templates)
    ]
    return Phrases([which for which, _ in rows], described, streams)


_BYTES = [bytes([number]) for number in range(128)]


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


def signed(number: int) -> bytes:
    """The varint of a number of either sign (zigzag): small ones are short."""
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def _parsed(text: str, numbers: dict[Template, int]) -> Parsed:
    parts = _ARGUMENT.split(text)
    found = parts[1::2]
    slots = tuple(map(_slot, found))
    pairs = zip(found, slots, strict=True)
    values = tuple(word if slot is None else int(word.replace(".", "")) for word, slot in pairs)
    return numbers.setdefault((tuple(parts[::2]), slots), len(numbers)), values


def _slot(word: str) -> Slot:
    whole, point, decimals = word.partition(".")
    if word.startswith("0x") or len(whole) + len(decimals) > MAX_DIGITS:
        return None
    return len(whole), len(decimals) if point else -1


def _bare(values: Values, slots: Sequence[Slot], counting: Container[int]) -> tuple[str, str]:
    """Return the parts of a text that do not depend on the one before it: digits, and words with their line ends."""
    rest = [
        (value, slot) for place, (value, slot) in enumerate(zip(values, slots, strict=True)) if place not in counting
    ]
    digits = "".join(f"{value:0{slot[0] + max(slot[1], 0)}d}" for value, slot in rest if slot is not None)
    return digits, "".join(f"{value}\n" for value, slot in rest if slot is None)


def _befores(rows: Sequence[Parsed], lanes: Sequence[int]) -> list[Values]:
    """Return for each text the values of the one before it in its lane with the same template; zeros for the first."""
    out, at = [], 0
    for count in lanes:
        last: dict[int, Values] = {}
        for which, values in rows[at : at + count]:
            out.append(last.get(which) or (0,) * len(values))
            last[which] = values
        at += count
    return out


def _counting(rows: Sequence[Parsed], befores: Sequence[Values], templates: Sequence[Template]) -> list[list[int]]:
    """Return for each template the slots whose values are mostly near the one before."""
    pairs: list[list[tuple[Values, Values]]] = [[] for _ in templates]
    for (which, values), before in zip(rows, befores, strict=True):
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
