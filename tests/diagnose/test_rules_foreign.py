"""What others tell beside the logs of one job counts as far as something binds it to the job."""

from __future__ import annotations

from typing import Any

from claims import NOON, case, claim, event, exits, final_line, parts, pattern, source, steps
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.rules import foreign
from postmortem.diagnose.rules.view import Rule, View
from postmortem.model import Event

OOM = pattern("oom", "host-oom", entity="pid")
XID = pattern("xid", "gpu-hardware", entity="gpu")
FAULT = pattern("fault", "gpu-fault", entity="gpu")
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


def test_a_job_that_complains_is_not_unharmed() -> None:
    """One of its own lines does, or the kernel names one of its ranks."""
    seen = case(final_line(0), final_line(1), ranks=(0, 1))
    assert fallen(foreign.harmless, seen, kernels(), claim(RAISED)) == {}
    for rank, left in ((1, {}), (7, {0: "context"})):
        assert fallen(foreign.harmless, seen, claim(OOM, kernels().event, ranks=(rank,))) == left


def test_a_job_that_a_scheduler_ends_after_its_final_messages_hung_at_its_exit() -> None:
    seen = case(final_line(0, at=NOON), ranks=(0,))
    for at, left in ((NOON + 60, {}), (NOON - 60, {0: "context"}), (None, {0: "context"})):
        assert fallen(foreign.harmless, seen, kernels(LIMIT, at=at, speaker="scheduler")) == left
    assert fallen(foreign.harmless, seen, kernels(at=NOON + 60)) == {0: "context"}


# ── causes that nothing binds to this job ────────────────────────────────────────────────────────────────────────────

WORK = steps(0, 1, 2, 3, at=NOON, at_sigma=0.1)
UNDATED = kernels()
WITHIN = kernels(at=NOON + 2, at_sigma=0.1, comm="python3")


def test_well_before_the_job_is_two_minutes_and_three_standard_deviations() -> None:
    for before, outside in ((120.0, False), (134.0, False), (135.0, True)):  # the work began at NOON + 1
        assert case(*WORK).outside(event(at=NOON - before, at_sigma=5.0)) is outside


def loose(c: Claim, *own: Claim, **known: Any) -> bool:
    events = known.pop("events", WORK)
    return c in foreign.unlinked(case(*events, ranks=(0, 1), **known), [c, *own])


def test_a_host_without_a_rank_is_a_another_job() -> None:
    for host, strange in (("node-a.cluster", False), ("node-b", True)):
        c = claim(OOM, *WITHIN.events, hosts=(host,))
        assert loose(c, hosts={0: "node-a"}) is strange


def test_the_ranks_words_confirm_out_what_is_stated_of_their_gpu() -> None:
    xid = kernels(XID)
    assert not loose(xid, claim(pattern("cuda", "gpu-fault", role="symptom", family="gpu-fault")))
    assert not loose(xid, claim(pattern("cuda", "gpu-fault", family="gpu-fault")))
    assert loose(xid, claim(pattern("assert", "gpu-fault", family="gpu-fault", says_why=True)))
    assert loose(xid, claim(RAISED))  # who states a cause of its own has one
    assert loose(xid, claim(LOST))
    assert not loose(xid, claim(pattern("nccl", "hang", role="symptom", family="nccl")))


def test_a_complaint_of_others_is_no_cause_of_its_own() -> None:
    net = pattern("link", "network", entity="host")
    assert not loose(kernels(net), claim(pattern("lost2", "peer-lost")))
    assert not loose(kernels(net), claim(LOST))
    assert not loose(kernels(net), claim(pattern("waits", "hang", role="symptom")))
    assert loose(kernels(pattern("disk", "storage", entity="host")), claim(LOST))
    assert not loose(
        kernels(pattern("disk", "storage", entity="host")), claim(pattern("io", "storage", role="symptom"))
    )


