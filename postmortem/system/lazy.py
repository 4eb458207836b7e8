"""A regex that is compiled at its first use, and by the next start not at all.

`re` compiles in Python, 0.2 ms each. A job's logs need half of the hundreds of regexes here: compiling all of
them took a fifth of a small incident's time, and half of them a twentieth. What `re` compiles is a list of numbers,
which its C half checks when it makes a pattern of them; the cache keeps those lists by the version of Python.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import atexit
import hashlib
import re
import sys
from array import array
from functools import cache as once
from typing import Any, AnyStr, cast

from postmortem.system import cache

MOST = 4000  # regexes in the cache
_METHODS = frozenset(name for name in dir(re.Pattern) if not name.startswith("_")) - {"pattern"}


class _Lazy:
    def __init__(self, pattern: object, flags: int) -> None:
        self.pattern, self._source = pattern, (pattern, flags)

    def __getattr__(self, name: str) -> object:  # of a method that the instance does not have yet
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = _compiled(*self._source)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return self.__dict__[name]


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the same as `re.compile`, which is called, and may raise, at the first use."""
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))


def _compiled(pattern: Any, flags: int) -> re.Pattern[Any]:
    flags = int(flags)
    known, new = _kept()
    try:
        _, total, code, groups, names, order = known[f"{flags} {pattern!r}"]
        made: re.Pattern[Any] = _sre.compile(
            pattern, total, list(array("I", bytes.fromhex(code))), groups, names, tuple(order)
        )
        return made
    except (LookupError, TypeError, ValueError, RuntimeError, OverflowError):  # not there, or in another form
        compiled = re.compile(pattern, flags)
        new.append((pattern, flags))
        return compiled


@once
def _kept() -> tuple[dict[str, list[Any]], list[tuple[Any, int]]]:
    """Return the rows of the cache by their regex, and room for the regexes that it lacks."""
    path = cache.named("regexes", hashlib.sha256(f"{sys.version} {_sre.MAGIC} {_sre.CODESIZE}".encode()))
    known = {row[0]: row for row in cache.fetch_rows(path) or ()}
    new: list[tuple[Any, int]] = []

    def keep() -> None:
        rows = [_row(*source) for source in dict.fromkeys(new)]
        if rows and len(known) < MOST:
            cache.store_rows(path, [*known.values(), *rows])

    atexit.register(keep)
    return known, new


def _row(pattern: Any, flags: int) -> list[Any]:
    """Return the arguments with which `re.compile` calls its C half."""
    from re import _compiler, _parser  # type: ignore[attr-defined]

    parsed = _parser.parse(pattern, flags)
    state, code = parsed.state, array("I", _compiler._code(parsed, flags))
    order = {number: name for name, number in state.groupdict.items()}
    names = [order.get(number) for number in range(state.groups)]
    return [
        f"{flags} {pattern!r}",
        int(flags | state.flags),
        code.tobytes().hex(),
        state.groups - 1,
        state.groupdict,
        names,
    ]
