"""Secrets that were found where their context showed them, to be found again where they are alone.

A hostile log can contain any number of secrets, so the search of a text does not grow with them: if there are more
than a few, a text is searched once, by the first characters of the secrets.
"""

from __future__ import annotations

import re

# A secret that was found behind its name is searched for elsewhere if it cannot be a word of the log.
LEARNABLE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
MARK = re.compile(r"\[REDACTED:[a-z0-9-]+:\d+\]")
_MARKS = re.compile(f"({MARK.pattern})")
FEW = 64
HEAD = SHORTEST = 6  # characters of a secret that is searched for outside of its context


class Learned:
    """Secrets and their marks."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._heads: dict[str, list[str]] = {}

    def add(self, secret: str, mark: str) -> None:
        self.marks[secret] = mark
        self._heads.setdefault(secret[:HEAD], []).append(secret)

    def replaced(self, text: str) -> str:
        """Return the text with marks in place of the secrets. A mark may contain one: `secret` was a password."""
        if len(self.marks) <= FEW and not any(secret in text for secret in self.marks):
            return text
        parts = _MARKS.split(text)
        parts[::2] = map(self._by_heads, parts[::2])
        return "".join(parts)

    def _by_heads(self, text: str) -> str:
        heads = self._heads
        out: list[str] = []
        done = at = 0
        while at <= len(text) - HEAD:
            found = heads.get(text[at : at + HEAD])
            secret = max((s for s in found if text.startswith(s, at)), key=len, default=None) if found else None
            if secret is None:
                at += 1
                continue
            out += [text[done:at], self.marks[secret]]
            done = at = at + len(secret)
        return "".join([*out, text[done:]]) if out else text
