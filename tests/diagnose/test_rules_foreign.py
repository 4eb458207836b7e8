"""What others tell beside the logs of one job counts as far as something binds it to the job."""

from __future__ import annotations

from typing import Any

from claims import NOON, case, claim, event, exits, final_line, parts, pattern, steps
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules import foreign
from postmortem.diagnose.rules.view import Rule, View
from postmortem.model import Event

OOM = pattern("oom", "host-oom", entity="pid")
XID = pattern("xid", "gpu-hardware", entity="gpu")
LIMIT = pattern("limit", "scheduler", entity="job")
RAISED = pattern()
LOST = pattern("lost", "peer-lost", role="symptom")


def fallen(rule: Rule, seen: Case, *claims: Claim) -> dict[int, str]:
    return parts(rule(View(seen, claims)))


# ── a job that all ranks finished ────────────────────────────────────────────────────────────────────────────────────


def kernels(p: Any = OOM, **more: Any) -> Claim:
    return claim(p, event("Killed process 5", "dmesg.txt", speaker=more.pop("speaker", "kernel"), **more))


def test_nothing_that_others_show_harmed_a_job_that_all_ranks_finished() -> None:
    seen = case(final_line(0), final_line(1), ranks=(0, 1))
    for speaker in ("kernel", "scheduler", "cluster", "tool"):
        assert fallen(foreign.harmless, seen, kernels(speaker=speaker)) == {0: "context"}
    assert fallen(foreign.harmless, seen, kernels(speaker="launcher")) == {}


# ── causes that nothing binds to this job ────────────────────────────────────────────────────────────────────────────

WORK = steps(0, 1, 2, 3, at=NOON, at_sigma=0.1)
UNDATED = kernels()
WITHIN = kernels(at=NOON + 2, at_sigma=0.1, comm="python3")


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def kill(pid: int = 9991, comm: str = "python3", p: Any = OOM, **more: Any) -> Claim:
    own = {name: more.pop(name) for name in ("ranks", "role") if name in more}
    fields = {"pid": str(pid), "comm": comm}
    return claim(p, event("Killed process", "dmesg.txt", speaker="kernel", fields=fields, **more), pids=(pid,), **own)


def joined(c: Claim, *events: Event, pids: int = 2) -> tuple[int, ...]:
    known = {rank: 10 + rank for rank in range(pids)}
    return foreign.joined(case(*WORK, *events, ranks=(0, 1, 2, 3), pids=known), [c])[0].ranks


DEAD = exits(r1=-9)


def test_in_a_container_the_one_rank_that_was_killed_fits() -> None:
    (c,) = foreign.joined(case(*WORK, *DEAD, ranks=(0, 1), pids={0: 10}), [kill(at=NOON + 3)])
    assert c.ranks == (1,)
    assert c.because.startswith("no pid matches")


def test_the_moment_has_to_fit() -> None:
    """Within a minute of the end, and what both clocks may be off by."""
    assert joined(kill(at=NOON + 3 + 63), *DEAD) == (1,)
    assert joined(kill(at=NOON + 3 + 64), *DEAD) == ()
    assert joined(kill(at=NOON + 3 + 66, at_sigma=1.0), *DEAD) == (1,)
    dated = [e._replace(at=NOON - 50, at_sigma=99.0) for e in DEAD]
    assert joined(kill(at=NOON + 3), *dated) == (1,)
    assert joined(kill(at=NOON + 20), *dated) == ()