def test_an_oom_kill_is_confirmed_out_by_a_rank_that_was_killed() -> None:
    assert loose(UNDATED)
    assert not loose(UNDATED, events=[*WORK, *exits(r1=-9)])
    told = claim(pattern("end", None, role="confirms", tells=("end",)), event(signal="Killed"), ranks=(1,))
    assert loose(UNDATED, told)  # a word that accuses nobody
    assert not loose(UNDATED, claim(told.pattern, *told.events, ranks=(1,), role="symptom"))


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def kill(pid: int = 9991, comm: str = "python3", p: Any = OOM, **more: Any) -> Claim:
    own = {name: more.pop(name) for name in ("ranks", "role") if name in more}
    fields = {"pid": str(pid), "comm": comm}
    return claim(p, event("Killed process", "dmesg.txt", speaker="kernel", fields=fields, **more), pids=(pid,), **own)


CHILD = pattern("child", None, role="symptom", tells=("child",))


def joined(c: Claim, *events: Event, pids: int = 2) -> tuple[int, ...]:
    known = {rank: 10 + rank for rank in range(pids)}
    seen = case(*WORK, *events, ranks=(0, 1, 2, 3), pids=known, patterns=[CHILD])
    return foreign.joined(seen, [c])[0].ranks


DEAD = exits(r1=-9)


def test_in_a_container_the_one_rank_that_was_killed_fits() -> None:
    (c,) = foreign.joined(case(*WORK, *DEAD, ranks=(0, 1), pids={0: 10}), [kill(at=NOON + 3)])
    assert c.ranks == (1,)
    assert "by elimination" in c.because


def test_the_moment_has_to_fit() -> None:
    """Within a minute of the end, and what both clocks may be off by."""
    assert joined(kill(at=NOON + 3 + 63), *DEAD) == (1,)
    assert joined(kill(at=NOON + 3 + 64), *DEAD) == ()
    assert joined(kill(at=NOON + 3 + 66, at_sigma=1.0), *DEAD) == (1,)
    dated = [e._replace(at=NOON - 50, at_sigma=99.0) for e in DEAD]
    assert joined(kill(at=NOON + 3), *dated) == (1,)
    assert joined(kill(at=NOON + 20), *dated) == ()


def test_a_kill_fits_the_only_rank_that_ended_so_or_the_parent_of_the_process() -> None:
    child = event("a worker exited", "rank2.log", kind="pattern", pattern="child", rank=2, at=NOON + 3, at_sigma=0.1)
    for c, events, ranks in (
        (kill(), DEAD, (1,)),  # without a time
        (kill(clock="boot"), DEAD, ()),  # of any day
        (kill(comm="sshd", at=NOON + 3), DEAD, ()),
        (kill(at=NOON - 200), DEAD, ()),  # before the job
        (kill(at=NOON + 3, ranks=(3,)), DEAD, (3,)),
        (kill(at=NOON + 3, p=XID), DEAD, ()),
        (kill(at=NOON + 3), exits(r1=-9, r2=-9), ()),
        (kill(at=NOON + 3), [child], (2,)),
        (kill(at=NOON + 66), [child], ()),
        (kill(at=NOON + 3), [child, child._replace(rank=1)], ()),
        (kill(), [child], (2,)),
        (kill(clock="boot"), [child], ()),
    ):
        assert joined(c, *events) == ranks, (c.event, events)
    assert joined(kill(at=NOON + 3), *DEAD, pids=1) == (1,)


def test_a_pid_of_no_rank_is_of_another_job() -> None:
    ranks = (0, 1, 2, 3)
    for pids, c, left in (
        ({0: 10, 1: 11}, kill(), {0: "context"}),
        ({0: 10, 1: 11}, kill(role="confirms"), {0: "context"}),
        ({0: 10}, kill(), {}),
        ({0: 10, 1: 11}, kill(ranks=(1,)), {}),
        ({0: 10, 1: 11}, kill(p=XID), {}),
        ({0: 10, 1: 11}, claim(OOM, event(speaker="launcher")), {}),
    ):
        assert fallen(foreign.unknown_process, case(*WORK, ranks=ranks, pids=pids), c) == left


