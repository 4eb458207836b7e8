"""The form of a log line: without prefix, hosts, folders, ids and numbers.

    INFO:train:rank 3 saved /data/run-7/ckpt_120.pt on gpu-017   ->   INFO:train:rank N saved /ckpt_N.pt on H

Lines of several ranks or runs are compared by their form.
"""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache

from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("formats/lineforms")
SHOWN = 80  # characters of a message in a sentence


def message(text: str, most: int = SHOWN) -> str:
    """The message of a line, without the fields of its logger, as much of it as fits into a sentence."""
    m = _REGEXES["field"].search(text) or _REGEXES["level"].search(text)
    found = m["text"] if m else _REGEXES["stamp"].sub("", gist(text), count=1)
    return found if len(found) <= most else found[:most].rsplit(" ", 1)[0] + "…"


@lru_cache(maxsize=1 << 17)
def gist(text: str) -> str:
    """A line without prefixes and blanks, equal for all copies of one event."""
    prefix = _REGEXES["prefix"].match(text)
    return cut(" ".join((text[prefix.end() :] if prefix else text).split()), 300)


def shape(text: str) -> str:
    """A line without its numbers: the same failure on another rank or sample."""
    return _REGEXES["number"].sub("N", gist(text))


def alike(text: str, names: Set[str] = frozenset()) -> str:
    """The form of a line: without prefix, hosts (`names`), folders, ids and numbers."""
    form = gist(text)
    if names:
        form = _named(frozenset(names)).sub("H", form)
    for name, mark in (("folder", "/"), ("drawn", "#"), ("id", "0"), ("value", "0")):
        form = _REGEXES[name].sub(mark, form)
    return shape(form)


@lru_cache(maxsize=8)
def _named(names: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(filter(None, names), key=lambda name: (-len(name), name))
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?:\.[\w.-]+)?(?![\w-])")
