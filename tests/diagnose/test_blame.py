"""Who is to blame, where the cause's line does not say: another line, an end or a silence tells."""

from __future__ import annotations

from typing import Any

from claims import case, claim, event, exits, explains, final_line, pattern
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict import blame

RAISED = pattern()
CRASH = pattern("crash", "native-crash")
OOM = pattern("oom", "host-oom", entity="pid")
MISMATCH = pattern("mismatch", "collective-mismatch", entity="rank")
LATE = pattern("late", "hang", entity="rank")


# ── a line about the group ───────────────────────────────────────────────────────────────────────────────────────────


def compared(category: str | None, **more: Any) -> Claim:
    return claim(pattern("compared", category, entity="rank", derived=True, strength="compared"), ranks=(3,), **more)


def test_the_comparison_of_the_ranks_decides_a_line_about_the_group() -> None:
    """Where the line itself names ranks that differ, only a comparison of collectives is more exact."""
    for root, other, ranks in (
        (claim(MISMATCH, ranks=(0,)), compared("collective-mismatch"), (3,)),
        (claim(MISMATCH, ranks=(0,)), compared("hang"), (0,)),
        (claim(MISMATCH), compared("hang"), (3,)),
        (claim(LATE, ranks=(0,)), compared("hang"), (3,)),
        (claim(LATE, ranks=(0,)), compared(None), (3,)),
        (claim(LATE, ranks=(0,)), compared("storage"), (0,)),
        (claim(LATE, ranks=(0,), strength="suffered"), compared("hang"), (0,)),
        (claim(pattern("absent", "hang", entity="missing-ranks"), ranks=(0,)), compared("hang"), (0,)),
        (claim(RAISED, ranks=(0,)), compared("hang"), (0,)),
    ):
        assert blame.culprits(case(ranks=range(4)), root, [root, other]) == ranks


def test_a_cause_about_the_group_has_the_proof_of_the_comparison_of_its_ranks() -> None:
    proof = [event("row", line=n) for n in (7, 8, 9)]
    end = claim(pattern("end", None, derived=True), ranks=(3,), because="it exited")
    found = claim(compared("hang").pattern, *proof, ranks=(3,), because="it came late")
    own = event(line=1), event(line=2)
    for cause, because in (
        (claim(MISMATCH, *own, ranks=(3,)), "it came late"),
        (claim(LATE, *own), "it came late"),  # the comparison identifies the rank
        (claim(LATE, *own, ranks=(2,)), "it came late"),  # the line names who complains
        (claim(MISMATCH, *own, ranks=(2,)), ""),
        (claim(MISMATCH, *own, strength="suffered"), ""),
        (claim(pattern("why", "hang", says_why=True), *own), ""),
        (claim(RAISED, *own, ranks=(3,)), ""),
    ):
        (identified, *_) = blame.identified(case(ranks=range(4)), [cause, end, found])
        assert identified.because == because and (identified.strength == "compared") is bool(because)
        assert [e.where.line for e in identified.events] == ([1, 7, 8, 2] if because else [1, 2])
        assert identified.ranks == ((3,) if because else cause.ranks)


def test_the_first_nan_names_the_rank_of_its_loss() -> None:
    nan = pattern("nan", "numerics", survived_by=("finite-loss",))
    rows = [claim(nan, event(step=str(step)), ranks=(rank,)) for rank, step in enumerate((9, 7, 7, 8))]
    root = claim(pattern("raised-nan", "numerics"), ranks=(0, 1, 2, 3))
    earlier = claim(pattern("lost", "peer-lost"), event(step="1"), ranks=(0,))
    assert blame.culprits(case(ranks=range(4)), root, [root, earlier, *rows]) == (1, 2)
    assert blame.culprits(case(ranks=range(4)), root, [root]) == (0, 1, 2, 3)
    alone = claim(pattern("raised-nan", "numerics"), ranks=(3,))
    assert blame.culprits(case(ranks=range(4)), alone, [alone, *rows]) == (3,)


# ── another model ────────────────────────────────────────────────────────────────────────────────────────────────────


def params(*rows: tuple[int, int, int, int]) -> Claim:
    events = [event(rank=r, fields={"rank": r, "detail": str(n), "ranks": str(x), "limit": str(m)})
              for r, n, x, m in rows]  # fmt: skip
    return claim(pattern("ddp", "ddp-usage", entity="job"), *events)


