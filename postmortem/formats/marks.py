r"""What a record says beside its text, put in front of each of its lines, where the scan does not see it
and the parsers do.

    {"rank": 2, "exc_info": "Traceback ...\n  File ..."}   on line 7
        ->  ESC ]9;KEY;7;[2,...] BEL  Traceback ...
            ESC ]9;KEY;7;[2,...] BEL    File ...

The scan takes escape sequences out of what its regexes see, so `^` of a pattern is the start of the
record's own line. KEY is of this process and of no log: nothing in a file can be read as a mark. A source
is unwrapped and parsed by one process.
"""

from __future__ import annotations

import json
import secrets
from functools import lru_cache
from typing import NamedTuple

from postmortem.model import Stamp
from postmortem.model.digits import whole

KEY = secrets.token_hex(6)
MARK = f"\x1b]9;{KEY};"
END = "\x07"
SEAM = f"\x1b]9;{KEY}{END}"  # between what was told beside the text (its level, its step), and the text


class Facts(NamedTuple):
    """What a record's fields say of each line in it. None is unknown."""

    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    host: str | None = None
    pid: int | None = None
    writer: str = ""  # tells those apart who write into one export: a pod, a stream, a process
    stamp: Stamp | None = None
    program: str = ""  # who wrote it, says the journal; `kernel` for the kernel


NOTHING = Facts()


def head(facts: Facts) -> str:
    """The part of a mark that all lines of a record share."""
    if facts == NOTHING:
        return ""
    return json.dumps(facts, separators=(",", ":"))


def marked(number: int, shared: str, text: str, lead: str = "") -> str:
    """A line with its mark. `number` is that of the file's line that holds it; `lead` is read with it,
    and not shown."""
    return f"{MARK}{number};{shared}{END}{lead}{SEAM}{text}" if lead else f"{MARK}{number};{shared}{END}{text}"


def read(text: str) -> tuple[int | None, Facts, str]:
    """A line's number in its file, what its record says, and the line; (None, NOTHING, text) where it
    has no mark."""
    if not text.startswith(MARK):
        return None, NOTHING, text
    mark, _, line = text.partition(END)
    number, _, shared = mark[len(MARK) :].partition(";")
    return whole(number), _facts(shared), line.replace(SEAM, "", 1)


@lru_cache(maxsize=256)
def _facts(shared: str) -> Facts:
    if not shared:
        return NOTHING
    said = Facts(*json.loads(shared))
    return said._replace(stamp=Stamp(*said.stamp) if said.stamp else None)


def bare(text: str) -> str:
    """A line without its mark, as it stands in the record."""
    return mark_of(text)[1] if text.startswith(MARK) else text


def mark_of(text: str) -> tuple[str, str]:
    """All that was put in front of a line, and the line."""
    if not text.startswith(MARK):
        return "", text
    end = text.find(SEAM)
    cut = end + len(SEAM) if end >= 0 else text.find(END) + 1
    return text[:cut], text[cut:]


__all__ = ["END", "MARK", "NOTHING", "Facts", "bare", "head", "mark_of", "marked", "read"]
