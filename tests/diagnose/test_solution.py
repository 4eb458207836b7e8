"""What the document says of a solution: victims, headline, reasons, why not another, a row for every rank,
and a moment as well as it is known."""

from __future__ import annotations

from typing import Any

import pytest

from claims import NOON, case, claim, event, exits, final_line, pattern, source, steps
from conftest import table
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict import novelty
from postmortem.diagnose.verdict.solution import Solution, victims
from postmortem.diagnose.wording import clock_time
from postmortem.formats.lineform import message
from postmortem.say import reasons, tables
from postmortem.say.headline import headline

RAISED = pattern("raised", title="A rank raised an exception")
LOST = pattern("lost", "peer-lost", role="symptom", title="A rank lost its peers")
WAITED = pattern("waited", "hang", role="symptom", tells=("wait",))


def solution(root: Claim | None, *others: Claim, seen: Case | None = None, outcome: str = "", **more: Any) -> Solution:
    claims = (root, *others) if root else others
    ranks = more.pop("ranks", root.ranks if root else ())
    outcome = outcome or ("incident" if root else "undetermined")
    return Solution(seen or case(ranks=range(4)), outcome, root, ranks, claims, more.pop("alternatives", ()), **more)


# ── victims ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_victim_is_in_one_list() -> None:
    claims = [claim(WAITED, ranks=(0, 1)), claim(LOST, ranks=(1, 2, 3))]
    found = victims(case(*exits(r1=-15, r2=-15, r4=-15, r5=1)), (3,), claims)
    assert (found.timed_out, found.lost, found.stopped) == ((0, 1), (2,), (4,))
    assert list(found.by_fate()) == [
        ((0, 1), "timed out"),
        ((2,), "lost the connection"),
        ((4,), "was stopped by the launcher"),
    ]


# ── headline ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def raised(*ranks: int, title: str = "A rank raised an exception", **more: Any) -> Claim:
    fields = more.pop("fields", {"line": "ValueError: bad label 4711"})
    p = pattern("raised", title=title, **more.pop("p", {}))
    return claim(
        p, event("[rank2]: ValueError: bad label 4711", fields=fields, **more.pop("e", {})), ranks=ranks, **more
    )


def test_who_what_where_when_and_what_it_did_to_the_others() -> None:
    root = raised(
        2,
        hosts=("node-b",),
        e={"at": NOON, "kind": "exception"},
        fields={"line": "ValueError: odd", "code": "train.py:9"},
    )
    sentence = headline(solution(root, claim(LOST, ranks=(0, 1)), claim(WAITED, ranks=(3,))))
    assert sentence == (
        "Rank 2 on node-b raised an exception (ValueError: odd) in train.py:9 at 12:00:00; "
        "rank 3 timed out and 2 other ranks lost the connection."
    )


def test_the_title_is_not_quoted_again() -> None:
    assert headline(solution(raised(2, title="A rank raised ValueError: bad label 4711"))) == (
        "Rank 2 raised ValueError: bad label 4711."
    )
    assert headline(solution(raised(2, title="A GPU is gone (Xid 79)"))) == "Rank 2: a GPU is gone (Xid 79)."


def test_a_gpu_or_a_host_replaces_a_rank_that_is_not_known() -> None:
    gpu = claim(pattern("x", "gpu-hardware", title="Xid 79"), gpus=("0000:48:00",), ranks=(1,))
    assert headline(solution(gpu)).startswith("Rank 1 (GPU 0000:48:00) reported Xid 79")
    assert headline(solution(gpu, ranks=())).startswith("GPU 0000:48:00 reported Xid 79")
    host = claim(pattern("h", "network", entity="peer", title="A link went down"), hosts=("node-b",))
    assert headline(solution(host)).startswith("node-b: a link went down")
    own = claim(pattern("h", "network", title="A link went down"), hosts=("node-b",))
    assert headline(solution(own)).startswith("A link went down")


def test_a_patterns_own_sentence() -> None:
    p = {"headline": "{who} {was} killed by {ending}{finished} ({comm}{pid}){time}, {unknown}{line}"}
    fields = {"comm": "python3", "pid": 7, "signal": "SIGKILL", "line": "so"}
    root = raised(2, p=p, fields=fields, e={"at": NOON})
    assert headline(solution(root)) == "Rank 2 was killed by SIGKILL (python3, pid 7) at 12:00:00, so."
    two = raised(1, 2, p={"headline": "{who} {was} gone"}, fields={}, e={"at": NOON})
    assert headline(solution(two)) == "Ranks 1 and 2 were gone at 12:00:00."
    unowned = raised(p={"headline": "{who} met {ending} in a {comm}{code}"}, fields={"code": "a.py:1"})
    assert headline(solution(unowned)) == "A process met an error in a process in a.py:1."


