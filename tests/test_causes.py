"""The usual causes of a symptom: the files, the facts, the order, and the rows for a job."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims import case, claim, event, exits, pattern, source
from conftest import ROOT, solved, table
from postmortem.causes import facts, memory, rows, weigh
from postmortem.causes.rows import Sign
from postmortem.causes.seen import Seen
from postmortem.diagnose.verdict.solution import Solution
from postmortem.library import load
from postmortem.model.vocabulary import CAUSES
from postmortem.replay.catalogue import BY_ID
from postmortem.report import causes as shown
from postmortem.say.consistency import contradictions
from postmortem.system import forms
from postmortem.workshop import causes as workshop

KILLED = ROOT / "sample_logs" / "sigkill-from-outside"


def known(category: str, *events: Any, ranks: tuple[int, ...] = (), stuck: Any = None, **more: Any) -> facts.Facts:
    """The facts of a verdict of this category, with these events."""
    root = claim(pattern("p", category), ranks=ranks, **more)
    seen = case(*events)
    return facts.of(Seen(Solution(seen, "incident", root, ranks, (root,), ()), category, stuck))


# ── the files ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_files_have_no_remark() -> None:
    assert not [*rows.remarks(set(load().patterns), set(BY_ID))]


def test_every_form_and_every_fact_is_used() -> None:
    """What no sign asks for is computed in vain."""
    signs = [sign for s in rows.symptoms() for c in s.causes for sign in c.signs]
    signs += [sign for s in rows.symptoms() for all_ in (*s.when, s.means) for sign in all_]
    asked = [row for row in forms.rows("say/missing").values() if "when" in row]
    signs += [rows.sign(s) for row in asked for s in (*itertools.chain(*row["when"]), *row.get("unless", ()))]
    used = {(sign.fact, value) for sign in signs for value in sign.values}
    inner = {("line", name) for name in ("address-and-port", "elements", "members", "shape")}  # read by the code
    unused = {(kind, name) for kind in ("line", "place") for name in forms.rows(f"causes/{kind}s")} - used - inner
    assert not unused
    assert not facts.NAMES - {sign.fact for sign in signs} - {"gpu-total", "gpu-free", "gpu-own", "gpu-reserved"}


def test_every_cause_of_the_vocabulary_has_a_row() -> None:
    assert {cause.id for s in rows.symptoms() for cause in s.causes} == set(CAUSES)


@pytest.mark.parametrize("symptom", rows.symptoms(), ids=lambda s: s.id)
def test_a_row_is_never_beyond_reach(symptom: rows.Symptom) -> None:
    """With all of its signs each row is likely: else no logs could put it first."""
    assert symptom.causes
    for cause in symptom.causes:
        assert cause.weight + sum(max(sign.effect or 0, 0) for sign in cause.signs) >= weigh.POSSIBLE, cause.id


# ── the facts ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text, found", table("causes")["memory"])
def test_the_numbers_of_a_message_on_memory(text: str, found: dict[str, float]) -> None:
    assert memory.numbers(text) == found


@pytest.mark.parametrize("a, b, how", table("causes")["sizes"])
def test_two_sizes_of_one_collective(a: int, b: int, how: str) -> None:
    assert memory.compared(a, b) == memory.compared(b, a) == how


def test_two_shapes_of_one_collective() -> None:
    assert memory.shapes("359, 1, 1435, 16", "359, 1, 1436, 16") == "close"
    assert memory.shapes("", "26122") == memory.shapes("10", "10, 2") == "far"


@given(st.text(max_size=200))
def test_no_text_is_refused(text: str) -> None:
    memory.numbers(text)
    found = known("hang", event(text=text, kind="line"))
    assert all(found.line(name) is None or found.line(name) for name in forms.rows("causes/lines"))


def test_the_end_of_the_process_at_fault_is_a_fact() -> None:
    found = known("external-signal", *exits(r2=-9), ranks=(2,))
    assert found.one("signal") == "SIGKILL" and found.one("affected") == "one"


def test_who_waits_for_whom_is_one_sentence() -> None:
    stuck = {"op": "ALLREDUCE", "seq": 19, "group": "mesh_tp", "entered": [0, 1, 3], "missing": [2], "elsewhere": {},
             "completed": {}, "timeout_s": 600.0, "numel_in": None}  # fmt: skip
    found = known("hang", ranks=(2,), stuck=stuck)
    assert found.one("waits") == "ranks 0, 1 and 3 wait for rank 2 in ALLREDUCE #19 of the tensor-parallel group"
    assert found.one("timeout-is-default") is True


def test_a_number_is_compared_and_a_word_is_not() -> None:
    values = {"exit-code": (facts.Known(3),), "phase": (facts.Known("steps"),)}
    found = facts.Facts(values, facts.Text((), ()))
    assert Sign("exit-code", least=3, most=125).seen(found) and not Sign("exit-code", least=4).seen(found)
    assert Sign("phase", ("steps", "exit")).seen(found) and not Sign("phase", least=0).seen(found)


# ── the order ───────────────────────────────────────────────────────────────────────────────────────────────


def ids(category: str, *events: Any, **more: Any) -> list[str]:
    found = known(category, *events, **more)
    symptom = weigh.symptom_of(found)
    assert symptom is not None
    return [w.cause.id for w in weigh.shown(weigh.weighed(symptom, found))]


@pytest.mark.parametrize("category, lines, first", table("causes")["first"])
def test_the_line_that_decides(category: str, lines: list[str], first: str) -> None:
    assert ids(category, *(event(text=text, kind="line", line=n) for n, text in enumerate(lines, 1)))[0] == first


def test_sigkill_is_memory_first_where_nothing_speaks_against_it() -> None:
    assert ids("external-signal", *exits(r2=-9), ranks=(2,))[0] == "host-memory"


def test_a_sign_may_exclude_a_row() -> None:
    assert "host-memory" not in ids("external-signal", *exits(r2=-15), ranks=(2,))


# ── the document ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def document() -> Any:
    return solved(KILLED).document


def test_the_rows_are_for_this_job(document: Any) -> None:
    row = next(row for row in document["causes"] if row["id"] == "host-memory")
    assert row["command"] and "{" not in row["check"] and "killed process" in row["check"]
    signs = [sign for row in document["causes"] for sign in (*row["for"], *row["against"])]
    assert signs and all(sign["text"] for sign in signs)
    assert not [*contradictions(document)]


def test_the_lines_of_signs_are_in_the_logs() -> None:
    """A form that a sign names matches the line that it quotes."""
    case = ROOT / "sample_logs" / "config-error-then-sleep"
    signs = [
        s for row in solved(case).document["causes"] for s in (*row["for"], *row["against"]) if s["fact"] == "line"
    ]
    assert signs
    for sign in signs:
        text = (case / "logs" / sign["source"]).read_text().splitlines()[sign["line"] - 1]
        assert forms.regexes("causes/lines")[sign["value"]].search(text)


def test_names_from_logs_get_into_no_command_that_a_shell_would_read() -> None:
    fields = {"host": "HOST"}
    assert weigh.filled("ssh {host} '{ print }'", fields) == "ssh HOST '{ print }'"
    assert not weigh._NAME.fullmatch("a;reboot") and not weigh._NAME.fullmatch("-oProxyCommand=x")


def test_a_contradiction_is_seen(document: Any) -> None:
    sign = {"fact": "finished", "value": "some", "text": "a rank had finished", "source": "nowhere.log", "line": 1}
    wrong = {**document, "causes": [{"id": "uneven-data", "for": [sign], "against": []}]}
    found = [*contradictions(wrong)]
    assert any("not a source" in text for text in found) and any("shows otherwise" in text for text in found)


def test_the_outputs_have_the_rows(document: Any) -> None:
    row = shown.usual(document)[0]
    assert row.title and shown.first(document).startswith(row.title)
    assert len(shown.lines(document)) == 2 * min(shown.OPEN, len(document["causes"]))
    assert shown.note([shown.Usual("a", "possible", "", "", "c", True, "e", "f")])


def test_a_healthy_run_has_no_causes() -> None:
    assert "causes" not in solved(ROOT / "sample_logs" / "healthy-torchrun").document


def test_a_cause_is_explained() -> None:
    assert workshop.known("host-memory") and not workshop.known("kernel-oom-killed-process")
    assert "dmesg" in workshop.explain("host-memory")
    assert any(line.startswith("| `host-memory`") for line in workshop.page())


def test_a_kernel_log_without_the_kill_speaks_against_memory() -> None:
    log = source("dmesg.txt", "kernel")
    root = claim(pattern("p", "external-signal"), ranks=(2,))
    seen = case(*exits(r2=-9), sources=[log])
    found = facts.of(Seen(Solution(seen, "incident", root, (2,), (root,), ()), "external-signal"))
    symptom = weigh.symptom_of(found)
    assert symptom is not None
    first = weigh.weighed(symptom, found)[0]
    assert first.cause.id != "host-memory"
