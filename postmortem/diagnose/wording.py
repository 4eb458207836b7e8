"""Ranks, times and reasons in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

# How well a moment is known: seconds, one standard deviation
EXACT = 1.5  # torchrun's failure block has whole seconds, a kernel's clock is joined to a second
BROAD = 30.0  # from here on it has no place on the clock
INHERITED = 60.0  # no better than its file's last stamp
DATED = 4e8  # seconds: no log of such a job is older, so a smaller time counts from a boot
_NAME = re.compile(r"[a-z]+[A-Z.]\w")
_PATH = re.compile(r"\S*[./:_]\S")
NAMED = 6  # ranks that a sentence names one by one
RANGES = 4  # and ranges of them


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 2`, `ranks 0–522 and 524–1023`, `512 ranks`."""
    named = sorted(set(ranks))
    if len(named) == 1:
        return f"rank {named[0]}"
    parts = [str(r) for r in named] if len(named) <= NAMED else _ranges(named)
    if len(named) > NAMED and len(parts) > RANGES:
        return f"{len(named)} ranks"
    return f"ranks {listed(parts)}"


def _ranges(ranks: Sequence[int]) -> list[str]:
    """`0–522`, `524`: neighbours in a row as one."""
    spans: list[list[int]] = []
    for r in ranks:
        if spans and r == spans[-1][1] + 1:
            spans[-1][1] = r
        else:
            spans.append([r, r])
    return [str(lo) if lo == hi else f"{lo}–{hi}" for lo, hi in spans]


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def capital(text: str) -> str:
    """A sentence's first letter; a name such as vLLM or torch.compile keeps its own."""
    return text if _NAME.match(text) else text[:1].upper() + text[1:]


def clock_time(at: float | None, sigma: float) -> str:
    """` at 03:12:08`, ` at about 03:12:08 (± 4 s)`, ` at about 03:12`, as well as the moment is known; nothing
    where that is not to the minute, or not its date."""
    if at is None or sigma > INHERITED or at < DATED:
        return ""
    moment = datetime.fromtimestamp(int(at), UTC)
    if sigma <= EXACT:
        return f" at {moment:%H:%M:%S}"
    return f" at about {moment:%H:%M:%S} (± {sigma:.0f} s)" if sigma < BROAD else f" at about {moment:%H:%M}"


def iso(at: float | None) -> str | None:
    """A moment as the document has it; None where its date is not known."""
    if at is None or not DATED < at < 7e9:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def sentence(words: str) -> str:
    """A reason as a sentence of its own; a path keeps its small letter."""
    return (words if _PATH.match(words) else capital(words)) + "."
