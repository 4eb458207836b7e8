"""Hand-built events, claims and cases, so that a test of the reasoning reads as a story.

reset = claim(LOST, event("Connection reset by peer", file="rank1.log", line=8, rank=1), ranks=(1,))
case(reset.event, event(kind="finished", rank=0), ranks=(0, 1)).finished == {0}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.rules.view import Defeat
from postmortem.diagnose.who.evidence import Evidence, Registry, Subject
from postmortem.library import Library, load
from postmortem.model import Event, Explains, Pattern, Role, Source, Where

NOON = 1795262400.0  # 2026-11-21 12:00:00 UTC


def pattern(id: str = "raised", category: str | None = "python-exception", **more: Any) -> Pattern:
    """A pattern of a test's own, by default the cause of a rank's own death."""
    usual: dict[str, Any] = {
        "family": "tests", "title": f"{id} was seen", "status": "stable", "role": "cause", "severity": "fatal",
        "entity": "self", "what": "",
    }  # fmt: skip
    return Pattern(id=id, category=category, **(usual | more))


def explains(id: str, join: str = "any", within_s: float | None = None) -> Explains:
    return Explains(id, join, within_s)


def event(
    text: str = "it failed", file: str = "rank0.log", line: int | None = 1, kind: str = "pattern", **more: Any
) -> Event:
    """An event; what `Event` has no place for goes to its `fields`."""
    own = {name: more.pop(name) for name in Event._fields if name in more}
    own["fields"] = {**own.get("fields", {}), **more}
    return Event(kind, Where(file, line), text, **own)


def claim(p: Pattern, *events: Event, **more: Any) -> Claim:
    return Claim(p, more.pop("role", p.role), events or (event(),), strength=more.pop("strength", p.strength), **more)


def source(path: str, kind: str = "console", **more: Any) -> Source:
    return Source(path, kind, more.pop("size", 100), **more)


def library(*patterns: Pattern) -> Library:
    """The shipped library and patterns of a test's own."""
    return Library({**load().patterns, **{p.id: p for p in patterns}}, "test")


def case(
    *events: Event,
    ranks: Iterable[int] = (),
    pids: Mapping[int, int] | None = None,
    hosts: Mapping[int, str] | None = None,
    sources: Sequence[Source] = (),
    patterns: Sequence[Pattern] = (),
    **registry: Any,
) -> Case:
    """One life of a job: `pids` and `hosts` are of ranks."""
    known = Registry(ranks=tuple(ranks), host_of=dict(hosts or {}), **registry)
    for rank, pid in (pids or {}).items():
        known.bind(Evidence(Subject("pid", pid), rank))
    return Case(events, known, library(*patterns), {s.path: s for s in sources})


def exits(**codes: int) -> list[Event]:
    """The launcher's failure block: `exits(r0=-15, r1=1)`."""
    return [
        event(f"exitcode {code}", "agent.err", 10 + n, "exit", rank=int(name[1:]), pid=100 + int(name[1:]),
              exitcode=code, speaker="launcher", source_kind="agent")
        for n, (name, code) in enumerate(codes.items())
    ]  # fmt: skip


def steps(rank: int, *numbers: int, at: float | None = None, **more: Any) -> list[Event]:
    """A rank's lines of progress, a second apart."""
    file, kind = more.pop("file", f"rank{rank}.log"), more.pop("kind", "progress")
    return [
        event(f"step {n}", file, n + 1, kind, rank=rank, step=n, at=None if at is None else at + n,
              source_kind="console", **more)
        for n in numbers
    ]  # fmt: skip


def final_line(rank: int | None, line: int = 99, **more: Any) -> Event:
    return event("Training finished.", more.pop("file", f"rank{rank or 0}.log"), line, "finished", rank=rank,
                 source_kind="console", **more)  # fmt: skip


def parts(defeats: Iterable[Defeat]) -> dict[int, str]:
    """The part that each defeat leaves to its claim; every defeat names one, and says why."""
    found = list(defeats)
    assert all(d.to in get_args(Role) and d.because for d in found)
    return {d.claim: d.to for d in found}
