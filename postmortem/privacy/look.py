"""What a text is to be searched for: a cheap look before the rules.

looked(b"wandb: key: ...")  ->  Look(key=False, rules=(14,), named=True)
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from postmortem.privacy.named import NAMED, NEAR_VALUE
from postmortem.privacy.tools import PROVIDERS
from postmortem.system import lazy as late

DIGITS = b"0123456789"
NO_DIGITS = str.maketrans("", "", DIGITS.decode())
_LITERALS = tuple(
    (literal.translate(NO_DIGITS), number) for number, rule in enumerate(PROVIDERS) for literal in rule.literals
)


class Look(NamedTuple):
    """What a text is to be searched for."""

    key: bool
    rules: tuple[int, ...]
    named: bool


def _tree(words: list[str]) -> str:
    """One expression for many words that shares their beginnings: three times as fast as a look for each."""
    heads: dict[str, list[str]] = {}
    for word in words:
        heads.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(head) + ("" if "" in rests else _tree(rests)) for head, rests in sorted(heads.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_TREE = _tree(sorted({literal for literal, _ in _LITERALS}))
_ANY, _EACH = late.regex(_TREE), late.regex(f"(?=({_TREE}))")


@cache
def _by_head() -> dict[str, tuple[tuple[str, int], ...]]:
    """What the tree finds is the shortest word of a branch: those that begin with it, and their rules."""
    heads = {m[1] for literal, _ in _LITERALS if (m := _EACH.match(literal))}
    return {head: tuple(x for x in _LITERALS if x[0].startswith(head)) for head in heads}


def _rules(text: str, start: int) -> tuple[int, ...]:
    heads = {m[1] for m in _EACH.finditer(text, start)}
    found = {number for head in heads for literal, number in _by_head()[head] if literal == head or literal in text}
    return tuple(sorted(found))


def looked(shape: bytes) -> Look | None:
    """What to search a text for, by the text in lower case and without digits; None: nothing.

    What a rule looks for has letters, and lines of thousands of ranks differ in their digits only:
    they are looked at once.
    """
    text = shape.decode("utf-8", "surrogatepass")
    first = _ANY.search(text)
    rules = _rules(text, first.start()) if first else ()
    named = any(word in text for word in NAMED) and NEAR_VALUE.search(text) is not None
    look = Look("private key" in text, rules, named)
    return look if any(look) else None


looked_once = lru_cache(maxsize=8192)(looked)


def shape(text: str) -> bytes:
    return text.lower().encode("utf-8", "surrogatepass").translate(None, DIGITS)
