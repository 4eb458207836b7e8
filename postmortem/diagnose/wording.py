"""Ranks, times and reasons in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from postmortem.align.place import ABOVE, BROAD, UNBOUNDED

# The uncertainty of a time: seconds, one standard deviation
EXACT = 1.5  # torchrun's failure block has whole seconds, a kernel's clock is joined to a second
INHERITED = ABOVE  # no better than the nearest stamp of its file
DATED = 4e8  # seconds: no log of such a job is older, so a smaller time counts from a boot
NAMED, RANGES = 6, 4  # ranks, and ranges of ranks, that a sentence names
_NAME = re.compile(r"[a-z]+[A-Z.]\w")
_PATH = re.compile(r"\S*[./:_]\S")


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 2`, `ranks 0–522 and 524–1023`, `512 ranks`."""
    named = sorted(set(ranks))
    if len(named) == 1:
        return f"rank {named[0]}"
    parts = [str(r) for r in named] if len(named) <= NAMED else _ranges(named)
    return f"{len(named)} ranks" if len(named) > NAMED and len(parts) > RANGES else f"ranks {listed(parts)}"


def _ranges(ranks: Sequence[int]) -> list[str]:
    """`0–522`, `524`: consecutive ranks as one."""
    spans: list[list[int]] = []
    for r in ranks:
        if spans and r == spans[-1][1] + 1:
            spans[-1][1] = r
        else:
            spans.append([r, r])
    return [str(low) if low == high else f"{low}–{high}" for low, high in spans]


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def capital(text: str) -> str:
    """The text with a capital first letter; names such as vLLM or torch.compile stay as they are."""
    return text if _NAME.match(text) else text[:1].upper() + text[1:]


def clock_time(at: float | None, sigma: float, dated: bool = False) -> str:
    """` at 03:12:08`, ` at about 03:12:08 (± 4 s)`, ` at about 03:12`, ` after 03:12` or ` by 03:12` where only the stamp
    above or below is known; empty where the minute or the date is unknown. Where it is `dated`, ` at 03:12:08 UTC on 2026-11-21`."""
    if at is None or sigma > INHERITED or at < DATED:
        return ""
    moment = datetime.fromtimestamp(int(at), UTC)
    zone = f" UTC on {moment:%Y-%m-%d}" if dated else ""
    if sigma <= EXACT:
        return f" at {moment:%H:%M:%S}{zone}"
    error = f" (± {sigma:.0f} s)" if sigma < BROAD else ""
    if sigma >= UNBOUNDED:
        return f" {'after' if sigma == UNBOUNDED else 'by'} {moment:%H:%M}{zone}"
    return f" at about {moment:%H:%M:%S}{zone}{error}" if error else f" at about {moment:%H:%M}{zone}"


def iso(at: float | None) -> str | None:
    """A time as in the document; None where its date is unknown."""
    if at is None or not DATED < at < 7e9:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def sentence(words: str) -> str:
    """A reason as a sentence of its own; a path keeps its small letter."""
    return (words if _PATH.match(words) else capital(words)) + "."
