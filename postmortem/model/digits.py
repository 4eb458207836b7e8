"""Digits -> numbers, in one place and bounded: logs are hostile, and int() of 5,000 digits raises.

number("12")  ->  12      number("²")  ->  None      whole("9" * 5000)  ->  0
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?[0-9]{1,18}")
MOST = 19  # digits: nanoseconds since the epoch


def number(value: object) -> int | None:
    """Return the whole number in a text, of at most 18 digits; None for everything else."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def whole(digits: str) -> int:
    """Return the number in digits; 0 where there are more than any number of a log has."""
    return int(digits) if len(digits) <= MOST else 0