def test_the_minority_has_another_model() -> None:
    root = params((0, 4, 2, 6), (1, 4, 2, 6), (2, 6, 0, 4))
    assert blame.culprits(case(ranks=range(3)), root, [root]) == (2,)


def test_a_number_without_a_rank_is_no_vote() -> None:
    partial = [event(fields={"rank": 3, "detail": "9"}), event(fields={"ranks": "3"}), event(fields={"limit": "9"})]
    root = params((0, 4, 2, 6), (1, 4, 2, 6))
    assert blame.culprits(case(ranks=range(4)), claim(root.pattern, *root.events, *partial[1:]), []) == (2,)
    assert blame.culprits(case(ranks=range(4)), claim(root.pattern, *root.events, partial[0]), []) == ()  # no majority


def test_a_limit_of_the_job_is_of_the_ranks_that_a_comparison_names() -> None:
    job = pattern("descriptors", "resource-limit", entity="job")
    derived, own = (pattern(f"full{n}", "resource-limit", derived=derived) for n, derived in enumerate((True, False)))
    for p, ranks in ((derived, (2,)), (own, ())):
        assert blame.culprits(case(ranks=range(4)), claim(job), [claim(job), claim(p, ranks=(2,))]) == ranks


def test_of_two_ranks_neither_is_known_to_be_right() -> None:
    root = params((0, 4, 1, 6))
    assert blame.culprits(case(ranks=range(2)), root, [root]) == ()


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def out_of_memory(root: Claim, *others: Claim, **known: Any) -> tuple[int, ...]:
    events = known.pop("events", [])
    return blame.culprits(case(*events, ranks=known.pop("ranks", range(3)), **known), root, [root, *others])


KILL = claim(OOM, event(speaker="kernel"), pids=(5,))


def test_the_kill_is_of_the_one_rank_that_another_line_on_memory_names() -> None:
    assert out_of_memory(KILL, claim(OOM, ranks=(1,))) == (1,)
    assert out_of_memory(KILL, claim(OOM, ranks=(1,), role="confirms")) == (1,)
    assert out_of_memory(KILL, claim(OOM, ranks=(1,), role="context"), events=exits(r2=-9)) == (2,)


def test_or_of_the_one_that_is_silent_or_that_the_scheduler_names() -> None:
    raised = [claim(RAISED, ranks=(r,), role="symptom") for r in (0, 1)]
    assert out_of_memory(KILL, *raised) == (2,)
    assert out_of_memory(KILL, raised[0], events=[final_line(1)]) == (2,)
    assert out_of_memory(KILL, raised[0]) == ()
    report = claim(pattern("task", "host-oom", entity="rank"), ranks=(0, 1), role="symptom")
    host = pattern("step", "host-oom", entity="host")
    assert out_of_memory(claim(host, event(speaker="scheduler")), report) == (0, 1)
    assert out_of_memory(claim(host, event(speaker="kernel")), report) == (2,)
    assert out_of_memory(claim(host, event(speaker="scheduler"), pids=(5,)), report) == (2,)


def test_or_of_the_one_that_the_launcher_or_a_shell_saw_killed() -> None:
    assert out_of_memory(KILL, events=exits(r0=-15, r1=-9)) == (1,)
    end = pattern("end", None, role="confirms", tells=("end",))
    assert out_of_memory(KILL, claim(end, event(signal="Killed"), ranks=(2,))) == (2,)


# ── who does not say its rank ────────────────────────────────────────────────────────────────────────────────────────


def nameless(
    p: Any, *events: Any, others: tuple[Claim, ...] = (), host: str | None = None, **known: Any
) -> tuple[int, ...]:
    root = claim(p, event(host=host))
    return blame.culprits(case(*events, **({"ranks": (0, 1)} | known)), root, [root, *others])


def test_it_is_the_only_rank_without_lines() -> None:
    voice = event("line", "rank0.log", kind="line", rank=0)
    assert nameless(RAISED, voice, world=2) == (1,)
    assert nameless(RAISED, voice) == ()  # how many there are is not known
    assert nameless(RAISED, world=2) == ()
    assert nameless(RAISED, voice, world=3, ranks=(0, 1, 2)) == ()


