"""How defeats are applied: parts only fall, to a fixed point, and the order of rules inside a stratum changes nothing;
and the one place where a claim's part rises: nothing nearer to the cause is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from claims import NOON, case, claim, event, exits, final_line, pattern
from postmortem.align.place import ABOVE
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import HEIGHT, Claim
from postmortem.diagnose.rules import AFTER, BEFORE
from postmortem.diagnose.rules.promote import promoted
from postmortem.diagnose.rules.view import Defeat, Rule, View, settle
from postmortem.model import Role

ROLES: tuple[Role, ...] = ("cause", "symptom", "confirms", "context")
P = pattern("p")


def claims(roles: Sequence[Role]) -> list[Claim]:
    return [claim(P, event(line=n), role=role) for n, role in enumerate(roles)]


def rule(name: str, body: Callable[[View], Iterator[Defeat]]) -> Rule:
    body.__name__ = name
    return body


def always(at: int, to: Role, name: str = "always", because: str = "so it is") -> Rule:
    return rule(name, lambda view: iter([Defeat(at, to, because)]))


def if_reduced(watched: int, at: int, to: Role, name: str) -> Rule:
    """Builds on what another rule took away."""

    def body(view: View) -> Iterator[Defeat]:
        if view.claims[watched].role != "cause":
            yield Defeat(at, to, f"{watched} fell")

    return rule(name, body)


def roles(found: Sequence[Claim]) -> list[str]:
    return [c.role for c in found]


def test_the_claim_states_why_it_fell_and_so_does_the_trace() -> None:
    seen = case()
    (reduced,) = settle(seen, claims(["cause"]), [[always(0, "context")]])
    assert (reduced.role, reduced.because) == ("context", "so it is")
    assert list(seen.notes) == ["p at rank0.log:0 counts as context: so it is"]


def test_of_two_defeats_to_one_role_the_first_by_name_is_the_reason() -> None:
    rules = [always(0, "symptom", "b", "the second"), always(0, "symptom", "a", "the first")]
    seen = case()
    (reduced,) = settle(seen, claims(["cause"]), [rules])
    assert (reduced.because, reduced.fell_by, len(seen.notes)) == ("the first", "a", 1)


def test_of_several_defeats_the_one_that_takes_most_counts() -> None:
    for rules in ([always(0, "symptom", "a"), always(0, "context", "b", "worst")],
                  [always(0, "context", "a", "worst"), always(0, "symptom", "b")]):  # fmt: skip
        (reduced,) = settle(case(), claims(["cause"]), [rules])
        assert (reduced.role, reduced.because) == ("context", "worst")


@st.composite
def strata(draw: st.DrawFn) -> tuple[list[Role], list[Rule]]:
    given = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=5))
    at = st.integers(0, len(given) - 1)
    to = st.sampled_from(ROLES)
    rules: list[Rule] = []
    for n in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            rules.append(always(draw(at), draw(to), f"rule{n}", f"because {n}"))
        else:
            rules.append(if_reduced(draw(at), draw(at), draw(to), f"rule{n}"))
    return given, rules


@given(strata(), st.randoms())
@settings(max_examples=40)
def test_the_order_of_rules_in_a_stratum_changes_nothing_and_parts_only_fall(
    made: tuple[list[Role], list[Rule]], random: object
) -> None:
    given, rules = made
    shuffled = list(rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (settle(case(), claims(given), [order]) for order in (rules, shuffled))
    assert first == second
    assert all(HEIGHT[c.role] <= HEIGHT[role] for c, role in zip(first, given, strict=True))
    assert settle(case(), first, [rules]) == first


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [r.__name__ for stratum in (*BEFORE, *AFTER) for r in stratum]
    assert len(names) == len(set(names))


CANCELLED = pattern("cancelled", "scheduler", role="symptom", entity="job", cause_if=("first-trouble",))
LOST = pattern("lost", "peer-lost", role="symptom")


def risen(seen: Case, *claims: Claim) -> list[str]:
    return [c.role for c in promoted(seen, claims)]


# ── the job ran well until somebody ended it ─────────────────────────────────────────────────────────────────────────


def cancelled(line: int = 5, at: float | None = None) -> Claim:
    return claim(CANCELLED, event("CANCELLED", "slurm.out", line, speaker="scheduler", at=at))


def complaint(line: int, file: str = "slurm.out", at: float | None = None, p: Any = LOST, **more: Any) -> Claim:
    sigma = more.pop("at_sigma", 0.0)
    return claim(p, event("lost", file, line, at=at, at_sigma=sigma, **more))


def test_a_cancellation_is_the_cause_where_nothing_failed_before_it() -> None:
    assert risen(case(), cancelled()) == ["cause"]
    assert risen(case(), cancelled(), complaint(6)) == ["cause", "symptom"]
    assert risen(case(), cancelled(), complaint(4)) == ["symptom", "symptom"]


def test_times_of_whole_seconds_and_inferred_ones_do_not_show_what_came_first() -> None:
    for before, sigma, role in ((0.9, 0.0, "cause"), (1.1, 0.0, "symptom"), (1.9, 1.0, "cause"), (2.1, 1.0, "symptom")):
        lost = complaint(4, "b.log", NOON - before, at_sigma=sigma)
        assert risen(case(), cancelled(at=NOON), lost)[0] == role, (before, sigma)
    # of lines below the last stamp only the earliest time is known
    for after, role in ((10.0, "cause"), (-0.9 - ABOVE, "cause"), (-1.1 - ABOVE, "symptom")):
        lost = complaint(4, "b.log", NOON + after, at_sigma=ABOVE)
        assert risen(case(), cancelled(at=NOON), lost)[0] == role


def test_an_end_is_trouble_unless_it_is_a_stop_and_so_is_an_abort() -> None:
    for signal, role in (("Terminated", "cause"), ("Killed", "cause"), ("Aborted", "symptom")):
        end = complaint(4, p=pattern("end", None, role="confirms", tells=("end",)), signal=signal)
        assert risen(case(), cancelled(), end)[0] == role
    abort = complaint(4, p=pattern("abort", None, role="confirms", tells=("aborts",)))
    assert risen(case(), cancelled(), abort)[0] == "symptom"


def test_no_cancellation_is_the_cause_of_a_job_that_finished_or_of_a_process_of_another() -> None:
    assert risen(case(final_line(0), ranks=(0,)), cancelled()) == ["symptom"]
    killed = pattern("killed", "external-signal", role="confirms", entity="pid", cause_if=("first-trouble",))
    assert risen(case(), claim(killed, event(pid=7))) == ["confirms"]
    assert risen(case(), claim(killed, event(pid=7), ranks=(1,))) == ["cause"]


def test_what_confirms_the_end_of_a_rank_is_its_cause_where_it_has_no_other() -> None:
    core = pattern("core", None, role="confirms", cause_if=("joined",))
    assert risen(case(), claim(core, ranks=(1,))) == ["cause"]
    assert risen(case(), claim(core)) == ["confirms"]
    assert risen(case(), claim(core, ranks=(1,)), claim(P, ranks=(1,))) == ["confirms", "cause"]
    assert risen(case(), claim(core, ranks=(1,)), claim(P, ranks=(0,))) == ["cause", "cause"]


def test_a_pattern_counts_where_the_ranks_run_on_several_hosts() -> None:
    loopback = claim(pattern("loopback", "network", role="symptom", cause_if=("several-hosts",)))
    assert risen(case(hosts={0: "a", 1: "b"}), loopback) == ["cause"]
    assert risen(case(hosts={0: "a", 1: "a.cluster.local"}), loopback) == ["symptom"]


# ── a wait that is the last there is ─────────────────────────────────────────────────────────────────────────────────

WAIT = pattern("wait", None, role="context", if_last="once")


def last(line: int = 5) -> Any:
    return event("…", "a.log", line, "line", fields={"last": True})


def test_an_ordinary_wait_at_the_end_of_a_log_is_trouble() -> None:
    c = claim(WAIT, event("waits", "a.log", 5))
    (found,) = promoted(case(*c.events, last(5)), [c])
    assert (found.role, found.because) == ("symptom", "no line follows it")
    assert risen(case(*c.events, last(6)), c) == ["context"]
    assert risen(case(*c.events, last(5), event("…", "a.log", 7, "notice")), c) == ["context"]
    assert risen(case(*c.events, event("…", "a.log", 5, "line")), c) == ["context"]
    assert risen(case(*c.events, last(5)), claim(pattern("p", None, role="context"), *c.events)) == ["context"]


# ── what a log's last exception without a traceback says ─────────────────────────────────────────────────────────────

MENTIONED = pattern("mentioned", severity="error")


def mentioned(line: int = 5, file: str = "a.log", **more: Any) -> Claim:
    p = more.pop("p", MENTIONED)
    role = more.pop("role", "context")
    return claim(p, event("ValueError: odd", file, line, fields={"mentioned": True} | more), role=role)


def promoted_lines(*claims: Claim, events: Any = ()) -> list[int | None]:
    found = promoted(case(*events, ranks=(0, 1)), claims)
    return [c.event.where.line for c in found if c.because == "no other line gives a reason"]


LEFT = exits(r1=1)


def test_the_last_one_counts_where_a_rank_left_with_a_code_or_somebody_complains() -> None:
    assert promoted_lines(mentioned(5), mentioned(9), events=LEFT) == [9]
    assert promoted_lines(mentioned(5), mentioned(9, "b.log"), events=LEFT) == [5, 9]
    assert promoted_lines(mentioned(5), claim(LOST)) == [5]
    assert promoted_lines(mentioned(5)) == []
    assert promoted_lines(mentioned(5), events=exits(r1=-15)) == []
    quiet = claim(pattern("q", "hang", role="symptom", severity="warning"))
    assert promoted_lines(mentioned(5), quiet) == []


def test_not_where_the_rank_worked_on_or_the_pattern_is_no_cause() -> None:
    work = event("step", "a.log", 9, "progress")
    assert promoted_lines(mentioned(5), events=[*LEFT, work]) == []
    assert promoted_lines(mentioned(12), events=[*LEFT, work]) == [12]
    assert promoted_lines(mentioned(9), events=[*LEFT, work]) == [9]
    assert promoted_lines(mentioned(5), events=[*LEFT, work._replace(where=work.where._replace(source="b"))]) == [5]
    assert promoted_lines(mentioned(5, p=pattern("s", role="symptom")), events=LEFT) == []
    assert promoted_lines(mentioned(5, mentioned=False), events=LEFT) == []
    closed = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    peers = claim(pattern("any", generic=True), event(closed, "a.log", 5, mentioned=True), role="context")
    assert promoted_lines(peers, events=LEFT) == []
