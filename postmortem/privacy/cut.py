"""Texts are cut to a length in many places, and a secret that is cut in two is no longer known for one.

    cut("postgresql://train:hunter2@db.example/runs", 24)  ->  "postgresql://train:"

So the secrets are marked on the whole line, and a cut that would fall into one, or part one from what shows
that it is one (the `@` behind a URL's password), is made in front of it.
"""

from __future__ import annotations

from functools import lru_cache

from postmortem.privacy.look import looked_once, shape
from postmortem.privacy.redact import Redactor

REACH = 4400  # characters around a cut in which a secret, and what shows it, may stand
FILLER = "\ue000"  # a character of private use: no rule speaks of it
ROUNDS = 8


class _Masker(Redactor):
    """Puts fillers in place of secrets, so that every other character stays where it is."""

    def _mark(self, kind: str, secret: str) -> str:
        return "".join("\n" if c == "\n" else FILLER for c in secret)

    def _shown(self, mark: str, part: str) -> str:
        return FILLER * len(part)


def may_hold(text: str) -> bool:
    """Whether a text is worth a search for secrets: most lines have nothing that a rule looks for."""
    return looked_once(shape(text)) is not None


def cut(text: str, length: int) -> str:
    """The first characters of a text, at most `length` of them, and no part of a secret."""
    if len(text) <= length:
        return text
    near = text[: length + REACH]
    return _cut(near, length) if may_hold(near) or _dense(near, length) else text[:length]


def window(text: str, start: int, end: int) -> tuple[int, int]:
    """A stretch of a text, made smaller where its ends would cut a secret."""
    low = max(0, start - REACH)
    near = text[low : start + REACH]
    if start > 0 and may_hold(near):
        start = min(end, low + _begin(near, start - low))
    low = max(start, end - REACH)
    return start, max(start, low + len(cut(text[low : end + REACH], end - low)))


def _dense(near: str, length: int) -> bool:
    """A cut through a run of letters without a gap: perhaps a line of a private key."""
    return " " not in near[max(0, length - 80) : length + 80]


@lru_cache(maxsize=4096)
def _cut(near: str, length: int) -> str:
    whole = _masked(near)
    at = length
    for _ in range(ROUNDS):
        moved = min(_run_start(whole, at), _laid_bare(whole, near, at))
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
    """Where the secret begins that stands on both sides of `at`."""
    if whole[at - 1 : at + 1] != FILLER * 2:
        return at
    return len(whole[:at].rstrip(FILLER))


def _run_end(whole: str, at: int) -> int:
    if at == 0 or whole[at - 1 : at + 1] != FILLER * 2:
        return at
    return len(whole) - len(whole[at:].lstrip(FILLER))


def _laid_bare(whole: str, near: str, at: int) -> int:
    """Where the first secret begins that is not known for one once the text ends at `at`."""
    part = _masked(near[:at])
    for i, c in enumerate(part):
        if c != FILLER and whole[i] == FILLER:
            return len(whole[: i + 1].rstrip(FILLER))
    return at
