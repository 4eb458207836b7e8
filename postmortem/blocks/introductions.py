"""Lines in which a rank says who it is, or that name a rank together with its process.

rank 1 on tcp://192.0.2.7:44285 pid 17797
vqa[15832] rank 0 up
(ip=192.0.2.2, pid=23762) world_rank=1, local_rank=1       Ray Train prints the whole map
"""

from __future__ import annotations

import re
from typing import NamedTuple

from postmortem.formats.envelope import Envelope
from postmortem.model.digits import whole

_MAP = re.compile(r"\(ip=(?P<ip>[\w.:]+), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+)")
_OWN = re.compile(
    r"(?:\W{0,4}|.{0,60}[\])|:-] |.{0,60}\bINFO\b[ :|\]-]{1,4})"
    r"(?:[Hh]ello from |[Ii] am |[Tt]his is )?(?:global )?[Rr]ank[ =:#]{0,3}(?P<rank>\d{1,6})\b"
    r"(?P<between>[^\n]{0,80}?)\b(?:pid|PID|process id)[ =:#]{1,3}(?P<pid>\d{2,8})\b"
)
_TAGGED = re.compile(
    r"[\w.-]{1,40}\[(?P<pid>\d{2,8})\]:? [Rr]ank (?P<rank>\d{1,6})\b(?= (?:up|ready|of|started|joined)\b|:|$)"
)
_PID_FIRST = re.compile(
    r"\b(?:pid|PID)[ =:#]{1,3}(?P<pid>\d{2,8})[\])]?[ ,;|]{1,3}(?:global[ _])?[Rr]ank[ =:#]{1,3}(?P<rank>\d{1,6})\b"
)
_OTHERS = re.compile(  # words between the two that make it another process
    r"child|worker|loader|kill|peer|from|subproc|lost|dead|died|wait|stop|exit|rank|signal|spawn|thread",
    re.IGNORECASE,
)
_OF = re.compile(
    r"\brank['\"]?[ =:]*['\"]?(?P<rank>\d{1,6})(?: of |/|['\"]?,? ?['\"]?(?:world[_ ]size|nranks|nRanks)['\"]?[ =:]+)"
    r"['\"]?(?P<world>\d{1,6})\b",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r" of (?P<world>\d{1,6}) ")
_WORKER = re.compile(  # a word that others number by too: it needs the number in the file's name
    r"\b(?:worker|process|proc|trainer|task|replica)[ =:#]*(?P<n>\d{1,6})(?: of |/)(?P<world>\d{1,6})\b",
    re.IGNORECASE,
)
_MEMBER = re.compile(  # and which process that is: whether ranks are numbered so, all of them tell together
    r"\b(?:worker|process|proc|trainer|task|replica)[ =:#]*(?P<n>\d{1,6})"
    r"(?:,? \(?(?:with )?pid[ =:]+(?P<pid>\d{2,8})\)?,? (?:of|out of) (?P<world>\d{1,6})\b"
    r"|(?: of |/)(?P<whole>\d{1,6}),? \(?(?:with )?pid[ =:]+(?P<its>\d{2,8})\b)",
    re.IGNORECASE,
)
_WORLD = re.compile(r"\b(?:world[_ ]size|nranks|nRanks|num_processes)[\"']?[ =:]+(?P<world>\d{1,6})\b")
_PID = re.compile(r"\bpid[ =:]+(?P<pid>\d{2,8})\b")
_BUS = re.compile(r"\bbusId (?P<bus>[0-9a-f]{3,8})\b")
_VERSION = re.compile(
    r"\btorch(?:[ _]version)?[ =:]+(?P<torch>\d\.\d+\.\d+[\w.+]*)|NCCL version (?P<nccl>\d+\.\d+\.\d+)"
)
_TELLING = ("rank ", "RANK", "Rank ", "rank=", "world", "pid", "torch", "NCCL version", " of ")


class Named(NamedTuple):
    """A rank and its process."""

    rank: int
    pid: int
    host: str | None = None
    local_rank: int | None = None
    world: int | None = None


class Member(NamedTuple):
    """One of several numbered processes, and how many there are."""

    number: int
    pid: int
    world: int


def learn(facts: dict[str, object], body: str) -> None:
    """Add what a line says of its writer: rank, size of the job, pid, bus and versions. The first word counts."""
    if not any(word in body for word in _TELLING):
        return
    if m := _OF.search(body):
        if facts.setdefault("said_rank", whole(m["rank"])) != whole(m["rank"]):
            facts["said_rank"] = None  # several ranks write here and their lines do not say which
        facts.setdefault("world", whole(m["world"]))
        if p := _PID.search(body):
            facts.setdefault("pid", whole(p["pid"]))
    elif m := _WORKER.search(body):
        if facts.setdefault("said_worker", whole(m["n"])) != whole(m["n"]):
            facts["said_worker"] = None
    elif m := _WORLD.search(body):
        facts.setdefault("world", whole(m["world"]))
    if m := _BUS.search(body):
        facts.setdefault("bus", m["bus"])
    if m := _VERSION.search(body):
        for name in ("torch", "nccl"):
            if m[name]:
                facts.setdefault(name, m[name])


def named(text: str, env: Envelope) -> Named | None:
    """The rank and the process that a line names together."""
    if "world_rank=" in text and (m := _MAP.search(text)):
        return Named(whole(m["rank"]), whole(m["pid"]), m["ip"], whole(m["local"]))
    if (m := _TAGGED.match(env.body)) and env.rank is None:
        return Named(whole(m["rank"]), whole(m["pid"]))
    if "pid" not in text.lower():
        return None
    labelled = text.find("rank") if "rank" in env.writer else -1  # `ct rank 1 pid 8946` is all a label
    m = _OWN.match(env.body) or (_OWN.match(text, labelled) if labelled >= 0 else None)
    if m is None:
        m = _PID_FIRST.search(env.body)
        own = m is not None and env.rank in (None, whole(m["rank"])) and not _OTHERS.search(env.body[: m.start()])
        return Named(whole(m["rank"]), whole(m["pid"])) if m is not None and own else None
    rank = whole(m["rank"])
    if env.rank not in (None, rank) or _OTHERS.search(m["between"]):
        return None
    of = _BETWEEN.match(m["between"])
    return Named(rank, whole(m["pid"]), world=whole(of["world"]) if of else None)


def member(env: Envelope) -> Member | None:
    """The number and the pid that a process gives itself, where nothing says that its number is a rank."""
    if env.rank is not None or "pid" not in env.body or not (m := _MEMBER.search(env.body)):
        return None
    pid, world = (m["pid"], m["world"]) if m["pid"] else (m["its"], m["whole"])
    return Member(whole(m["n"]), whole(pid), whole(world))
