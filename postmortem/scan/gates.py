r"""Signature -> gate: the cheap superset of its regex that the automaton looks for.

    Killed process (?P<pid>\d+) \((?P<comm>[^)]*)\)(?P<rest>.*)   ->   Killed process \d+ \([^\n)]*\)

Rewritten are:

* Named groups become plain ones: Hyperscan knows no names.
* Greedy ends go (`X+` -> `X`, `X*` -> nothing): Hyperscan reports every end position, 400 of them for one
  line of 400 letters, and a search finds the same lines without them.
* `^` and `$` also hold at a `\r`: a traceback often follows a progress bar directly.
* Negated classes, `\D`, `\W` and `\S` never match a line end, and `\s` is written out: otherwise a gate could
  match across two lines, and RE2 and Hyperscan disagree on whether VT is white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from postmortem.errors import PatternError
from postmortem.library import Signature
from postmortem.system import forms

SHOWN = 200  # characters of a gate in an error
HINT = "give the pattern a simpler `regex`, or an explicit `gate` beside it (see patterns/README.md)"

_ROWS, _REGEXES = forms.rows("scan/gates"), forms.regexes("scan/gates")
_OUTSIDE, _INSIDE, _ANCHORS = _ROWS["outside"], _ROWS["inside"], _ROWS["anchors"]
_META = ".^$*+?()[]{}|\\-&~#"


@dataclass(slots=True)
class _Item:
    """An atom or a group with its repetition. `branches` is None for atoms."""

    text: str
    branches: list[list[_Item]] | None = None
    times: str = ""

    @property
    def least(self) -> int:
        if not self.times:
            return 1
        if self.times[0] in "*?":
            return 0
        brace = _REGEXES["times"].match(self.times)
        return int(brace[1]) if brace else 1

    def __str__(self) -> str:
        body = self.text if self.branches is None else f"{self.text}{_join(self.branches)})"
        return body + self.times


def gate_of(signature: Signature) -> bytes:
    """Return the gate as both engines take it. Raise PatternError with the id where there can be none."""
    derived = signature.regex is None or signature.gate == signature.regex
    branches, flags = _Reader(signature).read()
    for branch in branches:
        _strip_tail(branch, ends=derived and signature.regex is not None)
        _strip_head(branch)
    gate = flags + _join(branches)
    if not gate.isascii() and "(?i" in gate:
        raise _fail(signature, "ignores the case of letters beyond ASCII, which means nothing on bytes")
    if not _width(branches):
        raise _fail(signature, "matches the empty text, so it would match everywhere")
    return gate.encode()


def is_exact(signature: Signature) -> bool:
    """Return whether the regex matches each line without `\\r` that passes the gate."""
    return signature.regex in (None, signature.gate) and not _REGEXES["loose"].search(signature.gate)


def _width(branches: list[list[_Item]]) -> int:
    """Return the number of bytes of the shortest match."""
    return min(sum(item.least * _letters(item) for item in branch) for branch in branches)


def _letters(item: _Item) -> int:
    if item.branches is not None:
        return _width(item.branches)
    return item.text not in (*_ANCHORS.values(), "\\b", "\\B")


def _fail(signature: Signature, problem: str) -> PatternError:
    return PatternError(f"{name_of(signature)}: the gate `{signature.gate[:SHOWN]}` {problem}", HINT)


def name_of(signature: Signature) -> str:
    """Return a pattern's name for an error: with its file, where that is the user's own."""
    return f"{signature.path}:1: pattern {signature.id}" if signature.path else f"pattern {signature.id}"


def _join(branches: list[list[_Item]]) -> str:
    return "|".join("".join(map(str, branch)) for branch in branches)


class _Reader:
    """One gate's text as branches of items."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.flags = ""

    def read(self) -> tuple[list[list[_Item]], str]:
        top: list[list[_Item]] = [[]]
        stack = [top]
        for token in _REGEXES["token"].finditer(self.signature.gate):
            kind, text = token.lastgroup, token[0]
            branches = stack[-1]
            if kind == "open":
                group = _Item(_opening(text), [[]])
                branches[-1].append(group)
                assert group.branches is not None
                stack.append(group.branches)
            elif kind == "close":
                stack.pop()
                if not stack:
                    raise _fail(self.signature, "closes a group that it did not open")
            elif kind == "bar":
                branches.append([])
            elif kind == "times":
                self._repeat(branches[-1], text)
            elif kind == "flags":
                self._flags(text)
            elif kind == "odd":
                raise _fail(self.signature, "uses look-around or another group that no linear scanner knows")
            else:
                branches[-1].append(self._atom(str(kind), text))
        if len(stack) != 1:
            raise _fail(self.signature, "does not close a group")
        return top, self.flags

    def _flags(self, text: str) -> None:
        if set(text) - set("(?ims)"):
            raise _fail(self.signature, f"uses the flags {text}; only (?i) is of use to a scanner of lines")
        self.flags = "(?i)" if "i" in text else self.flags

    def _repeat(self, branch: list[_Item], text: str) -> None:
        if not branch or branch[-1].times:
            raise _fail(self.signature, f"repeats nothing with `{text}`")
        if not branch[-1].text.isascii():
            raise _fail(self.signature, "repeats a letter beyond ASCII, which is several bytes; put it into (?:…)")
        if text[-1] == "+" and len(text) > 1:
            raise _fail(self.signature, "uses a possessive repeat")
        branch[-1].times = text

    def _atom(self, kind: str, text: str) -> _Item:
        if _REGEXES["line-end"].match(text):
            raise _fail(self.signature, "asks for a line end, which no line holds")
        if kind == "escape":
            return _Item(_OUTSIDE.get(text) or _escape(text))
        if kind == "cls":
            if not text.isascii():
                raise _fail(self.signature, "has a letter beyond ASCII in [...], which is several bytes; use (?:…|…)")
            inner = re.sub(r"\\.", lambda e: _INSIDE.get(e[0]) or _escape(e[0]), text[1:-1], flags=re.DOTALL)
            return _Item("[^\\n" + inner[1:] + "]" if inner.startswith("^") else f"[{inner}]")
        return _Item(_ANCHORS.get(text) or ("\\{" if text == "{" else text))


def _escape(text: str) -> str:
    """Drop a backslash without effect, which some engines refuse."""
    return text if text[1].isalnum() or text[1] in _META else text[1]


def _opening(text: str) -> str:
    """Return the start of a plain group for `(`, `(?P<x>` and `(?s:`; `(?i:` keeps its flag."""
    if text.endswith(":"):
        return "(?i:" if "i" in text.partition("-")[0] else text if "i" in text else "(?:"
    return "(?:"


def _strip_tail(branch: list[_Item], *, ends: bool) -> None:
    """Cut the end that a search does not need: `X*` there matches the empty text, `X+` is found as `X`."""
    while branch:
        last = branch[-1]
        if last.least == 0 or (ends and last.text == _ANCHORS["$"] and len(branch) > 1):
            branch.pop()
            continue
        last.times = "" if last.least == 1 else f"{{{last.least}}}"
        if last.branches is None or last.times:
            return
        for inner in last.branches:
            _strip_tail(inner, ends=ends)
        if all(last.branches):
            return
        branch.pop()  # one way through the group is empty now: the group is optional


def _strip_head(branch: list[_Item]) -> None:
    """The same from the left: `\\S+ foo` is found wherever `\\S foo` is, at a fraction of the states."""
    while branch:
        first = branch[0]
        if first.least == 0 and len(branch) > 1:
            branch.pop(0)
            continue
        if first.least >= 1:
            first.times = "" if first.least == 1 else f"{{{first.least}}}"
        return
