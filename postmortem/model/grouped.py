"""Pairs of a key and a value -> the values of each key; values -> the most frequent one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> defaultdict[K, list[V]]:
    """The values of each key; keys and values in the order of the pairs."""
    found: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def only(values: Iterable[V]) -> V | None:
    """The one value; None where there are none or several."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def usual(values: Iterable[V | None]) -> V | None:
    """The most frequent value but for empty ones; None where there is none."""
    found = Counter(value for value in values if value)
    return found.most_common(1)[0][0] if found else None