def test_or_the_only_one_that_a_launcher_saw_end_by_itself() -> None:
    assert nameless(RAISED, *exits(r0=-15, r1=1)) == (1,)
    assert nameless(RAISED, *exits(r0=1, r1=1)) == ()
    assert nameless(RAISED, *exits(r0=-15, r1=-9)) == ()
    assert nameless(RAISED, *exits(r0=0, r1=137)) == (1,)
    assert nameless(RAISED, *exits(r1=1), others=(claim(RAISED, event(line=9)),)) == ()
    assert nameless(RAISED, *exits(r1=1), others=(claim(RAISED, ranks=(0,)), claim(RAISED, role="symptom"))) == (1,)


def test_of_a_crash_the_only_one_that_a_signal_ended() -> None:
    assert nameless(CRASH, *exits(r0=1, r1=-11)) == (1,)
    assert nameless(CRASH, *exits(r1=1)) == ()


def test_it_has_to_live_on_that_host() -> None:
    assert nameless(RAISED, *exits(r1=1), host="node-a", hosts={1: "node-b"}) == ()
    assert nameless(RAISED, *exits(r1=1), host="node-b", hosts={1: "node-b.cluster"}) == (1,)
    agent = [e._replace(host="node-b") for e in exits(r1=1)]
    assert nameless(RAISED, *agent, host="node-a") == ()
    assert nameless(RAISED, *exits(r1=1), host="node-a") == (1,)


# ── an error without a rank ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_in_the_report_of_a_launcher_has_the_rank() -> None:
    root = claim(RAISED, event("ValueError: 7 of 8 files", line=3))
    copy = claim(RAISED, event("ValueError: 7 of 8", line=30), ranks=(2,))
    assert blame.culprits(case(ranks=range(4)), root, [root, copy]) == (2,)
    second = claim(RAISED, event("ValueError: 7 of 8 files", line=9))
    assert blame.culprits(case(ranks=range(4)), root, [root, second, copy]) == ()


def test_gpu_numbers_of_one_host_are_ranks_where_there_are_several() -> None:
    oom = pattern("full", "gpu-oom")
    zero, three = (claim(oom, event(f"GPU {n} is full", line=n + 1, fields={"gpu": n})) for n in (0, 3))
    assert blame.culprits(case(ranks=()), zero, [zero, three]) == (0, 3)
    assert blame.culprits(case(ranks=()), zero, [zero]) == ()


def test_gpu_numbers_are_ranks_below_the_size_of_a_job_on_one_host() -> None:
    oom = pattern("full", "gpu-oom")
    zero, nine = (claim(oom, event(f"GPU {n} is full", line=n + 1, fields={"gpu": n})) for n in (0, 9))
    assert blame.culprits(case(world=1, limit=1), zero, [zero]) == (0,)
    assert blame.culprits(case(limit=8), zero, [zero, nine]) == ()
    assert blame.culprits(case(limit=16), zero, [zero, nine]) == (0, 9)
    two = claim(oom, *nine.events, hosts=("node-b",))
    assert blame.culprits(case(limit=16, hosts={0: "node-a"}), zero, [zero, two]) == ()


def test_a_failure_of_several_ranks_is_not_that_of_those_that_failed_otherwise() -> None:
    """Two ranks remain for one error; another failure may be that of one of them."""
    root, again = claim(RAISED, event("no data", line=3)), claim(RAISED, event("no data", line=9))
    found = case(*exits(r0=1, r1=1, r2=1), ranks=range(3))
    for p, ranks, culprits in ((pattern("full", "storage"), (), ()), (RAISED, (), (0, 1, 2)), (CRASH, (2,), ())):
        other = claim(p, event("other", "x.log"), ranks=ranks, role="symptom")
        assert blame.culprits(found, root, [root, again, other]) == culprits, p.id


def test_a_rank_that_loses_its_child_and_one_that_vanished() -> None:
    """RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"""
    worker = pattern("worker", "native-crash", tells=("child",))
    for strength, role in (("suffered", "symptom"), ("stated", "cause")):
        root = claim(worker, event("it exited", rank=2 if strength == "suffered" else None), strength=strength)
        report = claim(worker, event("its worker died", "rank2.log", 7), ranks=(2,), role=role)
        assert blame.culprits(case(ranks=range(4)), root, [root, report]) == (2,), strength
    ended = claim(pattern("ended", "native-crash", derived=True), strength="ended")
    gone = claim(pattern("gone", "peer-lost", role="symptom"), ranks=(1,), strength="silent")
    assert blame.culprits(case(ranks=range(4)), ended, [ended, gone]) == (1,)


