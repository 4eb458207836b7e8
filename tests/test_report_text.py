"""The outputs for terminals, tickets and programs:
the same verdict, and nothing that acts where it is shown."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_cases import DATA, NAMES, PAYLOADS, Case, load, poisoned

from postmortem import report
from postmortem.report import json as plain
from postmortem.report import markdown, text, view

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ANY = st.text(st.characters(codec=None), max_size=80) | st.sampled_from(PAYLOADS)


def golden(path: Path, found: str) -> None:
    """Compare with a file; POSTMORTEM_GOLDEN=write writes it anew, for a reader to look at in the diff."""
    if os.environ.get("POSTMORTEM_GOLDEN") == "write":
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_markdown_reads_as_it_did(name: str) -> None:
    golden(DATA / "golden" / f"{name}.md", report.render_markdown(load(name)))


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_reads_as_it_did(name: str) -> None:
    golden(
        DATA / "golden" / f"{name}.txt", report.render_terminal(load(name), width=80, report="postmortem-report.html")
    )


def test_the_reasons_behind_a_verdict_read_as_they_did() -> None:
    golden(DATA / "golden" / "oom.verbose.txt", report.render_verbose(load("oom")))


# ── the terminal ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_no_log_text_acts_on_a_terminal(payload: str) -> None:
    case = poisoned(payload)
    for shown in (report.render_terminal(case, colour=False, report=payload), report.render_verbose(case)):
        assert shown.replace("\n", "").isprintable() or not re.search(
            "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", shown.replace("\n", "")
        )
    coloured = report.render_terminal(case, colour=True)
    assert "\x1b" not in re.sub("\x1b\\[[0-9;]{1,5}m", "", coloured)
    assert coloured.count("\x1b[0m") == len(re.findall("\x1b\\[[1-9][0-9;]*m", coloured)), "a colour is left on"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_keep_to_the_width_and_colour_changes_no_word(width: int) -> None:
    for name in NAMES:
        shown = report.render_terminal(load(name), width=width)
        assert max(map(text.cells, shown.splitlines())) <= width
        assert re.sub("\x1b\\[[0-9;]*m", "", report.render_terminal(load(name), width=width, colour=True)) == shown


def test_the_address_of_the_proof_is_never_broken() -> None:
    """It is there to be copied, or clicked."""
    case = load("oom")
    long = "a-very-long-host-name.cluster.example/kernel/" + "x" * 80 + ".txt"
    case.document["verdict"]["evidence"][0]["source"] = long
    assert f"{long}:81" in report.render_terminal(case, width=60)


# ── markdown ────────────────────────────────────────────────────────────────────────────────────────────────


@given(ANY)
def test_prose_renders_as_the_text_itself(words: str) -> None:
    """No text of a log becomes a heading, a list, a link, an image, emphasis or HTML."""
    for frame in ("{}", "- {}", "**{}**"):
        shown = markdown.prose(words)
        if not shown:
            continue
        inlines = [token for token in GITHUB.parse(frame.format(shown)) if token.type == "inline"]
        kinds = {child.type for token in inlines for child in token.children or []} - {"strong_open", "strong_close"}
        assert kinds <= {"text", "text_special"}
        if frame != "**{}**":
            assert (
                "".join(child.content for token in inlines for child in token.children or [])
                == text.sentence(words).strip()
            )
    # GitHub's own markup: links without brackets, mentions, issue numbers, formulas
    assert not re.search(r"(?i)\bhttps?:|\bwww\.|@|(?<!&)#|\bGH-\d|\$", markdown.prose(words))


@given(ANY)
def test_code_spans_and_fences_hold_whatever_they_are_given(words: str) -> None:
    shown = text.line(words, 300)
    if shown.strip():
        (inline,) = [token for token in GITHUB.parse(f"see {markdown.code(words)} there") if token.type == "inline"]
        assert [child.content for child in inline.children or [] if child.type == "code_inline"] == [shown]
    (block,) = GITHUB.parse(markdown.fenced(text.line(line) for line in (words, "second")))
    assert block.type == "fence"
    assert block.content.splitlines()[-1] == "second"


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_markdown_holds_no_link_no_image_and_no_html(payload: str) -> None:
    tokens = GITHUB.parse(report.render_markdown(poisoned(payload)))
    inside = [child.type for token in tokens for child in token.children or []]
    assert not {"link_open", "image", "html_inline", "html_block", "s_open"} & {
        *inside,
        *(token.type for token in tokens),
    }
    assert sum(token.type == "heading_open" and token.tag == "h1" for token in tokens) == 1


def test_markdown_fits_into_a_comment_whatever_the_incident() -> None:
    """GitHub refuses bodies beyond 65,536 characters;
    what does not fit is counted, and fences stay closed."""
    case = load("oom")
    verdict = case.document["verdict"]
    verdict["evidence"] = [{**verdict["evidence"][0], "line": n, "text": "x" * 1500} for n in range(400)]
    case.document["ranks"] = [{"rank": r, "state": "victim", "group": str(r), "why": "y" * 200} for r in range(5000)]
    shown = report.render_markdown(case)
    assert len(shown) <= markdown.LIMIT
    assert re.search(r"\d+ blocks left out", shown)
    assert len(re.findall("(?m)^```", shown)) % 2 == 0


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_short_markdown_is_short_whatever_the_logs_say(payload: str) -> None:
    """For chat: who, what, the proof and what to do, in what a chat shows of a message; still no markup of a log."""
    case = poisoned(payload * 40)
    shown = report.render_markdown(case, brief=True)
    assert len(shown) <= markdown.BRIEF
    inside = [child.type for token in GITHUB.parse(shown) for child in token.children or []]
    assert not {"link_open", "image", "html_inline"} & {*inside}


@pytest.mark.parametrize("name", NAMES)
def test_short_markdown_holds_verdict_proof_and_next_step(name: str) -> None:
    case = load(name)
    verdict = case.document["verdict"]
    shown = report.render_markdown(case, brief=True)
    assert shown.startswith(f"**{markdown.prose(verdict['headline'])}**")
    for item in verdict["evidence"][:1]:
        assert f"`{item['source']}:{item['line']}`" in shown and item["text"] in shown
    for item in verdict["actions"][:3]:
        assert markdown.prose(item["text"]) in shown


def test_ranks_of_a_step_live_on_their_hosts() -> None:
    """`Ranks 0-522, 524-1023 on gpu-0051` named the host of the one that spoke first."""
    case = load("oom")
    case.document["ranks"] = [{"rank": r, "host": f"n{r // 8}", "state": "victim"} for r in range(64)]
    case.document["chain"][1]["entity"] = {"ranks": list(range(64)), "host": "n3"}
    assert view.steps(case.document)[1].who == "ranks 0–63 on 8 hosts"
    case.document["chain"][1]["entity"] = {"ranks": [8, 9], "host": "n1"}
    assert view.steps(case.document)[1].who == "ranks 8, 9 on n1"


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | ANY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_reads_back_as_what_went_in_and_holds_nothing_that_acts(value: Any) -> None:
    shown = plain.dump(value, indent=1)
    assert json.dumps(json.loads(shown), sort_keys=True) == json.dumps(value, sort_keys=True)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown)


def test_json_is_stable_starts_with_its_schema_and_knows_no_nan() -> None:
    document = load("oom").document
    backwards = dict(reversed(document.items()))
    assert report.render_json(Case(document)) == report.render_json(Case(backwards))
    assert report.render_json(Case(document)).startswith(
        '{\n "schema": "postmortem/incident/1",\n "verdict": {\n  "outcome": "incident"'
    )
    assert json.loads(report.render_json(Case({"a": float("nan"), "b": [float("inf")]}))) == {"a": None, "b": [None]}
    assert "é" in report.render_json(Case({"a": "é"}))


# ── what is not known ───────────────────────────────────────────────────────────────────────────────────────


def test_every_output_copes_with_a_document_that_knows_nothing() -> None:
    """Nulls and absent keys are the normal case of a thin folder of logs."""
    headline = "A failure is visible; its cause is not."
    thin: list[dict[str, Any]] = [{}, {"verdict": {"outcome": "undetermined", "headline": headline}}]
    full = load("oom").document
    thin.append(dict.fromkeys(full))
    thin.append(
        {
            key: [dict.fromkeys(item) for item in value] if isinstance(value, list) else value
            for key, value in full.items()
        }
    )
    for document in thin:
        case = Case(document)
        for render in (
            report.render_html,
            report.render_markdown,
            report.render_json,
            report.render_terminal,
            report.render_verbose,
        ):
            assert render(case)
        assert report.card(document)


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        (0.004, "4 ms"),
        (0.6, "0.6 s"),
        (37.01, "37 s"),
        (600.0, "10 min"),
        (3999, "66 min 39 s"),
        (86400, "24 h"),
        (10**6, "12 days"),
        (None, ""),
    ],
)
def test_spans_of_time_are_said_as_one_would_say_them(given_: float | None, shown: str) -> None:
    assert text.seconds(given_) == shown


@pytest.mark.parametrize(
    ("sigma", "shown"),
    [
        (None, "21:13:48.704 UTC"),
        (0.004, "21:13:48.704 UTC ± 4 ms"),
        (5.1, "21:13:48 UTC ± 5.1 s"),
        (60, "about 21:13 UTC"),
    ],
)
def test_a_time_has_no_more_digits_than_are_known(sigma: float | None, shown: str) -> None:
    """The headline says `at about 21:13`; milliseconds below it would contradict it."""
    assert text.moment("2026-11-20T21:13:48.704Z", sigma) == shown


def test_rank_lists_become_spans() -> None:
    assert text.ranges([7, 0, 1, 2, 3, 6]) == "0–3, 6, 7"
    assert text.ranges(range(4096)) == "0–4095"
    assert text.ranges([r for r in range(1024) if r != 523]) == "0–522, 524–1023"
