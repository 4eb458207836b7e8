"""Digits -> numbers, in one place and bounded: logs are hostile, and int() of 5,000 digits raises.

number("12")  ->  12      number("²")  ->  None      whole("9" * 5000)  ->  0

Thousands of ranks print the same lines but for their digits. A function to which all digits are the same
(`uniform`) reads one of such lines, and its result, places in the line, is that of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")

_NUMBER = re.compile(r"-?[0-9]{1,18}")
MOST_DIGITS = 19  # digits: nanoseconds since the epoch


def number(value: object) -> int | None:
    """Return the whole number in a text, of at most 18 digits; None for everything else."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def whole(digits: str) -> int:
    """Return the number in digits; 0 where there are more than any number of a log has."""
    return int(digits) if len(digits) <= MOST_DIGITS else 0


_ZEROS = bytes.maketrans(b"123456789", b"000000000")
KEPT = 4096  # results of one function
LONG = 500  # bytes of a line whose result is not kept
_LAST = ("", b"")  # the last text and its key: one after the other, functions read a line


def key_of(text: str) -> bytes:
    """Return the bytes of a text with 0 for each digit."""
    global _LAST
    last, key = _LAST
    if last is not text:
        key = text.encode("utf-8", "surrogatepass").translate(_ZEROS)  # of bytes: quicker than that of a text
        _LAST = text, key
    return key


def zeros(text: str) -> str:
    """Return a text with 0 for each digit."""
    return text.encode("utf-8", "surrogatepass").translate(_ZEROS).decode("utf-8", "surrogatepass")


def uniform(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a function that asks `read` about the text with zeros, and once for all texts that differ in digits.
    A regex that it searches may have no digit, but as `\\d` or `0-9` (see test_forms.py)."""
    kept = lru_cache(maxsize=KEPT)(lambda key: read(key.decode("utf-8", "surrogatepass")))

    @wraps(read)
    def result(text: str) -> T:
        key = key_of(text)
        return kept(key) if len(key) < LONG else read(text)

    return result
