"""How a process ended, by its code or by the name of a signal; and what exit codes prove about ranks for whose end nothing
else accounts."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, case, claim, event, exits, final_line, pattern
from conftest import table
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims.exits import derive
from postmortem.formats import endings
from postmortem.model import Event, Where

RAISED = pattern()
LOST = pattern("lost", "peer-lost", role="symptom")
ASKS = pattern("asks", None, role="symptom", tells=("asks",))
FORCES = pattern("forces", None, role="symptom", tells=("forces",))
STOP = pattern("stop", "scheduler", role="symptom", tells=("stop",))
END = pattern("end", None, role="confirms", tells=("end",))
RAYLET = pattern("raylet", None, role="symptom", family="ray", stands_for="peer-lost")
COUNT = pattern("count", None, role="confirms", bears_out=("host-oom",))
ALL = [RAISED, LOST, ASKS, FORCES, STOP, END, RAYLET, COUNT]


def found(claims: list[Claim], *events: Event, **known: Any) -> list[tuple[str, tuple[int, ...]]]:
    seen = case(*events, **({"ranks": range(4), "patterns": ALL} | known))
    return [(c.pattern.id, c.ranks) for c in derive(seen, claims)]


@pytest.mark.parametrize(
    "code, name",
    [(-9, "rank-exit-sigkill"), (137, "rank-exit-sigkill"), (-11, "rank-exit-crash-signal"), (-24, "rank-exit-cpu-limit"),
     (3, "rank-exit-without-reason")],
)  # fmt: skip
def test_an_end_that_nothing_accounts_for_accuses_its_rank(code: int, name: str) -> None:
    assert found([], *exits(r0=-15, r1=code)) == [(name, (1,))]


def test_a_complaint_accounts_for_an_end_by_itself_but_not_for_a_kill() -> None:
    assert found([claim(LOST, ranks=(1,))], *exits(r1=1)) == []
    assert found([claim(LOST, event(rank=1))], *exits(r1=-6)) == []
    assert found([claim(LOST, ranks=(1,))], *exits(r1=-9)) == [("rank-exit-sigkill", (1,))]
    assert found([claim(LOST, ranks=(1,))], *exits(r1=-24)) == [("rank-exit-cpu-limit", (1,))]


# ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_agents_own_kill_is_no_ranks() -> None:
    forced = event("kill", "agent.err", 5, pattern="forces", fields={"pid": 101})
    assert found([], *exits(r1=-9), forced) == []
    assert found([], *exits(r2=-9), forced) == [("rank-exit-sigkill", (2,))]
    for seconds, ids in ((24.0, ["rank-exit-sigkill"]), (26.0, [])):  # it kills what does not obey within 30 s
        ask = event("ask", "agent.err", 5, pattern="asks", at=NOON, fields={"pid": 101})
        late = [e._replace(at=NOON + seconds) for e in exits(r1=-9)]
        assert [name for name, _ in found([], ask, *late)] == ids, seconds


def test_a_memory_cgroup_that_counts_a_kill_states_whose_it_was() -> None:
    count = event(kind="counter", file="memory.events", host="a")
    seen = case(*exits(r1=-9), count, ranks=(0, 1), hosts={1: "a"}, patterns=ALL)
    (c,) = derive(seen, [])
    assert (c.pattern.id, c.event) == ("rank-killed-in-full-cgroup", count)
    assert found([claim(COUNT)], *exits(r1=-9)) == [("rank-killed-in-full-cgroup", (1,))]
    assert found([], *exits(r1=-9), count, hosts={1: "b"}) == [("rank-exit-sigkill", (1,))]
    assert found([], *exits(r1=-9, r2=-9), count)[0] == ("rank-exit-sigkill", (1,))
    assert found([], *exits(r1=-11), count) == [("rank-exit-crash-signal", (1,))]


# ── stops ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def asked(*pids: int, file: str = "agent.err") -> list[Event]:
    return [event("ask", file, n, pattern="asks", fields={"pid": pid}) for n, pid in enumerate(pids, 1)]


def test_the_only_rank_that_the_launcher_did_not_stop_was_stopped_from_outside() -> None:
    ends = exits(r0=-15, r1=-15, r2=-15)
    assert found([], *ends, *asked(100, 102)) == [("rank-exit-signalled", (1,))]
    assert found([], *ends, *asked(100, 101, 102)) == []
    assert found([], *ends, *asked(100)) == []  # of two nobody knows
    assert found([], *ends, *asked(100, 102, file="other.err")) == []
    assert found([], *exits(r0=-15, r1=143, r2=-15), *asked(100, 102)) == []


# ── ends of which others tell ────────────────────────────────────────────────────────────────────────────────────────


def end(line: int = 5, file: str = "out", ranks: tuple[int, ...] = (), **fields: Any) -> Claim:
    return claim(END, event("ended", file, line, fields=fields), ranks=ranks)


@pytest.mark.parametrize(
    "fields, name",
    [({"signal": "Killed"}, "rank-exit-sigkill"), ({"exitcode": -11}, "rank-exit-crash-signal"),
     ({"exitcode": 1}, "rank-exit-without-reason"), ({"signal": "Terminated"}, "rank-exit-signalled")],
)  # fmt: skip
def test_what_a_shell_or_spawn_shows_of_an_end(fields: dict[str, str], name: str) -> None:
    assert found([end(**fields)]) == [(name, ())]


def test_it_shows_nothing_of_a_clean_end_nor_where_something_accounts_for_it() -> None:
    assert found([end(exitcode=0)]) == []
    assert found([end()]) == []
    assert found([end(exitcode=1), claim(RAISED)]) == []
    assert found([end(exitcode=1)], *(final_line(r) for r in range(4))) == []
    assert found([end(exitcode=1), claim(LOST)]) == []
    assert found([end(exitcode=1), claim(pattern("n", None, role="symptom"))]) == [("rank-exit-without-reason", ())]
    assert found([end(exitcode=1), claim(LOST, event(speaker="kernel"))]) == [("rank-exit-without-reason", ())]
    assert found([end(exitcode=1), claim(LOST, event(wrapper=True))]) == [("rank-exit-without-reason", ())]


def test_one_rank_ended_without_a_word_while_others_complain() -> None:
    complaint = claim(LOST, event(rank=0))
    assert found([end(exitcode=1, ranks=(2,)), complaint]) == [("rank-exit-without-reason", (2,))]
    assert found([end(exitcode=1, ranks=(0,)), complaint]) == []
    assert found([end(exitcode=1, ranks=(2, 3)), complaint]) == []
    assert found([end(signal="Terminated", ranks=(2,)), complaint]) == []
    assert found([end(exitcode=1, ranks=(2,)), claim(LOST)]) == []  # who complains is not known


def test_a_stop_below_it_states_nothing_against_a_task_that_failed_by_itself() -> None:
    def stop(line: int, file: str = "out", speaker: Any = "scheduler") -> Claim:
        return claim(STOP, event("CANCELLED", file, line, speaker=speaker))

    expected = [("rank-exit-without-reason", ())]
    assert found([end(exitcode=1), stop(6)]) == expected
    assert found([end(exitcode=1), stop(4)]) == []
    assert found([end(exitcode=1), stop(6, "other")]) == []
    assert found([end(exitcode=1), stop(6, speaker="launcher")]) == []
    assert found([end(exitcode=-6), stop(6)]) == [("rank-exit-crash-signal", ())]
    assert found([end(exitcode=-6), stop(4)]) == []


def test_a_kill_is_accounted_for_by_who_forces_or_stops_before_it() -> None:
    def word(p: str, line: int | None, file: str = "out") -> Event:
        return event(p, file, line, pattern=p)

    killed = end(signal="Killed")
    for p in ("forces", "stop"):
        assert found([killed], word(p, 4)) == []
        assert found([killed], word(p, 6)) == [("rank-exit-sigkill", ())]
        assert found([killed], word(p, 6, "other")) == []  # nothing tells which came first
    assert found([killed, claim(LOST)]) == [("rank-exit-sigkill", ())]


def test_a_stop_that_a_launcher_asked_for_before_is_its_own() -> None:
    for line, ids in ((4, []), (6, ["rank-exit-signalled"])):
        ask = event("ask", "out", line, pattern="asks", fields={"pid": 100})
        assert [name for name, _ in found([end(signal="Terminated")], ask)] == ids, line


def test_a_lost_peer_follows_from_a_crash_but_an_abort_may_follow_from_it() -> None:
    lost = claim(LOST, event("Connection closed by peer", "out", 4))
    assert found([end(exitcode=-11), lost]) == [("rank-exit-crash-signal", ())]
    assert found([end(exitcode=-6), lost]) == []


def test_one_signal_to_all_ranks_accuses_none_of_them() -> None:
    for ranks, named in (((0, 1, 2, 3), ()), ((0, 1), (0,))):
        ends = [end(n, signal="Terminated", ranks=(n,)) for n in ranks]
        assert found(ends) == [("rank-exit-signalled", named)], ranks
    assert found([end(signal="Terminated", ranks=(0,))], ranks=(0,)) == [("rank-exit-signalled", (0,))]


def test_an_end_above_work_or_below_the_finish_is_that_of_a_helper() -> None:
    work = event("step 5", "out", 9, "worked", rank=0, by="count")
    whole = pattern("end", None, role="confirms", entity="job", tells=("end",))
    assert found([claim(whole, event("ended", "out", 5, exitcode=1))], work) == []
    assert found([end(exitcode=1)], work) == [("rank-exit-without-reason", ())]  # of one process of several
    bye = final_line(None, 4, file="out", fields={"last_word": True})
    assert found([end(exitcode=1)], bye) == []
    assert found([end(exitcode=1, ranks=(2,))], bye) == [("rank-exit-without-reason", (2,))]


def test_a_command_that_ended_had_started_the_ranks_that_write_beside_it() -> None:
    byes = [final_line(r, file="other") for r in (0, 1)]
    here = [event("x", "out", n, "line", rank=n) for n in (2, 3)]
    assert found([end(signal="Killed")], *byes, *here) == [("rank-exit-sigkill", (2, 3))]
    assert found([end(signal="Killed")], *byes[:1], *here) == [("rank-exit-sigkill", ())]


def test_spawn_numbers_processes_where_no_ranks_are_known() -> None:
    """torch.multiprocessing: `process 1 terminated with signal SIGKILL`"""
    assert found([end(signal="Killed", local_rank=1)], ranks=()) == [("rank-exit-sigkill", (1,))]
    assert found([end(signal="Killed", local_rank=1)]) == [("rank-exit-sigkill", ())]


# ── the error above an end ───────────────────────────────────────────────────────────────────────────────────────────


def above(*errors: Event, line: int = 300) -> tuple[str, int | None]:
    report = exits(r1=1)[0]._replace(where=Where("agent.err", line))
    (c,) = derive(case(*errors, report, ranks=range(4), patterns=ALL), [])
    return c.pattern.id, c.event.where.line


def test_the_last_error_above_a_report_is_its_reason() -> None:
    def error(line: int, kind: str = "notice", text: str = "E: bad shard", **more: Any) -> Event:
        return event(text, "agent.err", line, kind, **({"reports_error": True} | more))

    none = ("rank-exit-without-reason", 300)
    assert above(error(100), error(110)) == ("rank-exit-after-error", 110)
    assert above(error(99)) == none  # 201 lines
    assert above(error(296, reports_error=False)) == ("rank-exit-after-error", 296)  # so near any complaint counts
    assert above(error(295, reports_error=False)) == none
    assert above(error(290, rank=0)) == none
    assert above(error(290), event("step 9", "agent.err", 295, "worked")) == none
    assert above(error(290, text="E: Connection closed by peer")) == none  # it follows from the end of another rank


# ── of several ends ──────────────────────────────────────────────────────────────────────────────────────────────────


def roles(*events: Event) -> list[tuple[str, str]]:
    return [(c.pattern.id, c.role) for c in derive(case(*events, ranks=range(4), patterns=ALL), [])]


def test_an_end_follows_from_another_ranks_that_surely_came_before_it() -> None:
    first, second = exits(r1=-9, r2=3)
    dated = [first._replace(at=NOON, host="a"), second._replace(at=NOON + 9, host="a")]
    assert roles(*dated) == [("rank-exit-sigkill", "cause"), ("rank-exit-without-reason", "symptom")]


def test_who_was_in_a_collective_when_it_left_waited_for_somebody_else() -> None:
    def stack(**fields: str) -> Event:
        return event("Thread", "s.txt", 4, "stack", rank=1, fields=fields)

    assert roles(*exits(r1=3), stack(collective="barrier")) == [("rank-exit-without-reason", "symptom")]
    assert roles(*exits(r1=3), stack()) == [("rank-exit-without-reason", "cause")]
    assert roles(*exits(r1=-11), stack(collective="barrier")) == [("rank-exit-crash-signal", "cause")]


@pytest.mark.parametrize("code, kind, expected", table("endings")["codes"])
def test_a_code_is_the_end_of_a_process(code: int, kind: str, expected: str) -> None:
    end = endings.of(code)
    assert (end.kind, str(end)) == (kind, expected)


@pytest.mark.parametrize("code", [128, 131, 138, 140, 142, 200, 255])
def test_codes_that_programs_choose_themselves_are_no_signals(code: int) -> None:
    assert endings.of(code).kind == "own"
    assert endings.of(code).short == str(code)


def test_a_signal_without_a_name_of_its_own_is_a_stop() -> None:
    assert endings.of(-10).kind == "stop"
    assert endings.of(-40).kind == "stop"
    assert endings.of(-40).signal == ""


@pytest.mark.parametrize("named, short", table("endings")["signals"])
def test_a_line_may_name_the_signal_instead(named: str, short: str) -> None:
    line = event("task 3: …", signal=named)
    end = endings.reported(line)
    assert end is not None
    assert (end.short, end.reported_by) == (short, line)


def test_the_signal_that_a_line_names_goes_before_its_code() -> None:
    end = endings.reported(event(signal="SIGKILL", exitcode=1))
    assert end is not None
    assert end.kind == "kill"


@pytest.mark.parametrize("fields", [{}, {"signal": "Hurrah"}, {"signal": "2"}])
def test_text_without_an_end_is_none(fields: dict[str, str]) -> None:
    assert endings.reported(event(**fields)) is None


def test_a_code_in_digits_is_a_code() -> None:
    end = endings.reported(event(exitcode=-9))
    assert end is not None
    assert (end.kind, end.code) == ("kill", -9)
