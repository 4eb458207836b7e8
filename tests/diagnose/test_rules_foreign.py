"""What others tell beside the logs of one job counts as far as something binds it to the job."""

from __future__ import annotations

from typing import Any

from claims import NOON, bye, case, claim, event, exits, parts, pattern, steps
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


# ── rows of tables ───────────────────────────────────────────────────────────────────────────────────────────────────


def row(text: str, line: int = 1, **more: Any) -> Event:
    return event(text, "sacct.txt", line, source_kind="scheduler", speaker="scheduler", **more)


ROWS = [
    row("990 train gpu OUT_OF_ME+ 0:125", 1),
    row("| 991.batch | train | TIMEOUT", 2),
    row("992_4 train", 3),
]


# ── a job that all ranks finished ────────────────────────────────────────────────────────────────────────────────────


def kernels(p: Any = OOM, **more: Any) -> Claim:
    return claim(p, event("Killed process 5", "dmesg.txt", speaker=more.pop("speaker", "kernel"), **more))


def test_nothing_that_others_tell_harmed_a_job_that_all_ranks_finished() -> None:
    seen = case(bye(0), bye(1), ranks=(0, 1))
    for speaker in ("kernel", "scheduler", "cluster", "tool"):
        assert fallen(foreign.harmless, seen, kernels(speaker=speaker)) == {0: "context"}
    assert fallen(foreign.harmless, seen, kernels(speaker="launcher")) == {}


def test_it_may_have_where_a_rank_complains() -> None:
    seen = case(bye(0), bye(1), ranks=(0, 1))
    assert fallen(foreign.harmless, seen, kernels(), claim(LOST)) == {}
    of_a_rank = kernels(LOST)
    joined = claim(OOM, *of_a_rank.events, ranks=(1,))
    assert fallen(foreign.harmless, seen, joined) == {}
    weather = claim(pattern("w", None, role="symptom"))
    assert fallen(foreign.harmless, seen, kernels(), weather) == {0: "context"}


def test_a_job_that_a_scheduler_ends_after_its_goodbyes_hung_at_its_exit() -> None:
    seen = case(bye(0, at=NOON), ranks=(0,))
    for at, left in ((NOON + 60, {}), (NOON - 60, {0: "context"}), (None, {0: "context"})):
        assert fallen(foreign.harmless, seen, kernels(LIMIT, at=at, speaker="scheduler")) == left
    assert fallen(foreign.harmless, seen, kernels(at=NOON + 60)) == {0: "context"}


# ── causes that nothing binds to this job ────────────────────────────────────────────────────────────────────────────

WORK = steps(0, 1, 2, 3, at=NOON, at_sigma=0.1)
UNDATED = kernels()
WITHIN = kernels(at=NOON + 2, at_sigma=0.1, comm="python3")
OUTSIDE = kernels(at=NOON - 99999, at_sigma=0.1, comm="python3")


def loose(c: Claim, *own: Claim, **known: Any) -> bool:
    events = known.pop("events", WORK)
    return c in foreign.unbound(case(*events, ranks=(0, 1), **known), [c, *own])


def test_a_moment_of_the_jobs_life_binds_a_cause_to_it() -> None:
    assert loose(UNDATED)
    assert loose(OUTSIDE)
    assert not loose(WITHIN)


def test_a_host_without_a_rank_is_a_strangers() -> None:
    for host, strange in (("node-a.cluster", False), ("node-b", True)):
        c = claim(OOM, *WITHIN.events, hosts=(host,))
        assert loose(c, hosts={0: "node-a"}) is strange


def test_the_ranks_words_bear_out_what_is_said_of_their_gpu() -> None:
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


def test_an_oom_kill_is_borne_out_by_a_rank_that_was_killed() -> None:
    assert loose(UNDATED)
    assert not loose(UNDATED, events=[*WORK, *exits(r1=-9)])
    told = claim(pattern("end", None, role="confirms", tells=("end",)), event(signal="Killed"), ranks=(1,))
    assert loose(UNDATED, told)  # a word that accuses nobody
    assert not loose(UNDATED, claim(told.pattern, *told.events, ranks=(1,), role="symptom"))


def test_or_by_one_that_fell_silent_while_others_complain() -> None:
    both = [*WORK, *steps(1, 1, 2, at=NOON)]
    assert not loose(UNDATED, claim(LOST, ranks=(0,)), events=both)
    assert loose(UNDATED, claim(LOST, ranks=(0,)), claim(LOST, ranks=(1,)), events=both)
    assert loose(UNDATED, claim(LOST, ranks=(0,)), events=[*both, bye(1)])


# ── what becomes of them ─────────────────────────────────────────────────────────────────────────────────────────────


def roles(seen: Case, loose: Claim, *others: Claim) -> tuple[str, bool]:
    doubted = foreign.doubted(seen, [loose, *others], [loose])[0]
    return doubted.role, doubted.guess


def test_a_hosts_dated_log_is_believed_where_nobody_knows_when_the_job_was() -> None:
    undated = steps(0, 1, 2)
    assert roles(case(*undated), OUTSIDE) == ("cause", False)
    assert roles(case(*undated), UNDATED) == ("cause", True)
    vague = kernels(at=NOON, at_sigma=30.0)
    assert roles(case(*undated), vague) == ("cause", True)


def test_who_hands_in_a_schedulers_log_means_its_lines_but_not_all_rows_of_a_table() -> None:
    said = kernels(LIMIT, speaker="scheduler")
    assert roles(case(*WORK), said) == ("cause", False)
    assert roles(case(*WORK, *ROWS), claim(LIMIT, ROWS[0])) == ("cause", True)
