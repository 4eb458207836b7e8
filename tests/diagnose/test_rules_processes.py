"""A kernel log reaches back to boot: what it says of strange processes is another job's."""

from __future__ import annotations

from typing import Any

from claims import NOON, case, claim, event, exits, parts, pattern, steps
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules import foreign
from postmortem.diagnose.rules.view import Rule, View
from postmortem.model import Event

OOM = pattern("oom", "host-oom", entity="pid")
RAISED = pattern()
WORK = steps(0, 1, 2, 3, at=NOON, at_sigma=0.1)


def kill(pid: int = 9991, comm: str = "python3", p: Any = OOM, **more: Any) -> Claim:
    own = {name: more.pop(name) for name in ("ranks", "role") if name in more}
    fields = {"pid": str(pid), "comm": comm}
    return claim(p, event("Killed process", "dmesg.txt", speaker="kernel", fields=fields, **more), pids=(pid,), **own)


def fallen(rule: Rule, seen: Case, *claims: Claim) -> dict[int, str]:
    return parts(rule(View(seen, claims)))


# ── among strangers ──────────────────────────────────────────────────────────────────────────────────────────────────


def tasks(victim: int, *pids: int) -> Event:
    return event(kind="oom-tasks", pid=victim, fields={"tasks": pids}, speaker="kernel")


def test_a_kill_among_strangers_is_theirs_if_another_one_was_among_ours() -> None:
    own = event("pid 101", pid=101)
    seen = case(own, tasks(9991, 9990, 9991), tasks(102, 101, 102))
    assert fallen(foreign.in_another_cgroup, seen, kill(9991), kill(102), kill(7)) == {0: "context"}


# ── unknown processes ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pid_that_is_none_of_the_jobs() -> None:
    assert fallen(foreign.unknown_process, case(ranks=range(4), pids={0: 100, 1: 101}), kill(9991)) == {0: "context"}
    assert fallen(foreign.unknown_process, case(ranks=range(4), pids={0: 100}), kill(9991)) == {}  # too few are known
    assert fallen(foreign.unknown_process, case(ranks=()), kill(9991)) == {}


# ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def joined(c: Claim, *events: Event, pids: int = 2) -> tuple[int, ...]:
    known = {rank: 10 + rank for rank in range(pids)}
    return foreign.joined(case(*WORK, *events, ranks=(0, 1, 2, 3), pids=known), [c])[0].ranks


DEAD = exits(r1=-9)


def test_in_a_container_the_one_rank_that_was_killed_fits() -> None:
    (c,) = foreign.joined(case(*WORK, *DEAD, ranks=(0, 1), pids={0: 10}), [kill(at=NOON + 3)])
    assert c.ranks == (1,)
    assert c.because.startswith("no pid matches")


def test_no_rank_fits_without_a_kill_or_with_several() -> None:
    assert joined(kill(at=NOON + 3)) == ()
    assert joined(kill(at=NOON + 3), *exits(r1=-9, r2=-9)) == ()
    assert joined(kill(at=NOON + 3), *exits(r1=-11)) == ()


def test_no_rank_fits_a_program_that_is_none_or_a_claim_on_no_process() -> None:
    assert joined(kill(comm="mysqld", at=NOON + 3), *DEAD) == ()
    assert joined(kill(p=pattern("x", "host-oom", entity="host"), at=NOON + 3), *DEAD) == ()
    assert joined(kill(at=NOON + 3, ranks=(3,)), *DEAD) == (3,)


def test_the_moment_has_to_fit() -> None:
    """Within a minute of the end, and what both clocks may be off by."""
    assert joined(kill(at=NOON + 3 + 63), *DEAD) == (1,)
    assert joined(kill(at=NOON + 3 + 64), *DEAD) == ()
    assert joined(kill(at=NOON + 3 + 66, at_sigma=1.0), *DEAD) == (1,)
    dated = [e._replace(at=NOON - 50, at_sigma=99.0) for e in DEAD]
    assert joined(kill(at=NOON + 3), *dated) == (1,)
    assert joined(kill(at=NOON + 20), *dated) == ()
