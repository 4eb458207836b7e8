"""Lines in which a rank introduces itself, or that name a rank together with its process or its end.

rank 1 on tcp://192.0.2.7:44285 pid 17797
vqa[15832] rank 0 up
(ip=192.0.2.2, pid=23762) world_rank=1, local_rank=1       the map of Ray Train
lidar.py rank 0: exit status 139                           for r in 0 1 2; do ... & done; wait $pid; echo ...
12:04:11 system  | rank1.1 stopped (rc=-9)                 honcho
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from postmortem.formats.envelope import Envelope
from postmortem.model.details import Details, captured
from postmortem.model.digits import whole
from postmortem.system import forms

_REGEXES = forms.regexes("blocks/identities")
_NUMBERS = {s.name: s.value for s in signal.Signals}
_PARTS = ("ed", "termination", "exit", "rc", "code", "status", "->", "=>")  # each form of an end has one of these


class Named(NamedTuple):
    """A rank and its process."""

    rank: int
    pid: int
    host: str | None = None
    local_rank: int | None = None
    world: int | None = None


class Member(NamedTuple):
    """One of several numbered processes, and their count."""

    number: int
    pid: int
    world: int


class End(NamedTuple):
    """The end of a rank; `code` as of a shell or of Python's subprocess."""

    rank: int
    code: int
    pid: int | None = None


def learn(facts: Details, body: str) -> None:
    """Add the facts of a line about its writer: rank, size of the job, pid, bus and versions. The first counts;
    two different ranks make the rank unknown."""
    if _REGEXES["introduced"].search(body) is None:
        return
    if m := _REGEXES["of"].search(body):
        if facts.setdefault("stated_rank", whole(m["rank"])) != whole(m["rank"]):
            facts["stated_rank"] = None
        facts.setdefault("world", whole(m["world"]))
        if p := _REGEXES["pid"].search(body):
            facts.setdefault("pid", whole(p["pid"]))
    elif m := _REGEXES["worker"].search(body):
        if facts.setdefault("stated_worker", whole(m["n"])) != whole(m["n"]):
            facts["stated_worker"] = None
    elif m := _REGEXES["world"].search(body):
        facts.setdefault("world", whole(m["world"]))
    for name in ("bus", "version"):
        if m := _REGEXES[name].search(body):
            facts |= captured({key: value for key, value in m.groupdict().items() if value}) | facts


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
    between = m["between"] if m else ""
    if m is None and (m := _REGEXES["pid-first"].search(env.body)):
        between = env.body[: m.start()]
    if m is None or env.rank not in (None, whole(m["rank"])) or others.search(between):
        return None
    of = _REGEXES["between"].match(between)
    return Named(whole(m["rank"]), whole(m["pid"]), world=whole(of["world"]) if of else None)


def member(env: Envelope) -> Member | None:
    """The number and pid of a process in a line without a rank: the number need not be a rank."""
    if env.rank is not None or "pid" not in env.body or not (m := _REGEXES["member"].search(env.body)):
        return None
    return Member(whole(m["n"]), whole(m["pid"] or m["its"]), whole(m["world"] or m["whole"]))


def end_in(body: str, rank: int | None, writer: str = "") -> End | None:
    """The end that a line reports; `rank` is that of its prefix. A number with which a supervisor begins each
    line was read as a writer."""
    if len(body) > 200 or "NCCL WARN" in body or "NCCL INFO" in body:  # `Close from rank 1, retcode 3` (proxy.cc)
        return None
    if rank is None and writer and _REGEXES["number"].search(writer):
        body = f"{writer} {body}"
    if not may_end(body):
        return None
    for name in ("end-of-rank", "end-arrow", "killed-rank", "own-end", "own-killed"):
        own = name.startswith("own-")
        m = _REGEXES[name].match(body) if own else _REGEXES[name].search(body)
        if m and not (own and rank is None):
            return _end(rank if own else None, m.groupdict())
    return None


def may_end(body: str) -> bool:
    """Whether a line may report an end, whatever its digits are."""
    lower, last = body.lower(), body.rstrip()[-1:]
    if not any(part in lower for part in _PARTS):
        return False
    return (last.isdecimal() or last in ").!" or "SIG" in body) and bool(_REGEXES["may-end"].search(body))


def _end(rank: int | None, found: dict[str, str]) -> End | None:
    if "signal" in found:
        name = found["signal"]
        code = -_NUMBERS.get(name.upper(), whole(name) if name.isdecimal() else 0)
    else:
        digits = found["code"]
        code = -whole(digits[1:]) if digits.startswith("-") else whole(digits)
    if not -65 < code < 256 or (not code and "signal" in found):
        return None
    pid = found.get("pid")
    return End(whole(found["rank"]) if rank is None else rank, code, whole(pid) if pid else None)
