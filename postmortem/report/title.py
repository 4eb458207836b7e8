"""A headline -> its title, and what follows below it.

Rank 1 was in a different collective than the others at 13:19:05 UTC on 2026-11-21.
Ranks 0, 2 and 3 waited in all_reduce (train.py:19); rank 1 waited in broadcast (train.py:16).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST = 140  # characters of a title; what is longer follows below it

# `…; 2 other ranks lost the connection and rank 1 was stopped by the launcher.`
_EFFECTS = re.compile(
    r"(?P<failure>.+); (?P<effects>(?:rank \d+|[\d,]+ other ranks) (?:timed|lost|was|were)\b[^;`]*)", re.DOTALL
)
# The parts of a long failure that follow below its title: what each rank did, and the words of a line.
_DETAILS = (
    re.compile(
        r"(?<=[\w)])[:;] (?P<detail>(?:ranks? \d|the (?:others|dumps) |(?:no|only) rank |it waited ).+)(?=\.$)", re.S
    ),
    re.compile(
        r" \((?P<detail>(?!± ).{12,}?)\)(?= at (?:about )?\d\d:\d\d| in \S+:\d+ at |, and the cause |\.$)", re.S
    ),
    re.compile(r" raised [\w.]+: (?P<detail>.+)(?= in \S+:\d+ at )", re.S),
)
_TIME = re.compile(r" at (?:about )?(?P<minute>\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?=[ ,.;:]|$)(?! UTC)")


def split(headline: str, days: Mapping[str, str]) -> tuple[str, str]:
    """Return the failure, and below it the rest of a long one and the effect on the other ranks, which may be empty.
    `days` has the date of each minute (`13:18`) that a cited line has."""
    found = _EFFECTS.fullmatch(headline)
    first, effects = (found["failure"] + ".", found["effects"]) if found else (headline, "")
    times = [m for m in _TIME.finditer(first) if days.get(m["minute"])]  # a quoted line may have a time of its own
    if times:
        end = times[-1].end()
        first = f"{first[:end]} UTC on {days[times[-1]['minute']]}{first[end:]}"
    below = [_capital(effects)]
    for detail in _DETAILS:
        if len(first) > MOST and (m := detail.search(first)):
            first = first[: m.start("detail") - 2] + first[m.end() :]
            below.insert(0, _capital(m["detail"]) if detail is _DETAILS[0] else m["detail"])
    return first, " ".join(words if words.endswith((".", "…")) else f"{words}." for words in below if words)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
