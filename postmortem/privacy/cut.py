"""Texts are cut to a length in many places, and a secret that is cut in two is no longer recognized.

    cut("postgresql://train:hunter2@db.example/runs", 24)  ->  "postgresql://train:"

So the secrets are marked in the whole line. A cut within one, or between one and its context that shows it to be one
(the `@` behind a URL's password), moves in front of it.
"""

from __future__ import annotations

from functools import lru_cache

from postmortem.privacy.redact import Redactor
from postmortem.privacy.rules import cached_needed, shape

REACH = 4400  # characters around a cut in which a secret and its context may be
FILLER = "\ue000"  # a character of private use, which no rule contains
ROUNDS = 8


class _Masker(Redactor):
    """Replaces secrets by fillers, so that every other character stays where it is."""

    def _mark(self, kind: str, secret: str) -> str:
        return "".join("\n" if c == "\n" else FILLER for c in secret)

    def _shown(self, mark: str, part: str) -> str:
        return FILLER * len(part)


def may_hold(text: str) -> bool:
    """Whether a text needs a search for secrets: most lines have nothing that a rule looks for."""
    return cached_needed(shape(text)) is not None


def cut(text: str, length: int) -> str:
    """Return the first characters of a text, at most `length` of them, and no part of a secret."""
    if len(text) <= length:
        return text
    near = text[: length + REACH]
    # a cut through a run of letters without a gap: perhaps a line of a private key
    dense = " " not in near[max(0, length - 80) : length + 80]
    return _cut(near, length) if dense or may_hold(near) else text[:length]


def window(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a range of a text, made smaller where its ends would cut a secret."""
    low = max(0, start - REACH)
    near = text[low : start + REACH]
    if start > 0 and may_hold(near):
        start = min(end, low + _begin(near, start - low))
    low = max(start, end - REACH)
    return start, max(start, low + len(cut(text[low : end + REACH], end - low)))


@lru_cache(maxsize=4096)
def _cut(near: str, length: int) -> str:
    whole = _masked(near)
    at = length
    for _ in range(ROUNDS):
        moved = min(_run_start(whole, at), _first_exposed(whole, near, at))
        if moved == at:
            return near[:at]
        at = moved
    return near[: whole.find(FILLER)]


def _begin(near: str, start: int) -> int:
    whole = _masked(near)
    for _ in range(ROUNDS):
        moved = _run_end(whole, start)
        part = _masked(near[moved:])
        bare = next((i for i, c in enumerate(part) if c != FILLER and whole[moved + i] == FILLER), None)
        if bare is not None:
            moved = _run_end(whole, moved + bare + 1)
        if moved == start:
            return start
        start = moved
    return len(near)


def _masked(text: str) -> str:
    masked = _Masker().text(text)
    return masked if len(masked) == len(text) else FILLER * len(text)


def _run_start(whole: str, at: int) -> int:
    """Return the beginning of the secret on both sides of `at`, or `at`."""
    if whole[at - 1 : at + 1] != FILLER * 2:
        return at
    return len(whole[:at].rstrip(FILLER))


def _run_end(whole: str, at: int) -> int:
    if at == 0 or whole[at - 1 : at + 1] != FILLER * 2:
        return at
    return len(whole) - len(whole[at:].lstrip(FILLER))


def _first_exposed(whole: str, near: str, at: int) -> int:
    """Return the beginning of the first secret that is not recognized once the text ends at `at`; else `at`."""
    part = _masked(near[:at])
    for i, c in enumerate(part):
        if c != FILLER and whole[i] == FILLER:
            return len(whole[: i + 1].rstrip(FILLER))
    return at
