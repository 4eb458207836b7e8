"""Claims from pattern events: the rank, host or GPU of each, and one pattern per line.

Killed process 32688 (python3)            pid -> rank, by the launcher's map or a DataLoader's complaint
NVRM: Xid (PCI:0000:48:00): 74            bus id -> GPU -> rank
keys: /default_pg/0//cpu//0/2             the rank whose address is missing
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from postmortem.diagnose import topics
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, merged
from postmortem.diagnose.same import bus_key
from postmortem.formats.lineform import gist
from postmortem.model import Event, Pattern
from postmortem.model.digits import whole
from postmortem.model.grouped import grouped
from postmortem.system import forms

LONE = 40  # lines after an exception's decisive line that may still belong to its message
STARTS = ("exception", "exit", "crash", "stack", "cut")  # events that end the message of an exception above
MOST_RANKS = 4096  # ranks that one line names
_REGEXES = forms.regexes("diagnose/lines")
_ANY_HOST = ("127.", "fe80", "::1", "0.")  # loopback and link-local addresses
Ranks = tuple[int, ...]


def observe(case: Case) -> list[Claim]:
    """A claim for every pattern event, each line under its most specific pattern."""
    seen = [(e, case.library.get(e.pattern)) for e in case.by_kind["pattern"]]
    claims = _specific(case, [_claim(case, e, _for_version(case, e, p)) for e, p in seen if p is not None])
    return list(map(topics.read, claims))


def group(claims: Sequence[Claim]) -> list[Claim]:
    """The claims, with those of one pattern on one entity in one role as one."""
    return [merged(same) for same in grouped((_entity(c), c) for c in claims).values()]


def _entity(c: Claim) -> tuple[object, ...]:
    entity = c.pattern.entity
    alone = c.event.where if not c.ranks and not c.gpus and entity in ("self", "rank", "pid") else None
    return c.pattern.id, c.role, c.ranks, c.gpus, c.hosts if entity == "host" else None, alone


def _for_version(case: Case, e: Event, pattern: Pattern) -> Pattern:
    """The pattern for the versions at hand: up to torch 2.4 a full /dev/shm kills a worker by SIGBUS; later versions
    check first, and their bus errors have another reason."""
    other = pattern.reads_as and case.library.get(pattern.reads_as.id)
    if not pattern.reads_as or not other:
        return pattern
    for product, before in pattern.reads_as.before.items():
        version = _REGEXES["version"].match(getattr(case.registry, product, None) or "")  # an unknown one may be older
        limit = _REGEXES["version"].match(before)
        if version and limit and (whole(version[1]), whole(version[2])) >= (whole(limit[1]), whole(limit[2])):
            return pattern
    case.note(f"{e.where}: {pattern.id} reads as {other.id}, since no later version is named")
    return other


# ── the entity of a line ────────────────────────────────────────────────────────────────────────────────────


def _claim(case: Case, e: Event, pattern: Pattern) -> Claim:
    pid, several = e.fields.get("pid"), numbers(str(e.fields.get("pids", "")))
    pids = several or ((pid,) if pid is not None and pid > 1 else ())
    gpus = _gpus(e) if pattern.entity == "gpu" else ()
    ranks = tuple(sorted(RANKS[pattern.entity](case, e, pids, gpus))) if pattern.entity in RANKS else ()
    e, hosts = _with_signal(case, e, ranks), _hosts(e)
    if pattern.entity == "peer" and pattern.role == "cause" and not (e.fields.get("host") or e.fields.get("node")):
        hosts = _peer(e)  # the writer complains of another host
    if not hosts and len(ranks) == 1 and ranks[0] in case.registry.host_of:
        hosts = (case.registry.host_of[ranks[0]],)
    foreign = case.not_ours(e)
    role = "context" if foreign or e.fields.get("mentioned") else pattern.role  # see rules/promote.py
    return Claim(pattern, role, (e,), ranks, hosts, gpus, pids, e.attempt, foreign, pattern.strength)


def _with_signal(case: Case, e: Event, ranks: Ranks) -> Event:
    """The event with the signal by which its rank ended: pystack calls every fault that has an address, a bus error
    too, a segmentation fault (pystack/__main__.py format_failureinfo_information)."""
    end = case.end_of(ranks[0]) if len(ranks) == 1 and e.fields.get("tool") == "pystack" else None
    return e if end is None or end.kind != "crash" else e._replace(fields={**e.fields, "signal": end.signal})


def _one(rank: int | None) -> Ranks:
    return () if rank is None else (rank,)


def _of_ranks(case: Case, e: Event, pids: Ranks, gpus: tuple[str, ...]) -> Ranks:
    """The ranks that the line names; of two that differ neither is known to be right."""
    two = [r for r in (e.fields.get("rank"), e.fields.get("peer_rank")) if r is not None]
    return numbers(e.fields.get("ranks", "")) or tuple(two) or _one(case.rank_of(e))


def _of_process(case: Case, e: Event, pids: Ranks, gpus: tuple[str, ...]) -> Ranks:
    if known := {rank for pid in pids for rank in _of_pid(case, e, pid)}:
        return tuple(known)
    if not case.outside(e):  # Slurm gives each task of a step a cgroup of its own
        named = [whole(m["task"])] if (m := _REGEXES["step-task"].search(e.text)) else []
        if tasks := [*named, *(case.task_of[pid] for pid in pids if pid in case.task_of)]:
            return (tasks[0],)
    local = e.fields.get("local_rank")
    if local is not None and (rank := case.registry.rank_with("local", local, e.host, e.run)) is not None:
        return (rank,)
    # `[1,12]<stderr>:[node-16:17086] Signal: Segmentation fault (11)`: of the rank itself, or of its child
    return _one(e.rank) if e.speaker != "kernel" and e.source_kind != "agent" else ()


def _of_pid(case: Case, e: Event, pid: int) -> Ranks:
    """The rank that this process is, or that complains of it, a DataLoader's worker."""
    rank = case.registry.rank_of_pid(pid, e.fields.get("host", "") or e.host)
    if rank is not None:
        return (rank,)
    named = ((_REGEXES["child-pid"].search(x.text), case.rank_of(x)) for x in case.telling("child"))
    return next(((parent,) for m, parent in named if m and whole(m["pid"]) == pid and parent is not None), ())


