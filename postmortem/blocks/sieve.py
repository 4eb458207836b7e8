r"""Regexes that are searched only where a cheap automaton finds that they may match.

    SIEVE = Sieve({"step": r"(?i)\bstep (?P<n>\d+)"})
    SIEVE["step"].search("loss 0.5")   ->   None, without a search

A line of a training log is searched for two dozen things, and has two of them. Python's `re` needs 20 µs for all
of them, RE2 finds their gates in 2 µs. A gate matches all that its regex does on lines of printable ASCII. Other
lines are searched for each form, and each line for the forms without a gate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache

from postmortem import scan
from postmortem.library import Signature
from postmortem.scan import NUMBER

_EVERY = -1  # all bits
_LOOKS = re.compile(r"\(\?<?[=!]")
_PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)


class Form:
    """A regex of a sieve, compiled at first use, with the methods of `re.Pattern`."""

    def __init__(self, sieve: Sieve, bit: int, pattern: str) -> None:
        self.pattern = pattern
        self._sieve, self._bit = sieve, bit

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def search(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text) if self._sieve.may(text) & self._bit else None

    def match(self, text: str) -> re.Match[str] | None:
        return self.compiled.match(text) if self._sieve.may(text) & self._bit else None


class Sieve:
    """Forms that are searched in the same lines."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.forms = {name: Form(self, 1 << n, pattern) for n, (name, pattern) in enumerate(patterns.items())}
        self.may = lru_cache(maxsize=1024)(self._may)  # a line is searched for many forms, one after the other

    def __getitem__(self, name: str) -> Form:
        return self.forms[name]

    def _may(self, text: str) -> int:
        """The bits of the forms that may match."""
        if not (text.isascii() and text.isprintable()):
            return _EVERY
        gates, bits, found = self._gates
        engine = scan.own_engine(self, lambda: gates, prefer="re2")
        for hit in engine.find(text.encode("ascii")):
            found |= bits[hit & NUMBER]
        return found

    @cached_property
    def _gates(self) -> tuple[list[Signature], list[int], int]:
        """The gates, the bit of each, and the bits of the forms without a gate."""
        gates = [gate_of(form.pattern) for form in self.forms.values()]
        bits = [1 << n for n, gate in enumerate(gates) if gate]
        return [Signature(gate[:80], gate, gate) for gate in gates if gate], bits, (1 << len(gates)) - 1 - sum(bits)


def gate_of(pattern: str) -> str | None:
    """A regex without lookaround that matches all that this one does. None if there is none on bytes: it has
    back references, or letters beyond ASCII."""
    if "(?P=" in pattern or "\\u" in pattern or not pattern.isascii():
        return None
    return without_looks(pattern)


def without_looks(pattern: str) -> str:
    """The regex without lookahead and lookbehind: it matches all that it did, and more."""
    out, at = [], 0
    while look := _LOOKS.search(pattern, at):
        start = look.start()
        if any(m.start() < start < m.end() for m in _PIECES.finditer(pattern)):  # in a set, or escaped
            out.append(pattern[at : look.end()])
            at = look.end()
            continue
        depth, end = 0, len(pattern)
        for piece in _PIECES.finditer(pattern, start):
            depth += (piece[0] == "(") - (piece[0] == ")")
            if not depth:
                end = piece.end()
                break
        out.append(pattern[at:start])
        at = end
    return "".join(out) + pattern[at:]
