"""Whether the logs show a failure at all, who is seen at work or done, what a log ends with, and how sure a verdict is, by
one rule."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from claims import case, claim, event, exits, final_line, pattern, source, steps
from conftest import ROOT
from postmortem.diagnose import liveness
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims import log_ends
from postmortem.diagnose.rules import AFTER, BEFORE
from postmortem.diagnose.verdict import confidence, outcome
from postmortem.formats import endings
from postmortem.model import Confidence, Event
from postmortem.model.vocabulary import STRENGTHS

RAISED = pattern()
LOST = pattern("lost", "peer-lost", role="symptom")
GRUMBLE = pattern("grumble", "network", role="symptom", severity="warning")


def worked(line: int = 5, file: str = "rank0.log", by: str = "count", **more: Any) -> Event:
    return event("step 5", file, line, "worked", source_kind="console", **({"fields": {"by": by}} | more))


def at_line(line: int, text: str = "x", file: str = "a.log", kind: str = "line", **more: Any) -> Event:
    return event(text, file, line, kind, source_kind="console", **more)


def of(root: Claim | None, *claims: Claim, events: Any = (), **known: Any) -> str:
    return outcome.of(case(*events, **known), root, [*([root] if root else []), *claims])


# ── with a cause ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_guess_beside_a_job_that_works_is_none() -> None:
    guess = claim(RAISED, guess=True)
    assert of(guess) == "incident"
    assert of(guess, events=[worked()]) == "undetermined"
    assert of(guess, claim(LOST), events=[worked()]) == "incident"


# ── without one ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("severity", ["fatal", "error"])
def test_a_loud_complaint_is_a_failure_unless_all_finished(severity: str) -> None:
    loud = claim(pattern("l", "hang", role="symptom", severity=severity), event(speaker="launcher"))
    assert of(None, loud, events=[worked()]) == "undetermined"
    assert of(None, loud, events=[final_line(0)], ranks=(0,)) == "healthy"
    assert of(None, loud, events=[final_line(0), *exits(r0=0)], ranks=(0,)) == "undetermined"


def test_a_stack_or_trouble_without_a_sign_of_attempt_is_no_health() -> None:
    assert of(None, events=[event(kind="stack")]) == "undetermined"
    assert of(None, events=[event(kind="stack"), worked()]) == "healthy"
    kernel = claim(GRUMBLE, event(speaker="kernel"))
    assert of(None, kernel, events=[event(speaker="kernel")]) == "undetermined"
    assert of(None, kernel, events=[event(), event(speaker="kernel")]) == "healthy"
    hung = claim(pattern("h", None, role="symptom", severity="warning"), event(speaker="kernel"))
    assert of(None, hung, events=[event(speaker="kernel")]) == "healthy"


# ── who is seen at work or done ──────────────────────────────────────────────────────────────────────────────────────


def test_attempt_after_a_line_is_its_writers_in_the_same_log() -> None:
    e = event(line=5)
    signs = [worked(4), worked(6, rank=1), worked(7), worked(8, file="b.log")]
    assert [x.where.line for x in liveness.after(case(*signs), e, None)] == [6, 7]
    assert [x.where.line for x in liveness.after(case(*signs), e, 0)] == [7]
    assert [x.where.line for x in liveness.after(case(*signs), e, 1)] == [6, 7]


@pytest.mark.parametrize(("line", "follows", "works"), [(7, False, False), (8, False, True), (7, True, True)])
def test_a_bar_that_is_drawn_once_more_below_a_traceback_is_no_work(line: int, follows: bool, works: bool) -> None:
    """tqdm draws it when the process leaves: at most six lines below, and nothing of the job comes after it."""
    raised = event(kind="exception", line=1, frames=[["train.py", 3, "<module>"]])
    bar = worked(line)._replace(text=" 37%|###7      | 370/1000 [00:07<00:12, 50.1it/s]")
    more = [event(kind="line", line=line + 1)] if follows else []
    assert bool([*liveness.after(case(raised, bar, *more), raised, None)]) == works


def test_all_are_done_where_every_rank_or_every_console_stated_final_message() -> None:
    consoles = [at_line(1, file="a"), at_line(1, file="b")]
    assert liveness.all_done(case(final_line(0), ranks=(0,)))
    assert not liveness.all_done(case(*consoles, final_line(0, file="a"), ranks=(0, 1)))
    assert liveness.all_done(case(*consoles, final_line(None, file="a"), final_line(None, file="b")))
    assert not liveness.all_done(case(*consoles, final_line(None, file="a")))
    assert not liveness.all_done(case(*consoles))
    agent = event("x", "agent.err", 1, "line", source_kind="agent")
    assert liveness.all_done(case(consoles[0], agent, final_line(None, file="a")))
    assert not liveness.all_done(case(final_line(0), *exits(r0=1), ranks=(0,)))


def test_several_errors_cast_doubt_on_results_without_work() -> None:
    errors = [at_line(n, kind="notice", fields={"reports_error": True}) for n in (1, 2, 3)]
    assert outcome.lacking(case(*errors, worked(by="result"))) == "errors precede its results"
    assert outcome.lacking(case(*errors[:2], worked(by="result"))) == ""
    assert outcome.lacking(case(*errors, worked(by="count"))) == ""


def test_an_excerpt_of_lines_that_a_pattern_knows_as_harmless_lacks_nothing() -> None:
    benign = pattern("benign", None, role="context")
    for line, lacks in ((3, ""), (7, ""), (8, "these logs show no job at work, nor how one ended")):
        events = [at_line(3, kind="pattern", pattern="benign"), at_line(line, fields={"last": True})]
        assert outcome.lacking(case(*events, sources=[source("a.log")], patterns=[benign])) == lacks, line


def test_a_rank_is_left_behind_where_most_others_finished_and_got_further() -> None:
    def left(silent: tuple[int, ...], done: tuple[int, ...], *steps_of: tuple[int, int]) -> set[int]:
        work = [worked(file=f"rank{r}.log", rank=r) for r in silent]
        shown = [e for r, n in steps_of for e in steps(r, n)]
        return liveness.left_behind(case(*work, *shown, *map(final_line, done), ranks=(*silent, *done)))

    assert left((0,), (1, 2), (0, 5), (1, 9), (2, 9)) == {0}
    assert left((0,), (1, 2), (0, 9), (1, 9), (2, 9)) == set()  # not further
    assert left((0,), (1, 2), (1, 9), (2, 9)) == set()  # it counts no steps
    assert left((0,), (1,), (0, 5), (1, 9)) == set()
    assert left((0, 3), (1, 2), (0, 5), (3, 5), (1, 9), (2, 9)) == set()  # no more than it


def test_the_last_results_below_a_full_count_are_the_end_of_the_work() -> None:
    e = at_line(9)
    for by, full, ended in (("count", True, True), ("count", False, False), ("result", False, True)):
        above = [
            worked(4, "a.log", fields={"by": "count", "full": True}),
            worked(6, "a.log", fields={"by": by, "full": full}),
        ]
        assert liveness.at_its_end(case(*above), e) == ended, by
    assert not liveness.at_its_end(case(worked(10, "a.log", fields={"by": "count", "full": True})), e)


def test_only_an_exception_from_the_outermost_frame_of_a_file_ended_its_process() -> None:
    for file, function, more, ended in (
        ("train.py", "<module>", {}, True),
        ("train.py", "main", {}, False),  # caught and printed where it was called
        ("<string>", "<module>", {}, False),  # of a text that it had executed
        ("train.py", "<module>", {"logged": True}, False),
        ("train.py", "main", {"excepthook": True}, True),
    ):
        assert endings.uncaught(event(frames=((file, 1, function),), **more)) == ended, (file, function, more)


# ── the end of a log ─────────────────────────────────────────────────────────────────────────────────────────────────


def ends(*events: Event, claims: Any = (), **known: Any) -> list[tuple[str, int | None]]:
    return [(c.pattern.id, c.event.where.line) for c in log_ends.derive(case(*events, **known), list(claims))]


def loud_line(line: int, text: str = "ERROR odd", file: str = "a.log", **more: Any) -> Event:
    return at_line(line, text, file, "notice", reports_error=True, **more)


ERROR, RETRIES = "log-ends-with-error", "log-ends-in-retries"


def test_a_log_that_ends_with_an_error_of_unknown_words() -> None:
    assert ends(at_line(1), loud_line(2)) == [(ERROR, 2)]
    assert ends(at_line(1), loud_line(2), *(at_line(n) for n in range(3, 7))) == [(ERROR, 2)]
    assert ends(at_line(1), loud_line(2), *(at_line(n) for n in range(3, 8))) == []
    assert ends(loud_line(2), loud_line(3)) == [(ERROR, 3)]
    assert ends(at_line(1), at_line(2, "WARNING", kind="notice")) == []


def test_a_wait_that_nothing_ended() -> None:
    waits = [at_line(n, f"Server is not up. Retrying in {n} s") for n in (1, 2, 3)]
    assert ends(*waits) == [(RETRIES, 3)]
    assert ends(*waits[:2]) == []
    assert ends(*waits, at_line(4)) == []
    assert ends(at_line(1, "Retrying"), at_line(2, "x"), at_line(3, "trying again")) == []
    assert ends(*waits, worked(3, file="a.log")) == []


def test_what_is_stated_again_and_again_to_the_end() -> None:
    same = [event("waits", "a.log", n, pattern="w") for n in (1, 3, 5)]
    assert log_ends.repeated_to_the_end(case(*same), same[2])
    assert not log_ends.repeated_to_the_end(case(*same), same[1])
    assert not log_ends.repeated_to_the_end(case(*same[1:]), same[2])
    assert not log_ends.repeated_to_the_end(case(*same, at_line(6)), same[2])
    assert log_ends.repeated_to_the_end(case(*same, at_line(4)), same[2])
    assert not log_ends.repeated_to_the_end(case(*same, worked(2, file="a.log")), same[2])
    first = worked(1, file="a.log")
    assert log_ends.repeated_to_the_end(case(*same, first._replace(where=first.where._replace(line=0))), same[2])


def sure(root: Claim, ranks: tuple[int, ...] = (1,), **known: Any) -> str:
    return confidence.of(case(**known), root, ranks)


@pytest.mark.parametrize(
    "root, ranks",
    [
        (claim(RAISED, ranks=(1,), because="no pid matches"), (1,)),
        (claim(pattern(status="draft"), ranks=(1,)), (1,)),
        (claim(pattern(derived=True), ranks=(1,)), (1,)),
        (claim(RAISED, ranks=(1,), strength="compared"), (1,)),
        (claim(RAISED), (1,)),  # the rank is a deduction
        (claim(RAISED), ()),  # it names nobody
        (claim(RAISED, event(fields={"signal": "Aborted"}), ranks=(1,)), (1,)),  # the reason is another line
        (claim(pattern("h", "hang"), ranks=(1,)), (1,)),  # what a rank missed, and not what happened
    ],
)
def test_a_deduction_between_line_and_verdict_only_supports_it(root: Claim, ranks: tuple[int, ...]) -> None:
    assert sure(root, ranks) == "supported"


@pytest.mark.parametrize("root", [
    claim(pattern("x", "gpu-hardware", entity="gpu"), gpus=("0000:48:00",)),
    claim(pattern(entity="peer"), hosts=("node-a",)), claim(pattern(entity="host")), claim(pattern(entity="job")),
])  # fmt: skip
def test_a_gpu_a_host_or_the_whole_job_needs_no_rank(root: Claim) -> None:
    assert sure(root, ()) == "established"


def ended(code: int | None, category: str = "native-crash") -> Claim:
    fields = {} if code is None else {"exitcode": code}
    return claim(pattern("end", category), event(fields=fields), ranks=(1,), strength="ended")


def test_a_crash_states_what_it_is_a_code_of_its_own_nothing() -> None:
    assert sure(ended(-11)) == "supported"
    assert sure(ended(None)) == "supported"
    assert sure(ended(3, "python-exception")) == "hypothesis"


def test_a_sigkill_is_supported_only_where_a_kernel_log_would_show_the_oom_killer() -> None:
    killed = ended(-9, "external-signal")
    assert sure(killed) == "hypothesis"
    assert sure(killed, sources=[source("dmesg.txt", "kernel")]) == "supported"


@pytest.mark.parametrize("code, sureness", [(-9, "supported"), (1, "established")])
def test_an_exception_of_a_rank_that_a_sigkill_ended_may_be_that_of_a_forked_child(code: int, sureness: str) -> None:
    end = event(kind="exit", rank=1, exitcode=code, speaker="launcher")
    root = claim(RAISED, event(rank=1, file="rank1.log"), ranks=(1,))
    assert confidence.of(case(end, root.event, ranks=(0, 1)), root, (1,)) == sureness


# ── what docs/confidence.md says ─────────────────────────────────────────────────────────────────────────────────────


def named(heading: str) -> list[str]:
    """The words in the first column of the table with this heading."""
    text = (ROOT / "docs" / "confidence.md").read_text()
    rows = text.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [row.split("|")[1].strip(" `") for row in rows]


def test_the_documentation_names_every_confidence_strength_and_rule() -> None:
    assert named("confidence") == list(get_args(Confidence))
    assert named("strength") == list(STRENGTHS)
    assert sorted(named("rule")) == sorted(r.__name__ for stratum in (*BEFORE, *AFTER) for r in stratum)


def test_the_documentation_states_of_each_confidence_what_the_code_states() -> None:
    text = (ROOT / "docs" / "confidence.md").read_text()
    assert (words := get_args(Confidence))
    for word in words:
        (stated,) = re.findall(rf"^{word} +(.+)$", confidence.__doc__ or "", re.MULTILINE)
        assert f"| `{word}` | {stated} |" in text
