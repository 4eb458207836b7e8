"""A line that names a rank together with its process.

rank 1 on tcp://192.0.2.7:44285 pid 17797
vqa[15832] rank 0 up
(ip=192.0.2.2, pid=23762) world_rank=1, local_rank=1       Ray Train prints the whole map
"""

from __future__ import annotations

import re
from typing import NamedTuple

from postmortem.digits import whole
from postmortem.parsers.envelope import Envelope

_MAP = re.compile(
    r"\(ip=(?P<ip>[\w.:]+), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+)"
)
_OWN = re.compile(
    r"(?:\W{0,4}|.{0,60}[\])|:-] |.{0,60}\bINFO\b[ :|\]-]{1,4})"
    r"(?:[Hh]ello from |[Ii] am |[Tt]his is )?(?:global )?[Rr]ank[ =:#]{0,3}(?P<rank>\d{1,6})\b"
    r"(?P<between>[^\n]{0,80}?)\b(?:pid|PID|process id)[ =:#]{1,3}(?P<pid>\d{2,8})\b"
)
_TAGGED = re.compile(
    r"[\w.-]{1,40}\[(?P<pid>\d{2,8})\]:? [Rr]ank (?P<rank>\d{1,6})\b(?= (?:up|ready|of|started|joined)\b|:|$)"
)
_OTHERS = re.compile(  # words between the two that make it another process
    r"child|worker|loader|kill|peer|from|subproc|lost|dead|died|wait|stop|exit|rank|signal|spawn|thread",
    re.IGNORECASE,
)


class Named(NamedTuple):
    """A rank and its process."""

    rank: int
    pid: int
    host: str | None = None
    local_rank: int | None = None


def named(text: str, env: Envelope) -> Named | None:
    """The rank and the process that a line names together."""
    if "world_rank=" in text and (m := _MAP.search(text)):
        return Named(whole(m["rank"]), whole(m["pid"]), m["ip"], whole(m["local"]))
    if (m := _TAGGED.match(env.body)) and env.rank is None:
        return Named(whole(m["rank"]), whole(m["pid"]))
    if "pid" not in text.lower() or (m := _OWN.match(env.body)) is None:
        return None
    rank = whole(m["rank"])
    if env.rank not in (None, rank) or _OTHERS.search(m["between"]):
        return None
    return Named(rank, whole(m["pid"]))