def test_a_crash_after_the_goodbye() -> None:
    p = {"headline": "{who} crashed: {crash}{finished}"}
    done = case(final_line(1), final_line(2), ranks=(1, 2))
    one = raised(1, p=p, fields={"signal": "SIGSEGV"})
    assert headline(solution(one, seen=done)) == "Rank 1 crashed: SIGSEGV after it had finished."
    assert headline(solution(one)) == "Rank 1 crashed: SIGSEGV."
    two = raised(1, 2, p=p, fields={"signal": "Segmentation fault"})
    assert headline(solution(two, seen=done)) == "Ranks 1 and 2 crashed: segmentation fault after they had finished."
    left = raised(1, p=p, fields={"exitcode": 3, "line": "Bus Error"})
    assert headline(solution(left, seen=done)) == "Rank 1 crashed: bus error."


def test_only_a_process_that_was_heard_printed_no_reason() -> None:
    root = raised(1, p={"headline": "{who} exited with {ending}{unsaid}"}, fields={"exitcode": 3})
    assert headline(solution(root)) == "Rank 1 exited with code 3."
    other = case(*steps(0, 7), ranks=(0, 1))
    assert headline(solution(root, seen=other)) == "Rank 1 exited with code 3."
    heard = case(*steps(1, 7, kind="line"), ranks=(0, 1))
    assert headline(solution(root, seen=heard)) == "Rank 1 exited with code 3 and printed no reason."


def test_a_comparison_is_a_sentence_by_itself_or_follows_its_title() -> None:
    compared = {"strength": "compared", "p": {"derived": True}}
    assert (
        headline(solution(raised(2, because="rank 2 had reached step 6", **compared))) == "Rank 2 had reached step 6."
    )
    assert (
        headline(solution(raised(2, because="no dump", title="A rank fell silent", **compared)))
        == "Rank 2 fell silent: no dump."
    )
    stated = raised(2, because="others went on", strength="silent")
    assert headline(solution(stated)) == "Rank 2 diverged from the others: others went on."
    same = raised(because="no rank printed a line", title="No rank was heard of", **compared)
    assert headline(solution(same)) == "No rank printed a line."


def test_long_messages_are_cut_at_a_clause_and_no_bracket_is_left_open() -> None:
    def quoted(line: str) -> str:
        sentence = headline(solution(raised(2, fields={"line": line})))
        return sentence.removeprefix("Rank 2 raised an exception (").removesuffix(").")

    clause = "the first clause of this message is of some length. "
    assert quoted(clause + "x " * 60) == clause[:-2]
    words = "word " * 30
    assert quoted(words) == ("word " * 21).strip() + "…"
    opened = "the allocation failed here because of this (with very many details " + "x" * 60
    assert quoted(opened) == "the allocation failed here because of this…"
    assert quoted("torch.cuda.OutOfMemoryError: none left") == "OutOfMemoryError: none left"
    assert quoted("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator") == "DefaultCPUAllocator"
    assert quoted("RuntimeError: none left") == "none left"


def test_a_recovery_names_the_attempt_that_failed() -> None:
    seen = case(ranks=range(4))
    seen.attempt = 0
    assert headline(solution(raised(2), seen=seen, outcome="recovered")).startswith(
        "Recovered: in attempt 0 rank 2 raised"
    )
    closed = claim(LOST, ranks=(2,))
    assert headline(solution(None, closed, seen=seen, outcome="recovered")) == (
        "Recovered: in attempt 0 rank 2 lost the connection, and the cause is not in these logs."
    )


def test_a_healthy_run() -> None:
    assert headline(solution(None, outcome="healthy")) == "No failure in these logs."
    seen = case(final_line(0), ranks=(0, 1))
    assert headline(solution(None, seen=seen, outcome="healthy")) == (
        "No failure in these logs; 1 of 2 ranks reported that they finished."
    )


