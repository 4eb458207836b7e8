r"""Regexes that are searched only where a cheap automaton finds that they may match.

    SIEVE = Sieve({"step": r"(?i)\bstep (?P<n>\d+)"})
    SIEVE["step"].search("loss 0.5")   ->   None, without a search

A line of a training log is searched for two dozen things, and has two of them. Python's `re` needs 20 µs for all
of them, RE2 finds their gates in 2 µs. A gate matches all that its regex does on lines of printable ASCII, whatever
their digits: one line is searched for all that differ in digits. Other lines are searched for each form, and each line
for an empty pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import regex

from postmortem import scan
from postmortem.library import Signature
from postmortem.model.digits import uniform
from postmortem.scan import NUMBER

_EVERY = -1  # all bits
_PIECE = r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"  # an escape or a set
_LOOKS = regex.compile(rf"{_PIECE}|(?P<look>\(\?<?[=!](?P<inside>(?:{_PIECE}|[^()\\\[]|\((?&inside)\))*)\))", regex.S)
_DIGITS = re.compile(
    r"\{[0-9,]+\}|\(\?P<\w+>|\\x[0-9a-f]{2}|\\.|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<digit>[0-9])", re.S | re.I
)
_REFERENCE = re.compile(r"\(\?P=\w+\)")
_BEYOND = re.compile(r"\\u[0-9a-f]{4}|[^\x00-\x7f]", re.I)


class Form:
    """A regex of a sieve, compiled at first use, with the methods of `re.Pattern`."""

    def __init__(self, sieve: Sieve, bit: int, pattern: str) -> None:
        self.pattern = pattern
        self._sieve, self.bit = sieve, bit

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def search(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text) if self._sieve.may(text) & self.bit else None

    def match(self, text: str) -> re.Match[str] | None:
        return self.compiled.match(text) if self._sieve.may(text) & self.bit else None


class Sieve:
    """Forms that are searched in the same lines."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.forms = {name: Form(self, 1 << n, pattern) for n, (name, pattern) in enumerate(patterns.items())}
        self.may = uniform(self._may)

    def __getitem__(self, name: str) -> Form:
        return self.forms[name]

    def bits(self, *names: str) -> int:
        """The bits of some forms in `may`."""
        return sum(self.forms[name].bit for name in names)

    def _may(self, text: str) -> int:
        """The bits of the forms that may match."""
        if not (text.isascii() and text.isprintable()):
            return _EVERY
        gates, found = self._gates
        engine = scan.own_engine(self, lambda: [Signature(gate[:80], gate) for _, gate in gates], prefer="re2")
        for hit in engine.find(text.encode("ascii")):
            found |= gates[hit & NUMBER][0]
        return found

    @cached_property
    def _gates(self) -> tuple[list[tuple[int, str]], int]:
        """The gates with their bits, and the bits of empty patterns."""
        gates = [(1 << n, gate_of(form.pattern)) for n, form in enumerate(self.forms.values())]
        return [(bit, gate) for bit, gate in gates if gate], sum(bit for bit, gate in gates if not gate)


def gate_of(pattern: str) -> str:
    """A regex without lookaround, certain digits and references that matches all that this one does in ASCII."""
    ascii_only = _BEYOND.sub(r"\\x00", without_looks(pattern))  # no letter of these lines
    return _DIGITS.sub(_any_digit, _REFERENCE.sub(".*", ascii_only))


def _any_digit(m: re.Match[str]) -> str:
    """A digit of a regex, or a set with some digits, as a set with all."""
    found = m["set"] or ""
    if m["digit"]:
        return "[0-9]"
    if "0-9" in found or not re.search("[0-9]", found):
        return m[0]
    return "." if found.startswith(("[^", "[]")) else f"[0-9{found[1:]}"


def without_looks(pattern: str) -> str:
    """The regex without lookahead and lookbehind: it matches all that it did, and more."""
    return _LOOKS.sub(lambda m: "" if m["look"] else m[0], pattern)
