"""Hangs and desynchronisation: who did not arrive, who went elsewhere, who left.

Every waiting rank shouts; the guilty one is mostly silent. So: what a report states (flight recorder, monitored barrier,
desync summary) comes first; then collective numbers; then stacks; then the lines of code in which the ranks waited; then
who had finished; then silence. Each step yields findings with the reason in words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive import alike, recorder
from postmortem.diagnose.derive.views import (
    View,
    at_odds,
    elsewhere,
    make,
    minority,
    ranks_text,
    status,
    views,
)
from postmortem.diagnose.wording import gist, shape
from postmortem.digits import number
from postmortem.model import Event

_BAR = re.compile(
    r"\d+%\||\d+/\d+ \[\d|examples? \[\d\d:\d\d|\d+(?:\.\d+)? ?(?:it|s|examples|B|MB|GB)/s|\[\d\d:\d\d<"
)
FEW = 8  # a collective number this low means that the job was still setting up


def derive(case: Case, claims: list[Claim]) -> list[Claim]:
    """Claims about a hang, best reasons first. Empty where nothing waits."""
    seen = views(case, claims)
    for e in case.telling("count"):
        rank = number(e.fields.get("rank"))
        rank = case.rank_of(e) if e.rank is not None or rank is None else rank
        if rank in seen:
            status(seen[rank], e)
    if not _something_waits(case, seen, claims):
        return []
    steps: tuple[Callable[[Case, dict[int, View], list[Claim]], Claim | None], ...] = (
        _fingerprints,
        _recorder,
        _desync,
        _numbers,
        _stacks,
        _left,
        alike.all_receive,
        alike.cut_off,
        _places,
        _silence,
        _busy_rank0,
        _behind,
        _odd_notice,
    )
    found = [(n, f) for n, step in enumerate(steps) if (f := step(case, seen, claims)) is not None]
    return [replace(_with_last_words(f, seen), step=n) for n, f in found]


def _with_last_words(f: Claim, seen: dict[int, View]) -> Claim:
    """What a suspect said last in the ordinary way shows where it was: put it behind the first proof."""
    words = [e for r in f.ranks[:2] if r in seen for e in seen[r].last_words() if e not in f.events]
    return replace(f, events=(*f.events[:1], *words, *f.events[1:]))


def _something_waits(case: Case, seen: dict[int, View], claims: list[Claim]) -> bool:
    if seen and all(v.got_over for v in seen.values()):
        return False
    if any(v.complaint or v.lost for v in seen.values()):
        return True
    if case.of_kind("recorder"):
        return True
    if any(
        o.pattern.category in ("hang", "collective-mismatch") and o.role in ("cause", "symptom")
        for o in claims
    ):
        return True
    stacked = [v for v in seen.values() if v.stack is not None]
    return len(stacked) >= 2 and not all(v.finished for v in seen.values())


_SELF = re.compile(
    r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\((?P<print>.*?)(?:\), but Rank (?P<peer>\d+)|$)"
)


def _fingerprints(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """ProcessGroupWrapper: each rank prints its own fingerprint and the first peer's that differs. Only the own half is trustworthy:
    with tensors of different dimensions the peer's half is garbage (torch ProcessGroupWrapper.cpp)."""
    own: dict[int, tuple[str, Event]] = {}
    named: Counter[int] = Counter()
    for e in case.telling("announces"):
        if m := _SELF.search(e.text):
            own.setdefault(int(m["rank"]), (m["print"][:300], e))
            if m["peer"]:
                named[int(m["peer"])] += 1
    if not own:
        return None
    groups: dict[Any, list[int]] = defaultdict(list)
    for rank, (text, _event) in own.items():
        groups[text.split(", TensorDeviceTypes")[0]].append(rank)
    odd, majority = minority(groups)
    if len(groups) == 1 and len(own) >= 2 and named:
        odd = [named.most_common(1)[0][0]]
    if not odd or (not majority and len(own) < len(seen)):
        accused = [r for r, n in named.items() if n == len(own) and r not in own]
        odd = accused if len(own) >= 2 and accused else []
    if not odd and len(own) == 1:
        return None  # what one rank states is all that is known
    proof = [own[r][1] for r in sorted(own, key=lambda r: r not in odd)]
    told = _announced(groups)
    return make(case, "ranks-in-different-collectives", odd, proof, at_odds(odd, set(odd) != set(own), told))