def test_of_two_faults_on_a_gpu_the_one_with_a_pid_of_no_rank_is_of_another_process() -> None:
    named = claim(FAULT, event("Xid 31, pid=10", "dmesg.txt", speaker="kernel", fields={"pid": 10}), ranks=(0,))
    for other, left in (
        ({"speaker": "kernel", "fields": {"pid": 99}}, {1: "context"}),
        ({"speaker": "kernel"}, {}),
        ({"rank": 1, "fields": {"pid": 99}}, {}),  # a line of a rank
    ):
        fault = claim(FAULT, event("Xid 43", "dmesg.txt", **other))
        assert fallen(foreign.unknown_process, case(*WORK, ranks=(0, 1)), named, fault) == left
        assert fallen(foreign.unknown_process, case(*WORK, ranks=(0, 1)), fault) == {}


def test_a_kill_in_a_cgroup_without_a_process_of_the_job_is_of_another_job() -> None:
    lists = [event(kind="oom-tasks", speaker="kernel", pid=pid, fields={"tasks": tasks})
             for pid, tasks in ((100, (10, 1)), (200, (70, 1)))]  # fmt: skip
    own = [e._replace(pid=10) for e in WORK]
    assert fallen(foreign.in_another_cgroup, case(*own, *lists), kill(100), kill(200)) == {1: "context"}
    assert fallen(foreign.in_another_cgroup, case(*own, *lists[1:]), kill(200)) == {}
    assert fallen(foreign.in_another_cgroup, case(*WORK, *lists), kill(100), kill(200)) == {}
    assert fallen(foreign.in_another_cgroup, case(*own, *lists), kill(300), kill(200, ranks=(1,))) == {}


def test_a_loose_cause_yields_to_another_or_is_a_guess() -> None:
    seen = case(*WORK, ranks=(0, 1))
    for others, role, guess in (
        ((), "cause", True),
        ((claim(RAISED),), "context", False),
        ((claim(RAISED, role="symptom"),), "cause", True),
        ((claim(RAISED, strength="silent"),), "cause", True),
    ):
        first = foreign.downgraded(seen, [UNDATED, *others], [UNDATED])[0]
        assert (first.role, first.guess) == (role, guess)
    (dated,) = foreign.downgraded(seen, [WITHIN], [WITHIN])
    (scheduler,) = foreign.downgraded(seen, [c := kernels(speaker="scheduler")], [c])
    assert not dated.guess and not scheduler.guess


def test_rows_about_several_jobs_are_strange_unless_one_is_this_job() -> None:
    def row(job: int, line: int, kind: str = "scheduler") -> Event:
        return event(f"{job}  train  gpu  proj  64 TIMEOUT 0:0", "sacct.txt", line, source_kind=kind)

    rows, own = [row(990, 3), row(992, 4)], event("CANCELLED", "a.log", 9, job_id="992")
    console, table = source("slurm-990.out"), source("sacct.txt")
    for events, sources, strange in (
        (rows, (table,), 2), (rows, (table, console), 0), ([*rows, own], (table,), 0), (rows[:1], (table,), 0),
        ([row(990, 3, "console"), row(992, 4, "console")], (table,), 0), ([*rows, event("no row", "s", 9)], (), 2),
    ):  # fmt: skip
        assert len(foreign._strange_rows(case(*events, sources=sources))) == strange
    names = [
        *["python3", "pt_main", "pt-elastic", "ray::A", "vllm", "sglang::s", "torchrun", "Train.py", "main", "sshd"],
        "",
    ]
    assert [n for n in names if not foreign.is_program(event(comm=n))] == ["sshd", ""]


def test_a_program_may_be_a_service_that_a_rank_lost_right_after_its_kill() -> None:
    seen = case(*WORK, ranks=(0, 1), pids={0: 10, 1: 11})
    killed = claim(OOM, event("Killed process 5", "dmesg.txt", speaker="kernel", at=NOON + 2, fields={"pid": 5}))
    service = pattern("refused", "network", family="python")
    for seconds, left in ((3.0, {}), (11.9, {}), (12.1, {0: "context"}), (0.9, {0: "context"})):
        lost = claim(service, event("Connection refused", at=NOON + seconds), ranks=(0,))
        assert fallen(foreign.unknown_process, seen, killed, lost) == left, seconds