def test_an_undetermined_one_names_its_victims_or_the_first_loud_complaint() -> None:
    assert headline(solution(None, claim(LOST, ranks=(0, 1)))) == (
        "Undetermined: ranks 0 and 1 lost the connection, and the cause is not in these logs."
    )
    quiet = claim(pattern("q", "storage", role="symptom", severity="warning", title="A disk is slow"), event(at=1.0))
    unowned = claim(pattern("n", None, role="symptom", title="A job ended"), event(at=1.0))
    loud = claim(pattern("l", "storage", role="symptom", severity="error", title="A disk is full"), event(at=2.0))
    later = claim(pattern("m", "storage", role="symptom", severity="error", title="A disk is gone"), event(at=3.0))
    confirms = claim(pattern("c", "storage", role="confirms", title="A kernel says so"), event(at=1.0))
    assert "Undetermined: a disk is full," in headline(solution(None, quiet, unowned, confirms, later, loud))
    assert "Undetermined: a disk is slow," in headline(solution(None, quiet))
    assert "Undetermined: a job ended," in headline(solution(None, quiet, unowned))
    assert headline(solution(None)) == "Undetermined: no line shows a rank at work or finished."
    stack = case(event(kind="stack"))
    assert "Undetermined: the only evidence is the stack of a process," in headline(solution(None, seen=stack))


# ── reasons ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def because(root: Claim | None, *others: Claim, **more: Any) -> list[str]:
    return reasons.because(solution(root, *others, **more), "a.log:5")


PLACE = ["a.log:5: a rank raised an exception."]


def test_the_line_is_a_reason_only_where_there_is_no_other() -> None:
    assert because(raised(2)) == PLACE
    assert because(raised(2, because="no pid matches")) == ["No pid matches."]
    derived = {"derived": True}
    assert because(raised(2, because="it left early", strength="compared", p=derived)) == PLACE
    assert because(raised(2, because="so", strength="compared")) == PLACE
    assert because(raised(2, because="it ended", strength="ended", p=derived)) == ["It ended."]


def test_a_guess_is_called_one_and_the_patterns_why_is_no_observation() -> None:
    """What a pattern means in general took four lines of the first screen, and was cut there; the chain tells it."""
    assert because(raised(2, guess=True, p={"why": "Labels have to be below the number of classes."})) == [
        reasons.GUESS
    ]


def test_no_reason_repeats_the_headline_or_another_reason() -> None:
    """`Rank 1 lost the connection` once stood in the headline, in a comparison, and as a reason of its own."""
    lost = claim(LOST, event(file="b", at=NOON), ranks=(1,))
    both = claim(LOST, event(file="b", at=NOON), event(file="c", at=NOON), ranks=(0, 1))
    gone = "rank 2 fell silent, and ranks 0 and 1 lost the connection"
    silent = claim(pattern("c", derived=True), ranks=(2,), because=gone, role="confirms")
    assert because(raised(2), lost) == PLACE
    assert because(raised(2), both) == ["Ranks 0 and 1 lost the connection."]
    assert because(raised(2), both, silent) == ["Rank 2 fell silent, and ranks 0 and 1 lost the connection."]


# ── why not another ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_why_not_is_the_order_in_time_or_the_kind_of_proof() -> None:
    other = claim(RAISED, event(file="y", line=3))
    early = claim(pattern("a"), event(file="x", at=NOON, host="h"))
    late = claim(RAISED, event(file="y", line=3, at=NOON + 9, host="h"))
    assert reasons.why_not(early, late) == "it came 9.00 s later (± 0.05 s)"
    hang = claim(pattern("h", "hang"), event(file="y", line=3))
    assert reasons.why_not(claim(pattern("a"), event(file="x")), hang) == (
        "y:3 only says who was waited for; x:1 states why a process died"
    )
    assert reasons.why_not(claim(pattern("a"), event(file="x")), other) is None
    near = claim(RAISED, event(file="y", at=NOON, host="h"))
    assert reasons.why_not(early, near) == "which came first is not determined"
    silent, ended = (claim(pattern("s", "hang"), event(file="y"), strength=s) for s in ("silent", "ended"))
    root = claim(pattern("k", "host-oom", entity="host"), event(file="x"))
    assert "y:1 shows only who fell silent" in str(reasons.why_not(root, silent))
    assert "y:1 shows only how a process ended" in str(reasons.why_not(root, ended))
    assert "x:1 states an action of the kernel, the driver or the scheduler" in str(reasons.why_not(root, other))


