"""The HTML report: one file, nothing from outside, and no log text that becomes part of the page."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_cases import NAMES, PAYLOADS, Case, framed, load, poisoned

from conftest import python
from postmortem import report
from postmortem.analyze import Options, analyze
from postmortem.report import templates, text, view
from postmortem.report.groups import rank_groups

LINK = r"href=#(e\d+l\d+|[a-z]+\d*)"  # a section, a piece of evidence, or a line of it


class Skeleton(HTMLParser):
    """The elements of a page with their attributes, and the text of those that are data or code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.inside: dict[str, str] = {}
        self.policy = ""
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("class") != "run":  # the commands in an action, which is the pattern's text
            self.elements.append((tag, tuple(sorted(given))))
        self.links += [
            f"{name}={value}"
            for name, value in attrs
            if name in ("href", "src", "action", "data", "srcset", "xlink:href")
        ]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        # pictures have titles too
        named = tag in ("script", "style", "h1") or (tag == "title" and "title" not in self.inside)
        self._open = given.get("id") or tag if named else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open] = self.inside.get(self._open, "") + data


@pytest.mark.parametrize("name", NAMES)
def test_nothing_comes_from_outside_and_only_our_style_and_script_may_run(name: str) -> None:
    page = Skeleton(report.render_html(load(name)))
    assert page.links and all(re.fullmatch(LINK, link) for link in page.links)
    assert not [
        e for e in page.elements if any(attribute.startswith("on") or attribute == "style" for attribute in e[1])
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for directive, names in (("style-src", ("style", "dark")), ("script-src", ("theme", "script"))):
        digests = [hashlib.sha256(page.inside[name].encode()).digest() for name in names]
        assert rules[directive] == " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)


@pytest.mark.parametrize("name", NAMES)
def test_the_headline_is_the_only_h1_and_the_document_can_be_read_back(name: str) -> None:
    case = load(name)
    page = Skeleton(report.render_html(case))
    assert [tag for tag, _ in page.elements].count("h1") == 1
    title = view.lead(case.document)[0]
    assert page.inside["title"].partition(" · job")[0] == title
    # up to the date, which is an element of its own
    assert page.inside["headline"] and title.startswith(page.inside["headline"])
    assert json.loads(page.inside["postmortem-incident"]) == case.document
    assert json.loads(page.inside["postmortem-markdown"])["text"] == report.render_markdown(case)
    assert report.render_html(case) == report.render_html(load(name))


HARMLESS = Skeleton(report.render_html(poisoned("x"))).elements


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_log_text_never_changes_the_page(payload: str) -> None:
    """The same document with an injection in every field gives the same elements with the same attributes."""
    case = poisoned(payload)
    text = report.render_html(case)
    page = Skeleton(text)
    assert page.elements == HARMLESS
    assert all(re.fullmatch(LINK, link) for link in page.links)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    read_back = json.loads(page.inside["postmortem-incident"])
    assert json.dumps(read_back, sort_keys=True) == json.dumps(case.document, sort_keys=True)


def test_the_parts_of_the_page_are_in_the_order_of_an_engineers_questions() -> None:
    page = report.render_html(load("oom"))
    sections = (
        "What to do now, How it happened, Alternatives, Missing evidence, Timeline, Ranks, Replay, "
        "Other jobs in these logs, Files, Clocks, About this report, How to read this page"
    )
    marks = ['id="headline"', "Not everything was read", 'class="because"', 'class="chips"']
    places = [page.index(mark) for mark in (*marks, *(f">{title}</h2>" for title in sections.split(", ")))]
    assert places == sorted(places)
    undetermined = report.render_html(load("undetermined"))
    assert undetermined.index("py-spy dump") < undetermined.index('<nav aria-label="Contents">')
    healthy = report.render_html(load("healthy"))
    assert 'class="chips"' not in healthy and "s-cause" not in healthy.split("</style>")[1]


def test_each_line_of_an_excerpt_has_its_own_link() -> None:
    """`look at line 79` is a message between engineers."""
    page = report.render_html(load("oom"))
    assert 'id="e0l81"' in page and 'href="#e0l79"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_long_list_of_ranks_is_never_cut() -> None:
    """`6, 8, 16, … (+426 characters)` hid which ranks; the table has the first spans, a fold has all of them."""
    case = load("oom")
    odd = list(range(1, 1024, 2))
    case.document["ranks"] = [{"rank": r, "state": "victim", "group": str(r % 2)} for r in range(1024)]
    page = report.render_html(case)
    assert f"<summary>1, 3, 5, 7, 9, 11, 13, 15 and 504 more</summary>{', '.join(map(str, odd))}</details>" in page


def test_the_card_repeats_no_fact_and_cuts_no_reason() -> None:
    """Rank, host and time were in the chips and again above the line; a reason ended in `…`."""
    case = load("oom")
    case.document["verdict"]["because"] = [f"Reason {n}: {'a word and ' * 40}end." for n in range(4)]
    page = report.render_html(case)
    card = page[page.index('<section id="verdict"') :].partition("</section>")[0]
    caption = card[card.index("<figcaption>") :].partition("</figcaption>")[0]
    assert "node-b/kernel/dmesg.txt:81" in caption
    assert not any(words in caption for words in ("rank 5", "UTC"))
    assert card.count("a word and end.") == 4 and "more reason" not in card
    case.document["verdict"]["evidence"][0] |= {"rank": 2, "host": "node-a"}  # of another rank than the culprit
    page = report.render_html(case)
    assert "<span>rank 2 on node-a</span>" in page[: page.index("</section>")]


def test_without_a_culprit_no_fact_is_marked_as_one() -> None:
    """Of a broken network the line of code was named in red, under `culprit`."""
    case = load("oom")
    assert '<div class="blamed"><dt>rank</dt>' in report.render_html(case)
    case.document["verdict"]["culprit"] = {"ranks": [], "hosts": [], "code": "train.py:50"}
    assert "<div><dt>code</dt><dd>train.py:50</dd>" in report.render_html(case)
    assert "  where    code train.py:50" in report.render_terminal(case)


def test_ranks_with_one_reason_state_it_once() -> None:
    """`The NCCL watchdog caught a timeout (0.log:20) and 126 more`: each rank has its own address."""
    last = {"source": "n0/0.log", "line": 20}
    ranks = [
        {"rank": n, "state": "victim", "why": f"timed out (n0/{n}.log:20)", "group": 1, "last_line": last}
        for n in range(3)
    ]
    elsewhere = {**ranks[0], "last_line": last | {"line": 21}}
    for members, why in ((ranks, "timed out"), (ranks[:1], "timed out"), ([elsewhere], "timed out (n0/0.log:20)")):
        assert [group.why for group in rank_groups({"ranks": members})] == [why]


def test_each_line_is_shown_once_and_the_story_begins_with_its_first_step() -> None:
    """218 lines were shown 360 times: in the card, in the chain, and again under Evidence."""
    for name in NAMES:
        page = report.render_html(load(name))
        lines = re.findall(r'<span class="row[^>]* id="e\d+l(\d+)">', page)
        figures = re.findall(r'<a class="address" href="#e(\d+)">([^<]+)</a>\n', page)
        assert len({number for number, _ in figures}) == len({address for _, address in figures}), name
        assert name == "healthy" or len(lines) >= len(figures) > 0
    case = load("oom")
    for step, second in zip(case.document["chain"], (30, 10, 20, 40), strict=False):
        step["time"], step["evidence"] = f"2026-11-20T21:13:{second}Z", []
    titles = [step.moment for step in view.story(case.document)[0]]
    assert titles == sorted(titles)


def test_a_long_line_is_cut_around_its_match_which_is_marked() -> None:
    """`RuntimeError: …` stood behind 4,000 characters of a progress bar, and the cut removed it."""
    case = load("oom")
    words = "epoch 1 " * 400 + "Killed process 9" + " tail" * 400
    case.document["verdict"]["evidence"][0] |= {"text": f"  1%|\r  2%|{words}", "match": "Killed process 9"}
    page = report.render_html(case)
    row = page[page.index('<span class="row hit"') :].partition("</span></span>")[0]
    assert "<mark>Killed process 9</mark>" in row and "…" in row and len(row) < 2600 and "1%|" not in row
    assert text.around("a\rb c", "c") == ("b ", "c", "") and text.around("b c", "d") == ("b c", "", "")


def test_a_command_in_an_action_is_code() -> None:
    case = load("oom")
    words = "Run nvidia-smi -q, set NCCL_DEBUG=INFO & <b>."
    case.document["verdict"]["actions"] = [{"kind": "none", "text": words}]
    code = '<code class="run" title="Click to copy">{}</code>'.format
    assert f"Run {code('nvidia-smi -q')}, set {code('NCCL_DEBUG=INFO')} &amp; &lt;b&gt;." in report.render_html(case)


def test_long_sections_are_folded() -> None:
    case = load("oom")
    case.document["clocks"] = [{**case.document["clocks"][0], "host": f"n{n}"} for n in range(128)]
    case.document["clocks"][99]["state"] = "refused"
    case.document["chain"] = case.document["chain"] * 5
    page = report.render_html(case)
    assert page.count('<summary class="step">') == 5 and " more observations, " in page
    clocks = page[page.index('<section id="clocks"') :].partition("</section>")[0]
    assert clocks.index('data-label="host">n99<') < clocks.index("<summary>126 more clocks</summary>"), (
        "one that failed, one that did not"
    )


def test_both_schemes_have_the_same_colors_and_are_chosen_before_the_first_paint() -> None:
    page = report.render_html(load("oom"))
    styles = [page[page.index(begin) :].partition("}")[0] for begin in ("<style>", '<style id="dark"')]
    light, dark = (dict(re.findall(r"--([\w-]+): ([^;]+);", style)) for style in styles)
    assert set(light) - {"mono", "sans"} == set(dark)
    assert not [name for name in dark if dark[name] == light[name]]
    assert page.index('<script id="theme">') < page.index("<body")


def test_secrets_in_the_timeline_are_not_in_the_picture() -> None:
    """The document is redacted before; the picture quotes events."""
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    rows = [
        [1795209228.0 + i, 0.0, "a", 0, "line", "error", None, f"401 for {token}", f"{token}.log", i, "naive"]
        for i in range(3)
    ]
    page = report.render_html(Case(load("oom").document, framed(rows)))
    assert token not in page
    assert "401 for [REDACTED:" in page


def test_without_redaction_the_timeline_has_the_logs_as_they_are(tmp_path: Path) -> None:
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    frame = '  File "train.py", line 3, in <module>\n    main()\n'
    lines = [f"2026-11-20 21:03:{second},120 INFO step {second}\n" for second in (35, 36)]
    lines += [
        f"[rank0]: {line}\n"
        for line in f"Traceback (most recent call last):\n{frame}RuntimeError: 401 for {token}".splitlines()
    ]
    (tmp_path / "rank0.log").write_text("".join(lines))
    for redact in (True, False):
        page = Skeleton(report.render_html(analyze([str(tmp_path)], Options(redact=redact))))
        events = gzip.decompress(base64.b64decode(page.inside["postmortem-events"]))
        assert (b" for hf_" in events) == (token in page.inside["postmortem-incident"]) == (not redact)


def test_a_card_for_notebooks_is_short_and_inert() -> None:
    card = report.card(load("oom").document)
    assert "node-b/kernel/dmesg.txt:81" in card and len(card) < 4000
    skeleton = Skeleton(report.card(poisoned("x").document)).elements
    for payload in PAYLOADS:
        assert Skeleton(report.card(poisoned(payload).document)).elements == skeleton


def test_the_verdict_on_a_terminal_imports_neither_jinja_nor_pandas() -> None:
    script = (
        "import sys; from postmortem import report; report.render_terminal; print({'jinja2', 'pandas', "
        "'rich'} & {*sys.modules})"
    )
    assert python("-c", script, check=True).stdout == "set()\n"


def test_a_damaged_template_in_the_cache_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache has code: it is used only if it is whole, and under its own name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def page() -> str:
        templates.environment.cache_clear()
        return report.render_html(load(NAMES[0]))

    first = page()
    cached = sorted((tmp_path / "postmortem").glob("*.template"))
    good = [path.read_bytes() for path in cached]
    assert good and page() == first
    for path, other in zip(cached, [*good[1:], good[0][:-9] + b"123456789"], strict=True):
        path.write_bytes(other)
    assert page() == first
    assert [path.read_bytes() for path in cached] == good
    templates.environment.cache_clear()
