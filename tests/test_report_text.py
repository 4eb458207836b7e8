"""The outputs for terminals, tickets and programs: the same verdict, and no log text that acts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_cases import DATA, NAMES, PAYLOADS, RENDERS, Case, load, poisoned

from conftest import SAMPLES, solved, table
from postmortem import report
from postmortem.report import groups, markdown, text, view
from postmortem.report import json as plain
from postmortem.say.headline import MOST_CHARACTERS

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ANY = st.text(st.characters(codec=None), max_size=80) | st.sampled_from(PAYLOADS)
ACTING = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_the_golden_files(name: str) -> None:
    """POSTMORTEM_GOLDEN=write writes them again, for review in the diff."""
    case = load(name)
    found = {
        f"{name}.md": report.render_markdown(case),
        f"{name}.txt": report.render_terminal(case, width=80, report="postmortem-report.html"),
    }
    if name == "oom":
        found["oom.verbose.txt"] = report.render_verbose(case)
    for file, shown in found.items():
        path = DATA / "golden" / file
        if os.environ.get("POSTMORTEM_GOLDEN") == "write":
            path.write_text(shown, encoding="utf-8")
        assert shown == path.read_text(encoding="utf-8")


# ── the terminal ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_no_log_text_acts_on_a_terminal(payload: str) -> None:
    case = poisoned(payload)
    for shown in (report.render_terminal(case, color=False, report=payload), report.render_verbose(case)):
        assert not re.search(ACTING, shown)
    colored = report.render_terminal(case, color=True)
    assert "\x1b" not in re.sub("\x1b\\[[0-9;]{1,5}m", "", colored)
    assert colored.count("\x1b[0m") == len(re.findall("\x1b\\[[1-9][0-9;]*m", colored)), "a color is not reset"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_fit_the_width_and_color_changes_no_word(width: int) -> None:
    for name in NAMES:
        shown = report.render_terminal(load(name), width=width)
        assert max(map(text.cells, shown.splitlines())) <= width
        assert re.sub("\x1b\\[[0-9;]*m", "", report.render_terminal(load(name), width=width, color=True)) == shown


def test_the_address_of_the_proof_is_never_broken() -> None:
    case = load("oom")
    long = "a-very-long-host-name.cluster.example/kernel/" + "x" * 80 + ".txt"
    case.document["verdict"]["evidence"][0]["source"] = long
    assert f"{long}:81" in report.render_terminal(case, width=60)


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────


@given(ANY)
def test_prose_renders_as_the_text_itself(words: str) -> None:
    """No text of a log becomes a heading, a list, a link, an image, emphasis or HTML."""
    for frame in ("{}", "- {}", "**{}**"):
        shown = markdown.prose(words)
        if not shown:
            continue
        inlines = [token for token in GITHUB.parse(frame.format(shown)) if token.type == "inline"]
        children = [child for token in inlines for child in token.children or []]
        assert {child.type for child in children} - {"strong_open", "strong_close"} <= {"text", "text_special"}
        if frame != "**{}**":
            assert "".join(child.content for child in children) == text.sentence(words).strip()
    # GitHub's own markup: links without brackets, mentions, issue numbers, formulas
    assert not re.search(r"(?i)\bhttps?:|\bwww\.|@|(?<!&)#|\bGH-\d|\$", markdown.prose(words))


@given(ANY)
def test_code_spans_and_fences_contain_any_text(words: str) -> None:
    shown = text.line(words, 300)
    if shown.strip():
        (inline,) = [token for token in GITHUB.parse(f"see {markdown.code(words)} there") if token.type == "inline"]
        assert [child.content for child in inline.children or [] if child.type == "code_inline"] == [shown]
    (block,) = GITHUB.parse(markdown.fenced(text.line(line) for line in (words, "second")))
    assert block.type == "fence"
    assert block.content.splitlines()[-1] == "second"


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_markdown_has_no_link_no_image_and_no_html_of_a_log(payload: str) -> None:
    brief = report.render_markdown(poisoned(payload * 40), brief=True)
    assert len(brief) <= markdown.BRIEF
    for shown, headings in ((report.render_markdown(poisoned(payload)), 1), (brief, 0)):
        tokens = GITHUB.parse(shown)
        types = {token.type for token in tokens} | {c.type for token in tokens for c in token.children or []}
        assert not {"link_open", "image", "html_inline", "html_block"} & types
        assert sum(token.type == "heading_open" and token.tag == "h1" for token in tokens) == headings


def test_markdown_fits_into_a_comment() -> None:
    """GitHub refuses bodies beyond 65,536 characters; blocks that do not fit are counted, and fences are closed."""
    case = load("oom")
    verdict = case.document["verdict"]
    verdict["evidence"] = [{**verdict["evidence"][0], "line": n, "text": "x" * 1500} for n in range(400)]
    case.document["ranks"] = [{"rank": r, "state": "victim", "group": str(r), "why": "y" * 200} for r in range(5000)]
    case.document["other_jobs"] = [{"id": f"{n}", "headline": "z" * 200} for n in range(500)]
    shown = report.render_markdown(case)
    assert len(shown) <= markdown.LIMIT and len(shown.splitlines()) < 100
    assert "1 block left out" in shown
    assert len(re.findall("(?m)^```", shown)) % 2 == 0


@pytest.mark.parametrize("name", NAMES)
def test_short_markdown_has_verdict_proof_and_actions(name: str) -> None:
    case = load(name)
    verdict = case.document["verdict"]
    shown = report.render_markdown(case, brief=True)
    assert shown.startswith(f"**{markdown.prose(view.lead(case.document)[0])}**")
    for item in verdict["evidence"][:1]:
        assert f"`{item['source']}:{item['line']}`" in shown and item["text"] in shown
    for item in verdict["actions"][:3]:
        assert markdown.prose(item["text"]) in shown


def test_ranks_of_a_step_are_on_their_own_hosts() -> None:
    """`Ranks 0-522, 524-1023 on gpu-0051` named the host of the first one in the logs."""
    case = load("oom")
    case.document["ranks"] = [{"rank": r, "host": f"n{r // 8}", "state": "victim"} for r in range(64)]
    for ranks, who in ((list(range(64)), "ranks 0–63 on 8 hosts"), ([8, 9], "ranks 8, 9 on n1")):
        case.document["chain"][1]["entity"] = {"ranks": ranks, "host": f"n{ranks[0] // 8}"}
        assert view.steps(case.document)[1].who == who


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | ANY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_parses_to_its_source_and_contains_no_acting_character(value: Any) -> None:
    shown = plain.dump(value, indent=1)
    assert json.dumps(json.loads(shown), sort_keys=True) == json.dumps(value, sort_keys=True)
    shown.encode("utf-8")
    assert not re.search(ACTING, shown)


def test_json_is_stable_starts_with_its_schema_and_has_no_nan() -> None:
    document = load("oom").document
    shown = report.render_json(Case(document))
    assert shown == report.render_json(Case(dict(reversed(document.items()))))
    assert shown.startswith('{\n "schema": "postmortem/incident/1",\n "verdict": {\n  "outcome": "incident"')
    strange = json.loads(report.render_json(Case({"a": float("nan"), "b": [float("inf")]})))
    assert strange == {"a": None, "b": [None]}
    assert "é" in report.render_json(Case({"a": "é"}))


# ── unknown values, and words for values ────────────────────────────────────────────────────────────────────


def test_every_output_renders_a_document_without_values() -> None:
    """Nulls and absent keys are the normal case of a thin folder of logs."""
    headline = "A failure is visible; its cause is not."
    full = load("oom").document
    thin: list[dict[str, Any]] = [
        {},
        {"verdict": {"outcome": "undetermined", "headline": headline}},
        dict.fromkeys(full),
        {"processes": [{"first_seen": "2026-11-20T21:13:48Z"}]},
        {key: [dict.fromkeys(i) for i in value] if isinstance(value, list) else value for key, value in full.items()},
    ]
    for document in thin:
        for render in RENDERS:
            assert isinstance(render(Case(document)), str)
        assert report.card(document)


def shapes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part of a document, of lists those of the first item."""
    if path:
        yield path
    for key in list(value) if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ():
        yield from shapes(value[key], (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["brief", "terminal", "verbose", "markdown", "github"])
def test_no_output_trusts_the_types_of_a_document(name: str) -> None:
    """Anyone may have written a report that is shown again."""
    document = json.loads(report.render_json(load("oom")))
    assert (paths := [*shapes(document)])
    for path in paths:
        part = reduce(lambda value, key: value[key], path[:-1], document)
        usual = part[path[-1]]
        for wrong in ([], "x", "0001-01-01T00:00:00+09:00", {"a": [{}]}, 10**400, float("inf"), [None]):
            part[path[-1]] = wrong
            assert getattr(report, f"render_{name}")(Case(document)), (path, wrong)
        part[path[-1]] = usual


def test_numbers_are_written_as_people_write_them() -> None:
    for seconds, words in table("report_text")["seconds"]:
        assert text.seconds(seconds) == words
    for sigma, words in table("report_text")["moments"]:
        assert text.moment("2026-11-20T21:13:48.704Z", sigma) == words
    assert text.ranges([7, 0, 1, 2, 3, 6]) == "0–3, 6, 7"
    assert text.ranges(range(4096)) == "0–4095"
    assert text.ranges([r for r in range(1024) if r != 523]) == "0–522, 524–1023"


def test_a_headline_that_is_too_long_has_a_short_title_with_its_date() -> None:
    """What the ranks did follows below the title; a quotation is cut, since the decisive line is below it too."""
    for sample in ("early-rank-waits-in-barrier", "hidden-size-differs"):
        document = solved(SAMPLES / sample).document
        title, rest = view.lead(document)
        assert len(title) <= MOST_CHARACTERS < len(document["verdict"]["headline"])
        assert (
            "UTC on 2026-11-21" in title
            and rest[:30] not in title
            and title[:40] == document["verdict"]["headline"][:40]
        )
        del document["verdict"]["title"]  # of an older version
        assert view.lead(document) == (view.headline(document), "")


def test_two_stacks_that_differ_are_in_the_card_the_page_and_the_markdown() -> None:
    incident = solved(SAMPLES / "skipped-collective")
    document = incident.document
    odd, rest = groups.compared(document)
    assert (odd.who, odd.place, odd.inside) == ("rank 1", "main (train.py:30)", "in barrier")
    assert (rest.who, rest.place, rest.inside) == ("ranks 0, 2", "main (train.py:24)", "in all_reduce")
    assert groups.compared(document | {"verdict": document["verdict"] | {"category": "host-oom"}}) == []
    assert 'id="stacks"' in report.render_html(incident)
    assert "- rank 1: `main (train.py:30)` in barrier (py-spy, " in report.render_markdown(incident)


def test_frames_of_libraries_are_folded_and_counted() -> None:
    odd, *_ = groups.stacks(solved(SAMPLES / "starving-loader").document)
    folded, *own = odd.frames
    assert folded.label == "9 frames of selectors, multiprocessing, torch" and len(folded.lines) == 9
    assert [f.label for f in own] == ["main (train.py:39)", "call (trainer.py:254)", "<module> (train.py:46)"]


def test_stacks_of_a_malformed_document_cause_no_error() -> None:
    frames = [{"frames": 3, "ranks": "a"}, {"ranks": 7}], [{"frames": [{"own": True}], "pids": [None]}]
    for odd in (None, 7, "x", [7], *frames):
        assert all(stack.who for stack in groups.stacks({"stacks": odd}))