def test_the_only_rank_that_was_interrupted_where_others_lost_it() -> None:
    interrupt = pattern("interrupt", "external-signal", entity="job")
    lost = claim(pattern("lost", "peer-lost", role="symptom"), event(rank=0), ranks=(0,))
    stop = pattern("stop", "scheduler", role="symptom", tells=("stop",))
    root = claim(interrupt, event(rank=1, excepthook=True))
    assert blame.culprits(case(ranks=(0, 1)), root, [root, lost]) == (1,)
    assert blame.culprits(case(ranks=(0, 1)), root, [root]) == ()  # Ctrl-C at a terminal interrupts all of them
    stopped = case(event(pattern="stop"), ranks=(0, 1), patterns=[stop])
    assert blame.culprits(stopped, root, [root, lost]) == ()
    caught = claim(interrupt, event(rank=1))
    assert blame.culprits(case(ranks=(0, 1)), caught, [caught, lost]) == ()


def test_ranks_with_equal_exits_own_an_error_that_is_there_several_times() -> None:
    root, again = claim(RAISED, event("no data", line=3)), claim(RAISED, event("no data", line=9))
    found = case(*exits(r0=1, r1=1, r2=1), ranks=range(3))
    assert blame.culprits(found, root, [root, again]) == (0, 1, 2)
    assert blame.culprits(found, root, [root]) == ()
    assert blame.culprits(case(*exits(r0=1, r1=1, r2=2), ranks=range(3)), root, [root, again]) == ()


def test_a_node_whose_launcher_lists_as_many_ranks_as_errors_has_them_all() -> None:
    ends = [e._replace(where=e.where._replace(source="a/agent.err")) for e in exits(r0=1, r1=1)]
    ends += [e._replace(where=e.where._replace(source="b/agent.err")) for e in exits(r2=-15, r3=-15)]
    errors = [event("no module", "a/agent.err", n) for n in (3, 5, 7)]
    for count, ranks in ((2, (0, 1)), (1, ()), (3, (0, 1))):
        root = claim(pattern("absent", "environment"), *errors[:count])
        assert blame.culprits(case(*ends, ranks=range(4)), root, [root]) == ranks


def test_the_next_line_or_the_report_of_a_launcher_names_one_rank() -> None:
    fatal = pattern("fatal", "native-crash", explains=(explains("dump", "same-rank"), explains("other")))
    report = pattern("mpi", "native-crash", entity="rank", stands_for=("native-crash",))
    for others, ranks in (
        ((claim(pattern("dump", None), ranks=(2,)),), (2,)),
        ((claim(pattern("dump", None, role="context"), ranks=(2,)),), ()),
        ((claim(pattern("dump", None), ranks=(1, 2)),), ()),
        ((claim(pattern("other", None), ranks=(2,)),), ()),
        ((claim(report, ranks=(3,)),), (3,)),
        ((claim(report, ranks=(3,)), claim(report, ranks=(1,))), ()),
        ((claim(report, ranks=(3,), role="context"),), ()),
    ):
        root = claim(fatal)
        assert blame.culprits(case(ranks=range(4)), root, [root, *others]) == ranks


def test_the_only_rank_without_a_pid_is_that_of_an_unknown_pid() -> None:
    root = claim(RAISED, event("actor died", pid=99))
    for pids, ranks in (
        ({0: 10, 2: 12}, (1,)),
        ({0: 10, 3: 13}, ()),
        ({2: 12}, ()),
        ({0: 10, 2: 99}, ()),
        ({0: 10, 1: 11}, ()),
    ):
        assert blame.culprits(case(pids=pids), root, [root]) == ranks, pids


def test_the_hosts_are_those_of_the_line_or_of_the_ranks_or_of_another_line() -> None:
    known, job = case(ranks=(0, 1), hosts={0: "node-a"}), pattern("limit", "scheduler", entity="job")
    other = claim(RAISED, ranks=(1,), hosts=("node-c",))
    for root, ranks, found in (
        (claim(RAISED, hosts=("node-z",)), (0,), ["node-z"]),
        (claim(RAISED), (0,), ["node-a"]),
        (claim(RAISED), (1,), ["node-c"]),
        (claim(CRASH), (1,), []),
        (claim(job, hosts=("node-z",)), (), []),
        (claim(job, hosts=("node-z",)), (0,), ["node-z"]),
    ):
        assert blame.hosts(known, root, ranks, [root, other]) == found
