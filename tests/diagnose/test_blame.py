"""Who is to blame, where the cause's line does not say: another line, an end or a silence tells."""

from __future__ import annotations

from typing import Any

from claims import case, claim, event, exits, pattern
from postmortem.diagnose import blame
from postmortem.diagnose.claims import Claim

RAISED = pattern()
CRASH = pattern("crash", "native-crash")
OOM = pattern("oom", "host-oom", entity="pid")
MISMATCH = pattern("mismatch", "collective-mismatch", entity="rank")
COMPARED = pattern("compared", "collective-mismatch", entity="rank", derived=True, strength="compared")


# ── a line about the group ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_comparison_of_the_ranks_decides_a_mismatch() -> None:
    root, comparison = claim(MISMATCH, ranks=(0,)), claim(COMPARED, ranks=(3,))
    assert blame.culprits(case(ranks=range(4)), root, [root, comparison]) == (3,)


# ── another model ────────────────────────────────────────────────────────────────────────────────────────────────────


def params(*rows: tuple[int, int, int, int]) -> Claim:
    events = [event(rank=r, fields={"rank": r, "detail": str(n), "ranks": str(x), "limit": str(m)})
              for r, n, x, m in rows]  # fmt: skip
    return claim(pattern("ddp", "ddp-usage", entity="job"), *events)


def test_the_minority_has_another_model() -> None:
    root = params((0, 4, 2, 6), (1, 4, 2, 6), (2, 6, 0, 4))
    assert blame.culprits(case(ranks=range(3)), root, [root]) == (2,)


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


def test_ranks_with_equal_exits_own_an_error_that_is_there_several_times() -> None:
    root, again = claim(RAISED, event("no data", line=3)), claim(RAISED, event("no data", line=9))
    found = case(*exits(r0=1, r1=1, r2=1), ranks=range(3))
    assert blame.culprits(found, root, [root, again]) == (0, 1, 2)
    assert blame.culprits(found, root, [root]) == ()
    assert blame.culprits(case(*exits(r0=1, r1=1, r2=2), ranks=range(3)), root, [root, again]) == ()
