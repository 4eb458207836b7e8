"""Lines in which a rank introduces itself, or that name a rank together with its process.

rank 1 on tcp://192.0.2.7:44285 pid 17797
vqa[15832] rank 0 up
(ip=192.0.2.2, pid=23762) world_rank=1, local_rank=1       the map of Ray Train
"""

from __future__ import annotations

from typing import NamedTuple

from postmortem.formats import forms
from postmortem.formats.envelope import Envelope
from postmortem.model.digits import whole

_REGEXES = forms.regexes("blocks/identities")
_WORDS = ("rank ", "RANK", "Rank ", "rank=", "world", "pid", "torch", "NCCL version", " of ")


class Named(NamedTuple):
    """A rank and its process."""

    rank: int
    pid: int
    host: str | None = None
    local_rank: int | None = None
    world: int | None = None


class Member(NamedTuple):
    """One of several numbered processes, and their number."""

    number: int
    pid: int
    world: int


def learn(facts: dict[str, object], body: str) -> None:
    """Add the facts of a line about its writer: rank, size of the job, pid, bus and versions. The first counts;
    two different ranks make the rank unknown."""
    if not any(word in body for word in _WORDS):
        return
    if m := _REGEXES["of"].search(body):
        if facts.setdefault("said_rank", whole(m["rank"])) != whole(m["rank"]):
            facts["said_rank"] = None
        facts.setdefault("world", whole(m["world"]))
        if p := _REGEXES["pid"].search(body):
            facts.setdefault("pid", whole(p["pid"]))
    elif m := _REGEXES["worker"].search(body):
        if facts.setdefault("said_worker", whole(m["n"])) != whole(m["n"]):
            facts["said_worker"] = None
    elif m := _REGEXES["world"].search(body):
        facts.setdefault("world", whole(m["world"]))
    for name in ("bus", "version"):
        if m := _REGEXES[name].search(body):
            for key, value in m.groupdict().items():
                if value:
                    facts.setdefault(key, value)


def named(text: str, env: Envelope) -> Named | None:
    """The rank and the process that a line names together."""
    if "world_rank=" in text and (m := _REGEXES["map"].search(text)):
        return Named(whole(m["rank"]), whole(m["pid"]), m["ip"], whole(m["local"]))
    if env.rank is None and (m := _REGEXES["tagged"].match(env.body)):
        return Named(whole(m["rank"]), whole(m["pid"]))
    if "pid" not in text.lower():
        return None
    own, others = _REGEXES["own"], _REGEXES["others"]
    labeled = text.find("rank") if "rank" in env.writer else -1  # all of `ct rank 1 pid 8946` is a label
    m = own.match(env.body) or (own.match(text, labeled) if labeled >= 0 else None)
    if m is None:
        m = _REGEXES["pid-first"].search(env.body)
        is_own = m is not None and env.rank in (None, whole(m["rank"])) and not others.search(env.body[: m.start()])
        return Named(whole(m["rank"]), whole(m["pid"])) if m is not None and is_own else None
    rank = whole(m["rank"])
    if env.rank not in (None, rank) or others.search(m["between"]):
        return None
    of = _REGEXES["between"].match(m["between"])
    return Named(rank, whole(m["pid"]), world=whole(of["world"]) if of else None)


def member(env: Envelope) -> Member | None:
    """The number and pid that a process names, where its number need not be a rank."""
    if env.rank is not None or "pid" not in env.body or not (m := _REGEXES["member"].search(env.body)):
        return None
    pid, world = (m["pid"], m["world"]) if m["pid"] else (m["its"], m["whole"])
    return Member(whole(m["n"]), whole(pid), whole(world))
