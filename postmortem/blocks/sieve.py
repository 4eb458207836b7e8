r"""Regexes of which one pass of an automaton says which may match a line, so that most are never asked.

    SIEVE = Sieve()
    STEP = SIEVE.form(r"\bstep (?P<n>\d+)", re.IGNORECASE)
    STEP.search("loss 0.5")   ->   None, without a search

A line of a training log is asked for two dozen things, and has two of them. Python's `re` tries a regex without
a literal head at each character, 20 µs a line; RE2 looks for the gates of all of them in 2 µs. A gate is a
superset of its regex on lines of printable ASCII; of any other line each form is asked, and of each line those
that have no gate (a back reference, letters beyond ASCII without regard to case).
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

from postmortem import scan
from postmortem.library import Signature
from postmortem.scan import NUMBER

_EVERY = -1  # all bits
_LOOKS = re.compile(r"\(\?<?[=!]")
_PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)


class Form:
    """A regex in a sieve, compiled when it is first asked. It searches and matches as `re.Pattern` does."""

    def __init__(self, sieve: Sieve, bit: int, pattern: str, flags: int) -> None:
        self.pattern, self.flags = pattern, flags
        self._sieve, self._bit = sieve, bit

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self.flags)

    def search(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text) if self._sieve.may(text) & self._bit else None

    def match(self, text: str) -> re.Match[str] | None:
        return self.compiled.match(text) if self._sieve.may(text) & self._bit else None

    @cached_property
    def gate(self) -> str | None:
        return gate_of(self.pattern, self.flags)


class Sieve:
    """The forms that are asked of the same lines."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.may = lru_cache(maxsize=1024)(self._may)  # a line is asked for many things, one after the other

    def form(self, pattern: str, flags: int = 0) -> Form:
        """Add a regex. All are added before the first line is asked."""
        self.forms.append(Form(self, 1 << len(self.forms), pattern, flags))
        return self.forms[-1]

    def _may(self, text: str) -> int:
        """The bits of the forms that may match."""
        if not (text.isascii() and text.isprintable()):
            return _EVERY
        found = self._ungated
        engine = scan.own_engine(self, self._signatures, prefer="re2")
        for hit in engine.find(text.encode("ascii")):
            found |= self._bits[hit & NUMBER]
        return found

    def _signatures(self) -> list[Signature]:
        return [Signature(gate[:80], gate, gate) for form in self.forms if (gate := form.gate)]

    @cached_property
    def _bits(self) -> list[int]:
        return [1 << n for n, form in enumerate(self.forms) if form.gate]

    @cached_property
    def _ungated(self) -> int:
        return sum(1 << n for n, form in enumerate(self.forms) if not form.gate)


def gate_of(pattern: str, flags: int = 0) -> str | None:
    """A regex that matches all that this one does, and more: it looks neither ahead nor back. None where there
    is none on bytes: it refers back, or knows letters beyond ASCII."""
    if "(?P=" in pattern or "\\u" in pattern or not pattern.isascii():
        return None
    return ("(?i)" if flags & re.IGNORECASE else "") + without_looks(pattern)


def without_looks(pattern: str) -> str:
    """The regex without what it looks ahead and back at: it matches all that it did, and more."""
    out, at = [], 0
    while look := _LOOKS.search(pattern, at):
        start = look.start()
        if _inside_a_class(pattern, start):
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


def _inside_a_class(pattern: str, at: int) -> bool:
    """Whether what stands here is a set of characters, or escaped, and no group."""
    return any(m.start() < at < m.end() for m in _PIECES.finditer(pattern))