def _of_gpu(case: Case, e: Event, pids: Ranks, gpus: tuple[str, ...]) -> Ranks:
    rank = None
    if gpus:
        rank = case.registry.rank_with("gpu", bus_key(gpus[0]), e.host)
    elif e.fields.get("gpu") is not None:
        rank = case.rank_of(e)
    return _one(rank if rank is not None else case.registry.rank_of_pid(e.fields.get("pid"), e.host))


RANKS: dict[str, Callable[[Case, Event, Ranks, tuple[str, ...]], Ranks]] = {
    "self": lambda case, e, _, __: _one(case.rank_of(e)) or _one(e.fields.get("rank")),
    "rank": _of_ranks,
    "missing-ranks": lambda _, e, __, ___: numbers(e.fields.get("ranks", "")) or _one(e.fields.get("rank")),
    "pid": _of_process,
    "gpu": _of_gpu,
    # the rank that reports on its host (an interface, a device); the kernel reports for the whole host
    "host": lambda case, e, _, __: () if e.speaker in ("kernel", "scheduler") else _one(case.rank_of(e)),
}


def numbers(text: str) -> Ranks:
    """Ranks of a text such as `1, 2` or `0-2` (at most 4096)."""
    found: dict[int, None] = {}
    for part in _REGEXES["numbers"].findall(text):
        low, _, high = part.partition("-")
        for rank in range(whole(low), min(whole(high or low), whole(low) + MOST_RANKS - 1) + 1):
            found[rank] = None
    return tuple(found)[:MOST_RANKS]


def _hosts(e: Event) -> tuple[str, ...]:
    host = e.fields.get("host") or e.fields.get("node") or e.host
    return (host,) if host and any(c.isalnum() for c in host) else ()


def _peer(e: Event) -> tuple[str, ...]:
    """The peer's host in a complaint: `Got completion from peer node48<37948>`."""
    m = _REGEXES["peer"].match(e.fields.get("peer", ""))
    named = m[1] if m else ""
    return () if not named or named == "localhost" or named.startswith(_ANY_HOST) else (named,)


