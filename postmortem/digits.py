"""Digits -> numbers, in one place and bounded: logs are hostile, and int() of 5,000 digits raises."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?[0-9]{1,18}")


def number(value: object) -> int | None:
    """The whole number that a captured text is, of at most 18 digits; None for everything else."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None
