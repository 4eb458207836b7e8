"""Secrets that were found where something told what they are, to be found again where they stand bare.

A hostile log can teach any number of secrets, so what is looked for in each text does not grow with them:
beyond a few, a text is gone through once, by the first characters of the secrets.
"""

from __future__ import annotations

import re

# A secret learnt where its name stood is looked for elsewhere, if it is too odd to be a word of the log.
LEARNABLE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{16,}")
FEW = 64
HEAD = 8


class Learnt:
    """Secrets and their marks. `count` grows with each that was new."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._heads: dict[str, list[str]] = {}

    @property
    def count(self) -> int:
        return len(self.marks)

    def __contains__(self, secret: str) -> bool:
        return secret in self.marks

    def add(self, secret: str, mark: str) -> None:
        self.marks[secret] = mark
        self._heads.setdefault(secret[:HEAD], []).append(secret)

    def replaced(self, text: str) -> str:
        if not self.marks:
            return text
        if len(self.marks) > FEW:
            return self._by_heads(text)
        for secret, mark in self.marks.items():
            if secret in text:
                text = text.replace(secret, mark)
        return text

    def _by_heads(self, text: str) -> str:
        heads = self._heads
        out: list[str] = []
        done = at = 0
        while at <= len(text) - HEAD:
            found = heads.get(text[at : at + HEAD])
            secret = next((s for s in found if text.startswith(s, at)), None) if found else None
            if secret is None:
                at += 1
                continue
            out += [text[done:at], self.marks[secret]]
            done = at = at + len(secret)
        return "".join([*out, text[done:]]) if out else text
