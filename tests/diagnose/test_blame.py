"""Who is to blame, where the cause's line does not say: another line, an end or a silence tells."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, exits, pattern
from postmortem.diagnose import blame
from postmortem.diagnose.claims import Claim

RAISED = pattern()
CRASH = pattern("crash", "native-crash")
OOM = pattern("oom", "host-oom", entity="pid")
MISMATCH = pattern("mismatch", "collective-mismatch", entity="rank")
COMPARED = pattern("compared", "collective-mismatch", entity="rank", derived=True, strength="compared")


def test_the_ranks_that_the_cause_names() -> None:
    root = claim(RAISED, ranks=(2,))
    assert blame.culprits(case(ranks=range(4)), root, [root]) == (2,)


# ── a line about the group ───────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_mismatch_the_comparison_of_the_ranks_tells_who() -> None:
    root, told = claim(MISMATCH, ranks=(0,)), claim(COMPARED, ranks=(3,))
    assert blame.culprits(case(ranks=range(4)), root, [root, told]) == (3,)


@pytest.mark.parametrize(
    "root, told",
    [
        (claim(MISMATCH, ranks=(0,), strength="ended"), claim(COMPARED, ranks=(3,))),
        (claim(pattern("m", "hang", entity="missing-ranks"), ranks=(0,)), claim(COMPARED, ranks=(3,))),
        (claim(RAISED, ranks=(0,)), claim(COMPARED, ranks=(3,))),
        (claim(MISMATCH, ranks=(0,)), claim(COMPARED)),
        (claim(MISMATCH, ranks=(0,)), claim(MISMATCH, ranks=(3,))),
        (claim(MISMATCH, ranks=(0,)), claim(pattern("c", "network", derived=True), ranks=(3,))),
    ],
)
def test_else_its_own_word_counts(root: Claim, told: Claim) -> None:
    assert blame.culprits(case(ranks=range(4)), root, [root, told]) == (0,)


def test_then_the_comparison_says_why_and_stands_in_the_proof() -> None:
    lines = [event(text) for text in ("states", "again", "a", "b", "c")]
    root = claim(MISMATCH, *lines[:2])
    told = claim(COMPARED, *lines[2:], ranks=(3,), because="rank 3 was elsewhere")
    found = blame.with_comparison(root, (3,), [root, told])
    assert (found.because, found.strength) == ("rank 3 was elsewhere", "compared")
    assert [e.text for e in found.events] == ["states", "a", "b", "again"]
    assert blame.with_comparison(root, (2,), [root, told]) is root
    assert blame.with_comparison(root, (), [root, told]) is root
    other = claim(RAISED)
    assert blame.with_comparison(other, (3,), [told]) is other


# ── another model ────────────────────────────────────────────────────────────────────────────────────────────────────


def params(*said: tuple[int, int, int, int]) -> Claim:
    events = [event(rank=r, fields={"rank": str(r), "detail": str(n), "ranks": str(x), "limit": str(m)})
              for r, n, x, m in said]  # fmt: skip
    return claim(pattern("ddp", "ddp-usage", entity="job"), *events)


def test_the_minority_has_another_model() -> None:
    root = params((0, 4, 2, 6), (1, 4, 2, 6), (2, 6, 0, 4))
    assert blame.culprits(case(ranks=range(3)), root, [root]) == (2,)


def test_of_two_ranks_neither_is_known_to_be_right() -> None:
    root = params((0, 4, 1, 6))
    assert blame.culprits(case(ranks=range(2)), root, [root]) == ()


def test_only_a_difference_of_parameters_shows_another_model() -> None:
    root = params((0, 4, 2, 6), (1, 4, 2, 6), (2, 6, 0, 4))
    other = claim(RAISED, *root.events)
    assert blame.culprits(case(ranks=range(3)), other, [other]) == ()
    unused = claim(pattern("unused", "ddp-usage"), event())
    seen = case(*exits(r0=-15, r1=1, r2=-15), ranks=range(3))
    assert blame.culprits(seen, unused, [unused]) == (1,)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def out_of_memory(root: Claim, *others: Claim, **known: Any) -> tuple[int, ...]:
    events = known.pop("events", [])
    return blame.culprits(case(*events, ranks=known.pop("ranks", range(3)), **known), root, [root, *others])


KILL = claim(OOM, event(speaker="kernel"), pids=(5,))
LOST = pattern("lost", "peer-lost", role="symptom")


def test_the_kill_is_of_the_one_rank_that_another_line_on_memory_names() -> None:
    assert out_of_memory(KILL, claim(OOM, ranks=(1,))) == (1,)
    assert out_of_memory(KILL, claim(OOM, ranks=(1,), role="confirms")) == (1,)
    assert out_of_memory(KILL, claim(OOM, ranks=(1,), role="context"), events=exits(r2=-9)) == (2,)


def test_or_of_the_one_that_the_launcher_or_a_shell_saw_killed() -> None:
    assert out_of_memory(KILL, events=exits(r0=-15, r1=-9)) == (1,)
    end = pattern("end", None, role="confirms", tells=("end",))
    assert out_of_memory(KILL, claim(end, event(signal="Killed"), ranks=(2,))) == (2,)


def test_or_of_the_one_that_neither_complained_nor_finished() -> None:
    others = [claim(LOST, event(rank=0)), claim(LOST, ranks=(2,))]
    assert out_of_memory(KILL, *others) == (1,)
    assert out_of_memory(KILL, *others[:1]) == ()  # of two nobody knows which


def test_srun_names_the_ranks_of_a_hosts_kill() -> None:
    step = pattern("step-oom", "host-oom", entity="host")
    names = pattern("task", None, role="confirms", names_ranks_of="host-oom")
    said = claim(names, ranks=(2, 1))
    assert out_of_memory(claim(step, event(speaker="scheduler")), said) == (1, 2)
    assert out_of_memory(claim(step, event(speaker="kernel")), said) != (1, 2)
    assert out_of_memory(claim(step, event(speaker="scheduler"), pids=(5,)), said) != (1, 2)


def test_of_other_things_a_host_accuses_no_rank() -> None:
    disk = claim(pattern("disk", "storage", entity="host"))
    assert out_of_memory(disk, events=exits(r1=-9)) == ()


# ── who does not say its rank ────────────────────────────────────────────────────────────────────────────────────────


def nameless(
    p: Any, *events: Any, others: tuple[Claim, ...] = (), host: str | None = None, **known: Any
) -> tuple[int, ...]:
    root = claim(p, event(host=host))
    return blame.culprits(case(*events, **({"ranks": (0, 1)} | known)), root, [root, *others])


def test_it_is_the_only_rank_without_a_voice() -> None:
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
    assert nameless(RAISED, *exits(r1=1), others=(claim(RAISED),)) == ()
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


def test_only_a_process_that_speaks_of_itself() -> None:
    assert nameless(pattern(entity="peer"), *exits(r1=1)) == ()


# ── where ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def hosts(root: Claim, ranks: tuple[int, ...], *others: Claim, **known: Any) -> list[str]:
    return blame.hosts(case(**known), root, ranks, [root, *others])


def test_where_it_happened() -> None:
    assert hosts(claim(RAISED, hosts=("b", "a")), (1,)) == ["b", "a"]
    assert hosts(claim(RAISED), (1, 2), hosts={1: "c", 2: "b"}) == ["b", "c"]
    assert hosts(claim(pattern(entity="job"), hosts=("a",)), ()) == []
    assert hosts(claim(pattern(entity="job"), hosts=("a",)), (1,)) == ["a"]


def test_another_line_on_the_same_trouble_tells_where_its_ranks_are() -> None:
    other = claim(pattern("more"), ranks=(1,), hosts=("n7",))
    assert hosts(claim(RAISED), (1, 2), other) == ["n7"]
    assert hosts(claim(RAISED), (2,), other) == []
    assert hosts(claim(RAISED), (1,), claim(CRASH, ranks=(1,), hosts=("n7",))) == []
    assert hosts(claim(RAISED), (1,), claim(RAISED, hosts=("n7",))) == []


def test_an_exception_without_a_name_is_the_one_task_that_srun_saw_fail() -> None:
    task = pattern("task", None, role="confirms", tells=("end",))
    failed = claim(task, event(fields={"exitcode": "1"}), ranks=(3,))
    stopped = claim(task, event(fields={"signal": "Terminated"}), ranks=(0, 1, 2))
    raised = claim(pattern())
    assert blame.culprits(case(), raised, [raised, failed, stopped]) == (3,)
    both = claim(task, event(fields={"exitcode": "1"}), ranks=(0,))
    assert blame.culprits(case(), raised, [raised, failed, both]) == ()


# ── an error without a rank ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_in_the_report_of_a_launcher_has_the_rank() -> None:
    root = claim(RAISED, event("ValueError: 7 of 8 files", line=3))
    copy = claim(RAISED, event("ValueError: 7 of 8", line=30), ranks=(2,))
    assert blame.culprits(case(ranks=range(4)), root, [root, copy]) == (2,)
    second = claim(RAISED, event("ValueError: 7 of 8 files", line=9))
    assert blame.culprits(case(ranks=range(4)), root, [root, second, copy]) == ()


def test_gpu_numbers_of_one_host_are_ranks_where_there_are_several() -> None:
    oom = pattern("full", "gpu-oom")
    zero, three = (claim(oom, event(f"GPU {n} is full", line=n + 1, fields={"gpu": str(n)})) for n in (0, 3))
    assert blame.culprits(case(ranks=()), zero, [zero, three]) == (0, 3)
    assert blame.culprits(case(ranks=()), zero, [zero]) == ()


def test_ranks_with_equal_exits_own_an_error_that_is_there_several_times() -> None:
    root, again = claim(RAISED, event("no data", line=3)), claim(RAISED, event("no data", line=9))
    found = case(*exits(r0=1, r1=1, r2=1), ranks=range(3))
    assert blame.culprits(found, root, [root, again]) == (0, 1, 2)
    assert blame.culprits(found, root, [root]) == ()
    assert blame.culprits(case(*exits(r0=1, r1=1, r2=2), ranks=range(3)), root, [root, again]) == ()