def _announced(groups: dict[Any, list[int]]) -> str:
    """`rank 1 announced OpType=BROADCAST, TensorShape=[16], ranks 0 and 2 …`: of the fingerprints only what differs, or all."""
    split = {text: re.split(r", (?=[A-Z]\w+=)", text) for text in groups}
    common = set.intersection(*(set(parts) for parts in split.values()))
    shown = sorted(
        (ranks, ", ".join(p for p in split[text] if p not in common) or text)
        for text, ranks in groups.items()
    )
    return "; ".join(f"{ranks_text(ranks)} announced {told}" for ranks, told in shown[:3])


def _recorder(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """Flight recorder: compare, for each process group, the last enqueued collective and the entry with the same number."""
    dated = sorted(case.of_kind("recorder"), key=lambda e: (e.time or 0.0, bool(e.fields.get("code"))))
    dumps = {
        r: e for e in dated if (r := case.rank_of(e)) is not None
    }  # of several dumps of a rank the latest
    reading = recorder.read(dumps) if len(dumps) >= 2 else None
    if reading is None:
        return None
    proof = [dumps[r] for r in dict.fromkeys([*reading.odd, *reading.group]) if r in dumps]
    made = make(case, reading.pattern, reading.odd, proof, reading.because)
    return made if reading.sure or made is None else replace(made, strength="silent")


def _desync(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """TORCH_NCCL_DESYNC_DEBUG: torch itself compared what the ranks had recorded and names those that did not come."""
    for e in case.telling("laggards"):
        named = [int(r) for r in re.findall(r"\d+", str(e.fields.get("ranks") or ""))]
        if named and case.rank_of(e) not in named:
            return make(
                case, "rank-never-arrived", named, [e], f"torch's desync report says `{gist(e.text)[:110]}`"
            )
    return None


def _one_behind(numbers: dict[int, int]) -> list[int]:
    if len(set(numbers.values())) < 2:
        return []
    top = max(numbers.values())
    low = [r for r, n in numbers.items() if n < top]
    return low if len(low) * 2 < len(numbers) or len(numbers) == 2 else []


def _numbers(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """NCCL: the watchdogs name number, operation and size of the collective that each rank waits in."""
    counted = {r: v for r, v in seen.items() if v.seq is not None}
    groups = Counter(v.group for v in counted.values() if v.group is not None)
    if len(groups) > 1:  # numbers of different process groups have nothing to do with each other
        busiest = groups.most_common(1)[0][0]
        counted = {r: v for r, v in counted.items() if v.group in (busiest, None)}
    if len(counted) < 2 or _counts_several_groups(case):
        return _enqueued(case, seen)
    what: dict[Any, list[int]] = defaultdict(list)
    usual_op = next(iter(Counter(v.op for v in counted.values() if v.op).most_common(1)), (None, 0))[0]
    usual_numel = next(iter(Counter(v.numel for v in counted.values() if v.numel).most_common(1)), (None, 0))[
        0
    ]
    for r, v in counted.items():
        what[(v.seq, v.op or usual_op, v.numel or usual_numel)].append(r)
    if len(what) < 2:
        return _enqueued(case, seen)
    odd, majority = minority(what)
    told = "; ".join(
        f"{ranks_text(ranks)} waited in {op} {seq}" + (f" ({numel} elements)" if numel else "")
        for (seq, op, numel), ranks in sorted(what.items(), key=str)
    )
    same_op = len({(v.op, v.numel) for v in counted.values()}) == 1
    pattern = "rank-behind" if same_op else "ranks-in-different-collectives"
    if same_op:
        low = min(v.seq for v in counted.values() if v.seq is not None)
        odd = [r for r, v in counted.items() if v.seq == low]
    else:
        told = at_odds(odd, majority, told)
    return make(
        case,
        pattern,
        odd,
        [v.complaint for r, v in sorted(counted.items(), key=lambda x: x[0] not in odd)],
        told,
    )


def _counts_several_groups(case: Case) -> bool:
    """Before torch 2.3 the watchdog names no process group: a rank that times out in two numbers at once waits in two groups."""
    numbers: dict[int, set[object]] = defaultdict(set)
    for e in case.telling("wait"):
        rank = case.rank_of(e)
        if rank is not None and not e.fields.get("pg") and e.fields.get("seq"):
            numbers[rank].add(e.fields["seq"])
    return any(len(found) > 1 for found in numbers.values())


def _enqueued(case: Case, seen: dict[int, View]) -> Claim | None:
    """How far each rank had come in one process group; numbers of two groups say nothing about each other."""
    for group in sorted({g for v in seen.values() for g in v.enqueued}):
        numbers = {r: v.enqueued[group] for r, v in seen.items() if group in v.enqueued}
        behind = _one_behind(numbers) if len(numbers) >= 2 else []
        if behind:
            return make(
                case,
                "rank-behind",
                behind,
                [e for e in case.telling("count") if case.rank_of(e) in behind],
                f"{ranks_text(behind)} had enqueued {numbers[behind[0]]} collectives, the others {max(numbers.values())}",
            )
    return None


def _stacks(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """Stack dumps of living ranks: identical ones are one group; the odd one is the suspect, above all if it is in no collective."""
    stacked = {r: v for r, v in seen.items() if v.stack is not None}
    if len(stacked) < 2:
        return None
    groups: dict[Any, list[int]] = defaultdict(list)
    for r, v in stacked.items():
        assert v.stack is not None
        groups[(v.stack.fields.get("collective"), v.stack.fields.get("code"))].append(r)
    outside = [r for r, v in stacked.items() if v.stack is not None and not v.stack.fields.get("collective")]
    if outside and len(outside) < len(stacked):
        places = ", ".join(
            f"rank {r} was in {_function(seen[r].stack)} ({_code(seen[r].stack)})" for r in outside[:4]
        )
        children = [e for e in case.of_kind("stack") if e.fields.get("child") and case.rank_of(e) in outside]
        return make(
            case,
            "rank-never-arrived",
            outside,
            [*(seen[r].stack for r in outside), *children],
            f"{places} while the others waited in a collective",
        )
    if len(groups) < 2:
        return None
    odd, majority = minority(groups)
    told = "; ".join(
        f"{ranks_text(ranks)} waited in {collective or 'no collective'} at {code}"
        for (collective, code), ranks in sorted(groups.items(), key=str)
    )
    order = sorted(stacked, key=lambda r: r not in odd)
    return make(
        case,
        "ranks-in-different-collectives",
        odd,
        [seen[r].stack for r in order],
        at_odds(odd, majority, told),
    )


def _function(e: Event | None) -> str:
    frames = e.fields.get("frames") if e is not None else None
    return str(frames[0][2]) if isinstance(frames, tuple) and frames else "?"


def _code(e: Event | None) -> str:
    return str(e.fields.get("code") or "?") if e is not None else "?"


def _left(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """A rank that ended its work, or left with exit code 0, while others still wait for it."""
    waiting = [r for r, v in seen.items() if v.complaint or v.lost]
    gone = [
        r
        for r, v in seen.items()
        if v.silent
        and v.finished is not None
        and (v.end is None or v.end.kind in ("clean", "kill") or v.end.signal == "SIGTERM")
    ]
    if not waiting or not gone or len(gone) >= len(seen):
        return None
    proof = [seen[r].finished for r in gone] + [seen[r].complaint or seen[r].lost for r in waiting]
    return make(
        case,
        "rank-left-early",
        gone,
        proof,
        f"{ranks_text(gone)} had finished while {ranks_text(waiting)} still waited in a collective",
    )


def _places(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """The lines of the user's code in which the ranks waited. One rank elsewhere is the odd one."""
    placed = {r: v.place for r, v in seen.items() if v.place is not None and not v.silent}
    if len(placed) < 2 or len(set(placed.values())) < 2 or any(v.silent and v.lines for v in seen.values()):
        return None
    if any(place[0] == "init" for place in placed.values()):
        return None  # some are past it and some are not: then the group itself is at odds, about its size or its members
    groups: dict[Any, list[int]] = defaultdict(list)
    for r, place in placed.items():
        groups[place].append(r)
    outside = [r for r, place in placed.items() if place[0] == "none"]
    if outside and len(outside) < len(placed):
        verb = "was" if len(outside) == 1 else "were"
        text = (
            f"{ranks_text(outside)} {verb} at {placed[outside[0]][1]} while the others waited in a collective"
        )
        return make(
            case,
            "rank-never-arrived",
            outside,
            [*(seen[r].stack for r in outside), *(v.complaint for v in seen.values())],
            text,
        )
    odd, majority = minority(groups)
    if len(groups) > 3 and not majority:
        return None
    told = "; ".join(
        f"{ranks_text(ranks)} waited in {place[0]} at {place[1]}"
        for place, ranks in sorted(groups.items(), key=str)
    )
    order = sorted(placed, key=lambda r: r not in odd)
    proof = [seen[r].complaint or seen[r].lost or seen[r].fatal for r in order]
    return make(case, "ranks-in-different-collectives", odd, proof, at_odds(odd, majority, told))


def _silence(case: Case, seen: dict[int, View], claims: list[Claim]) -> Claim | None:
    """Those who wait shout; the one they wait for says nothing. It counts only if the rank's own log is there, or all others' are."""
    shouting = [r for r, v in seen.items() if not v.silent]
    quiet = [r for r, v in seen.items() if v.silent]
    if not shouting or not quiet or len(quiet) > len(shouting):
        return None
    logged = [r for r in quiet if seen[r].lines]
    if not logged and not (len(quiet) == 1 and _logs_are_complete(case, seen)):
        return None
    suspects = elsewhere(seen, shouting, logged) or logged or quiet
    only_lost = all(seen[r].complaint is None for r in shouting)
    mismatch = any(o.pattern.category == "collective-mismatch" for o in claims)
    if only_lost and not mismatch:
        return make(
            case,
            "rank-vanished",
            suspects,
            [seen[r].last for r in suspects] + [seen[r].lost for r in shouting],
            f"{ranks_text(suspects)} fell silent, and {ranks_text(shouting)} lost the connection to a peer",
        )
    proof = [seen[r].stack or seen[r].last for r in suspects] + [
        seen[r].complaint or seen[r].lost or seen[r].fatal for r in shouting
    ]
    stack = seen[suspects[0]].stack
    where = f" (it was at {_code(stack)})" if stack else ""
    return make(
        case,
        "rank-never-arrived",
        suspects,
        proof,
        f"{ranks_text(shouting)} complained, {ranks_text(suspects)} did not{where}",
    )


def _logs_are_complete(case: Case, seen: dict[int, View]) -> bool:
    """Whether every other rank has a file of its own here, or speaks on a common console, so that one rank's silence means something."""
    own = {rank for path, rank in case.registry.by_source.items()}
    world = case.registry.world if case.registry.world is not None else len(seen)
    waiting = [r for r, v in seen.items() if v.complaint is not None]
    stopped = any(
        v.silent and v.end is not None and v.end.signal == "SIGTERM" for v in seen.values()
    )  # it lived until the launcher ended it
    return world >= 2 and (len(own) >= world - 1 or (stopped and len(waiting) == world - 1))


def _busy_rank0(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """In a merged console only rank 0 draws progress bars. One that still moves when the others time out is what they waited for."""
    waiting = [v for v in seen.values() if v.complaint is not None]
    if not waiting or any(v.rank == 0 for v in waiting) or any((v.seq or 0) > FEW for v in waiting):
        return None
    for v in waiting:
        e = v.complaint
        assert e is not None
        nearby = [*e.context[: e.before], e.text]
        bar = next(
            (text for text in reversed(nearby) if _BAR.search(text.split("[E ")[0].split("[rank")[0])), None
        )
        if bar is not None:
            return make(
                case,
                "rank0-still-busy",
                [0],
                [_bar_event(e, bar), e],
                f"rank 0 still worked when rank {v.rank} timed out in collective {v.seq}",
            )
    return None


def _odd_notice(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """A warning that one rank alone printed while it still worked: a swallowed exception shows only like this."""
    by_shape: dict[str, dict[int, Event]] = defaultdict(dict)
    for e in case.of_kind("notice"):
        rank = case.rank_of(e)
        if rank is not None and not _COMPLAINT.search(e.text):
            by_shape[shape(e.text)].setdefault(rank, e)
    talking = {r for r, v in seen.items() if v.lines}
    lone = [next(iter(found.items())) for found in by_shape.values() if len(found) == 1]
    ranks = {rank for rank, _ in lone}
    if len(talking) < 2 or len(ranks) != 1:
        return None
    rank = ranks.pop()
    events = [e for _, e in lone]
    return make(
        case,
        "odd-warning-on-one-rank",
        [rank],
        events[:3],
        f"only rank {rank} logged `{_message(events[0])}`",
    )


def _message(e: Event) -> str:
    """What a warning says, without what its logger put before it."""
    m = _FIELD.search(e.text) or _LEVEL.search(e.text)
    said = m["said"] if m else gist(e.text)
    return said if len(said) <= 80 else said[:80].rsplit(" ", 1)[0] + "…"


_FIELD = re.compile(r'"(?:msg|message|event)": ?"(?P<said>(?:[^"\\]|\\.){3,})"')
_LEVEL = re.compile(r"\b(?:WARN(?:ING)?|ERROR)\b[\s\]|:-]*(?:\[?rank ?\d+\]?[\s|:-]*)?(?P<said>\S.{3,})")


_COMPLAINT = re.compile(
    r"gloo|nccl|NCCL|peer|store|[Tt]imed out|[Tt]imeout|[Cc]onnection|ProcessGroup|socket"
)


def _bar_event(e: Event, bar: str) -> Event:
    if bar == e.text:
        return e
    index = list(e.context[: e.before]).index(bar)
    line = (e.where.line or 0) - (e.before - index)
    return e._replace(
        where=e.where._replace(line=line, end_line=None), text=bar, rank=None, context=(), before=0
    )


def _behind(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """All complain alike: then the rank whose last step is lowest is the suspect."""
    steps = {r: v.step for r, v in seen.items() if v.step is not None}
    if len(steps) < 3 or len(steps) < len(seen):
        return None
    counts = Counter(steps.values())
    common, n = counts.most_common(1)[0]
    low = [r for r, s in steps.items() if s < common]
    if n < len(steps) - 1 or len(low) != 1:
        return None
    if low[0] in case.ended("kill") and not any(v.complaint for v in seen.values()):
        return None  # nobody waited until a time-out: it came less far because it was killed
    return make(
        case,
        "rank-behind",
        low,
        [seen[low[0]].last],
        f"rank {low[0]} had reached step {steps[low[0]]}, all others step {common}",
    )