def test_alternatives_are_other_patterns_and_for_a_sigkill_the_oom_killer() -> None:
    same, other = claim(RAISED), claim(pattern("other", "hang"))
    rows = reasons.alternatives(solution(raised(2), alternatives=(same, other)))
    assert [row["pattern"] for row in rows] == ["other"]
    killed = claim(pattern("k", "external-signal"), event(exitcode=-9), ranks=(1,), strength="ended")
    (row,) = reasons.alternatives(solution(killed))
    assert (row["category"], row["ranks"]) == ("host-oom", [1])
    assert "no kernel log" in row["why_not"]
    kernel = case(sources=[source("dmesg.txt", "kernel")])
    assert "shows no kill" in reasons.alternatives(solution(killed, seen=kernel))[0]["why_not"]
    assert reasons.alternatives(solution(None)) == []
    crashed = claim(pattern("k", "native-crash"), event(exitcode=-11), strength="ended")
    assert reasons.alternatives(solution(crashed)) == []


# ── a row for every rank ─────────────────────────────────────────────────────────────────────────────────────────────


def rows(s: Solution) -> list[tuple[str, str]]:
    return [(row["state"], row["why"]) for row in tables.ranks(s, {})]


def test_what_became_of_every_rank() -> None:
    seen = case(
        *exits(r2=-15, r3=0, r4=1, r8=-15), *steps(6, 1, 2), final_line(5), *steps(4, 1), *steps(3, 1), *steps(2, 1), ranks=range(8)
    )  # fmt: skip
    root = claim(RAISED, ranks=(0,), because="it said so")
    found = rows(solution(root, claim(LOST, event(file="x", line=7), ranks=(1,)), seen=seen))
    assert found == [
        ("cause", "it said so"),
        ("victim", "A rank lost its peers (x:7)"),
        ("victim", "stopped by the launcher with SIGTERM after another rank had failed"),
        ("healthy", "exited with code 0"),
        ("victim", "ended with exit code 1 after the failure"),
        ("healthy", "reported that it finished"),
        ("silent", "last line is normal; no error or exit logged"),
        ("silent", "no line in these logs is known to be its own"),
    ]


# ── what one rank alone printed ──────────────────────────────────────────────────────────────────────────────────────


def notice(rank: int, text: str, line: int = 1) -> Any:
    return event(text, f"rank{rank}.log", line, "notice", rank=rank, at=NOON + line)


def test_what_all_ranks_print_is_weather_and_what_one_prints_is_a_lead() -> None:
    seen = case(notice(0, "warn 1"), notice(1, "warn 2"), notice(1, "odd 7", 5), notice(0, "odder", 9))
    assert [e.text for e in novelty.leads(seen, set(), frozenset())] == ["odder", "odd 7"]
    assert [e.text for e in novelty.leads(seen, {("rank0.log", 9)}, frozenset())] == ["odd 7"]
    assert [e.text for e in novelty.leads(seen, set(), frozenset({"odd N"}))] == ["odder"]


def test_one_rank_is_compared_with_a_healthy_run_only() -> None:
    alone = case(notice(0, "odd"), notice(0, "usual", 2))
    assert novelty.leads(alone, set(), frozenset()) == []
    assert [e.text for e in novelty.leads(alone, set(), frozenset({"usual"}))] == ["odd"]
    assert novelty.shapes([notice(0, "warn 1"), event("line", kind="line")]) == {"warn N"}


def test_leads_are_listed_where_no_cause_is_known() -> None:
    lead, unowned = notice(1, "odd 7", 5), event("odder", "x", 3, "notice")
    sentence = because(None, leads=(lead, unowned))
    assert sentence[-2:] == ["Only rank 1 printed: `odd 7` (rank1.log:5).", "Not seen in a healthy run: `odder` (x:3)."]


@pytest.mark.parametrize("line, expected", table("wording")["messages"])
def test_a_headline_quotes_no_stamp(line: str, expected: str) -> None:
    assert message(line) == expected


@pytest.mark.parametrize(("sigma", "expected"), table("wording")["moments"])
def test_a_moment_is_reported_as_well_as_it_is_known(sigma: float, expected: str) -> None:
    assert clock_time(1_795_208_328.7, sigma) == expected
    assert clock_time(None, sigma) == clock_time(91_198_839.0, sigma) == ""
