r"""The fields of a record, written in front of each of its lines. The parsers read them, the scan does not.

    {"rank": 2, "exc_info": "Traceback ...\n  File ..."}   on line 7
        ->  ESC ]9;KEY;7;[2,...] BEL  Traceback ...
            ESC ]9;KEY;7;[2,...] BEL    File ...

The scan removes escape sequences, so `^` of a pattern is the start of the record's own line. KEY is random for
each process: a log cannot contain a mark.
"""

from __future__ import annotations

import json
import secrets
from functools import lru_cache
from typing import NamedTuple

from postmortem.model import Stamp
from postmortem.model.digits import whole

MARK = f"\x1b]9;{secrets.token_hex(6)};"
END = "\x07"
SEAM = f"{MARK[:-1]}{END}"  # between fields that are read with the text (level, step), and the text


class Facts(NamedTuple):
    """The fields of a record that all of its lines share. None is unknown."""

    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    host: str | None = None
    pid: int | None = None
    writer: str = ""  # a pod, stream or process, to distinguish the writers of one export
    stamp: Stamp | None = None
    program: str = ""  # of a journal; `kernel` for the kernel


NOTHING = Facts()


def head(facts: Facts) -> str:
    """The part of a mark that all lines of a record share."""
    return "" if facts == NOTHING else json.dumps(facts, separators=(",", ":"))


def marked(number: int, shared: str, text: str, prefix: str = "") -> str:
    """A line with its mark. `number` is that of the file's line; `prefix` is read with the line and not shown."""
    return f"{MARK}{number};{shared}{END}{prefix}{SEAM if prefix else ''}{text}"


def read(text: str) -> tuple[int | None, Facts, str]:
    """The line's number in its file, its facts, and the line; (None, NOTHING, text) without a mark."""
    if not text.startswith(MARK):
        return None, NOTHING, text
    mark, _, line = text.partition(END)
    number, _, shared = mark[len(MARK) :].partition(";")
    return whole(number), _facts(shared), line.replace(SEAM, "", 1)


@lru_cache(maxsize=256)
def _facts(shared: str) -> Facts:
    facts = Facts(*json.loads(shared or "[]"))
    return facts._replace(stamp=Stamp(*facts.stamp) if facts.stamp else None)


def bare(text: str) -> str:
    """A line without its mark."""
    return mark_of(text)[1] if text.startswith(MARK) else text


def mark_of(text: str) -> tuple[str, str]:
    """The mark and the fields that are read with the line, and the line."""
    if not text.startswith(MARK):
        return "", text
    end = text.find(SEAM)
    cut = end + len(SEAM) if end >= 0 else text.find(END) + 1
    return text[:cut], text[cut:]
