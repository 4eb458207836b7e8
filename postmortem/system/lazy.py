"""A regex that is compiled when it is first asked.

    STEP = late.regex(r"step (?P<n>\\d+)")      # nothing is compiled yet
    STEP.search("step 7")                      # compiled, and from here on `re.Pattern`'s own methods

`re` compiles in Python, 0.2 ms each. Some four hundred are known here, of which a job's logs need half: all
of them took a fifth of a small incident's time.
"""

from __future__ import annotations

import re
from typing import AnyStr, cast

_ASKED = frozenset(name for name in dir(re.Pattern) if not name.startswith("_")) - {"pattern"}


class _Late:
    def __init__(self, pattern: object, flags: int) -> None:
        self.pattern, self._source = pattern, (pattern, flags)

    def __getattr__(self, name: str) -> object:  # asked for what the instance does not have yet
        if name not in _ASKED:
            raise AttributeError(name)
        compiled = re.compile(*self._source)  # type: ignore[call-overload]
        self.__dict__.update({asked: getattr(compiled, asked) for asked in _ASKED})
        return self.__dict__[name]


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The same as `re.compile`, later: an error in the pattern is raised when it is first asked."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))