def _gpus(e: Event) -> tuple[str, ...]:
    """The bus id of the GPU: captured, or above the line, since NVRM breaks a message over three lines."""
    text = e.fields.get("pci")
    if not text:
        above = reversed(e.context[max(0, e.before - 3) : e.before])
        text = next((line for line in above if "NVRM" in line and _REGEXES["bus-id"].search(line)), None)
    m = _REGEXES["bus-id"].search(text) if text else None
    return (f"{(m[1] or '0000')[-4:]}:{m[2]}:{m[3]}".lower(),) if m else ()


# ── one pattern per line ────────────────────────────────────────────────────────────────────────────────────


def _specific(case: Case, claims: list[Claim]) -> list[Claim]:
    """The claims without generic ones that repeat a specific one: a traceback with a message that has a pattern is
    not also "a Python exception", on its own line, on a further line of its message, or in another copy of the log."""
    specific = list(filter(_is_specific, claims))
    found = grouped((e.where.source, e) for e in sorted((c.event for c in specific), key=_line))
    texts = {_text(case, c) for c in specific}
    named = {c.event.place for c in claims if not c.pattern.generic}
    ends = _message_ends(case)
    out = []
    for c in claims:
        source = c.event.where.source
        if not c.pattern.generic:
            out.append(c)
        elif (not c.pattern.on and c.event.place in named) or _repeats(found[source], c.event, ends[source]):
            continue
        elif c.tells("stop") or not c.event.fields.get("wrapper"):
            out += [c] * (_text(case, c) not in texts)
        elif not c.event.fields.get("mentioned"):  # it carries another process's failure
            because = f"{topics.exception_class(c)} only reports another process's failure"
            out.append(replace(c, role="symptom", because=because))
    return out


def _is_specific(c: Claim) -> bool:
    """Whether its pattern names a failure. An abort of the job, or a launcher's report of a failed process, is below an
    exception, and no line of its message."""
    p = c.pattern
    reported = p.stands_for and (p.entity == "rank" or (p.severity == "warning" and not p.tells))
    return not (p.generic or reported or c.tells("aborts")) and (c.accuses or p.on == "exception")


def _text(case: Case, c: Claim) -> tuple[int | None, str]:
    return case.rank_of(c.event), gist(c.event.fields.get("line") or c.event.text)


def _message_ends(case: Case) -> Mapping[str, Sequence[int]]:
    """Lines of each log that belong to no message above: with a stamp of their own, another exception, a launcher's
    entry."""
    starts = [e for e in case.events if e.line and (e.kind in STARTS or (e.raw_time and e.clock != "none"))]
    return grouped((e.where.source, e.line) for e in sorted(starts, key=_line))


def _line(e: Event) -> int:
    return e.line


def _repeats(specific: Sequence[Event], e: Event, ends: Sequence[int]) -> bool:
    """Whether a specific claim is on the decisive line of a block, or on a further line of its message. `specific` are
    those of its log by line, of which there may be many thousands; `ends` the lines that belong to no message above."""
    if e.where.line is None or not specific:
        return any(x.where.line is None for x in specific[:1])
    after = bisect_right(ends, e.line)
    end = ends[after] if after < len(ends) else None
    first, last = _message(e)
    low, high = bisect_left(specific, min(first, e.line), key=_line), bisect_right(specific, last, key=_line)
    return any(x.line == e.line or _in_message(e, x, end) for x in specific[low:high])


def _message(e: Event) -> tuple[int, int]:
    """The first and the last line that its message may have."""
    line = e.line
    return e.fields.get("opened") or line, max(e.where.end_line or 0, line + LONE)


def _in_message(e: Event, other: Event, end: int | None) -> bool:
    """Whether `other` is a further line of the message of the exception `e`: of the same writer, and without a stamp."""
    (opened, last), line = _message(e), other.line
    if not opened <= line <= last or (end is not None and line >= end):
        return False
    if other.fields.get("opened", opened) != opened or (other.raw_time and other.clock != "none"):
        return False
    return e.rank == other.rank and e.fields.get("local_rank") == other.fields.get("local_rank")
