"""The report in a real Chromium, opened from file:// as an engineer opens an attachment; and its interactive timeline:
keys, pointer, filters and links, and the drawing."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_cases import NAMES, PAYLOADS, Case, load, mixed
from test_report_timeline import many, packed

from conftest import SCREENS
from postmortem import report
from postmortem.report.events import read_events
from postmortem.report.markdown import render_chat

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

ELEMENTS = "[...document.querySelectorAll('*')].map(e => e.tagName + [...e.attributes].map(a => a.name).join())"


def opened(
    browser: Browser, folder: Path, case: Case, hash_: str = "", name: str = "report.html", **options: Any
) -> Page:
    """Return the report of `case` with its timeline drawn. Requests, dialogs, errors and messages fail the test."""
    page = browser.new_page(**options)
    path = folder / name
    path.write_text(report.render_html(case), encoding="utf-8")
    for event in ("dialog", "console", "pageerror"):
        page.on(event, lambda found, event=event: pytest.fail(f"{event}: {found}"))  # type: ignore[misc]
    page.on("request", lambda found: found.url.startswith(path.as_uri()) or pytest.fail(f"request {found.url}"))
    page.add_init_script("addEventListener('securitypolicyviolation', e => console.error(e.violatedDirective))")
    page.goto(path.as_uri() + hash_)
    if case.timeline is not None:
        settled(page)
        page.evaluate("document.querySelectorAll('.tl-tools').forEach(part => { part.open = true; })")
    return page


def settled(page: Page) -> None:
    page.locator("#timeline-live[data-drawn]").wait_for()
    page.wait_for_timeout(400)  # typing and links act after a delay, so that not every key costs a pass over all events


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_it_opens_without_a_request_an_error_or_a_sideways_scroll(
    browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    for name in NAMES:
        page = opened(browser, tmp_path, load(name), viewport={"width": width, "height": 850}, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").bounding_box()["y"] < 400  # type: ignore[index]
        proof = page.locator(".hero .hit").bounding_box()
        assert proof and proof["y"] < 850, "the decisive line is on the first screen"


def test_injections_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """Payloads in all fields, others on each page: the elements are those of the same document with harmless words."""
    words = tuple(f"word{place}" for place in range(len(PAYLOADS)))
    for start in range(0, len(PAYLOADS), 15):
        hostile, harmless = (
            Counter(opened(browser, tmp_path, mixed(start, texts)).evaluate(ELEMENTS)) for texts in (PAYLOADS, words)
        )
        for found in (hostile, harmless):  # the commands in an action, which is the pattern's text
            found.pop("CODEclass,title", None)
        assert hostile == harmless


def test_the_policy_stops_injected_markup(browser: Browser, tmp_path: Path) -> None:
    """The second lock: even if a payload became markup, nothing of it could run or call out."""
    path = tmp_path / "broken.html"
    hole = "<script>document.title='owned'</script><img src=https://example.com/x onerror=\"document.title='owned'\">"
    path.write_text(report.render_html(load("oom")).replace("<main>", f"<main>{hole}"), encoding="utf-8")
    page = browser.new_page()
    left: list[str] = []
    page.on("requestfinished", lambda request: left.append(request.url))
    page.goto(path.as_uri())
    assert "owned" not in page.title()
    assert not [url for url in left if url.startswith("http")]


def test_it_reads_without_script_and_prints(browser: Browser, tmp_path: Path) -> None:
    """Some build servers strip scripts from what they serve, and tickets get printed."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    path = tmp_path / "report.html"
    case = load("oom")
    path.write_text(report.render_html(case), encoding="utf-8")
    page.goto(path.as_uri())
    for words in ("What to do now", "How it happened", "node-b/kernel/dmesg.txt:81", "Files, clocks, names"):
        assert page.get_by_text(words).first.is_visible()
    assert not page.get_by_role("button").all(), "buttons need the script"
    assert len(page.pdf()) > 20_000
    context.close()


def test_a_link_to_folded_evidence_unfolds_it(browser: Browser, tmp_path: Path) -> None:
    case = load("oom")
    case.document["verdict"]["evidence"].append({"source": "other.log", "line": 7, "text": "seen, and not needed"})
    page = opened(browser, tmp_path, case)
    assert not page.locator("#e4").is_visible()
    page.goto(page.url + "#e4")
    assert page.locator("#e4").is_visible()


# ── a job of 1,024 ranks ────────────────────────────────────────────────────────────────────────────────────


def large() -> Case:
    """1,024 ranks on 128 hosts: long evidence, a clock for each host, a file for each rank."""
    case = many(1024, 20)
    document = case.document
    for item in document["ranks"]:
        rank = item["rank"]
        item |= {"host": f"n{rank // 8:03d}", "last_step": 20, "why": f"timed out ({rank}.log:20)"}
    around = {"context": [f"step {n}" for n in range(11)], "context_before": 5}
    document["verdict"]["evidence"] += [
        {
            "source": f"{r}.log",
            "line": 20,
            "text": f"[rank{r}] Timed out",
            "rank": r,
            "host": f"n{r // 8:03d}",
            **around,
        }
        for r in range(64)
    ]
    others = {"ranks": [r for r in range(1024) if r != 37]}
    document["chain"].append({**document["chain"][-1], "count": 64, "evidence": [*range(4, 64)], "entity": others})
    document["clocks"] = [{**document["clocks"][0], "host": f"n{n:03d}"} for n in range(128)]
    document["sources"] = [{**document["sources"][0], "path": f"n{r // 8:03d}/{r}.log", "rank": r} for r in range(1024)]
    return case


@pytest.mark.slow
def test_a_thousand_ranks_are_a_heat_map_below_the_pinned_culprit(browser: Browser, tmp_path: Path) -> None:
    """128 folded hosts, each as tall as a lane, once moved the important one off the screen."""
    page = opened(browser, tmp_path, large(), viewport={"width": 1280, "height": 900})
    canvas = page.locator(".tl canvas")
    assert canvas.bounding_box()["height"] < 900  # type: ignore[index]
    canvas.focus()
    seen = []
    for _ in range(7):
        page.keyboard.press("ArrowDown")
        seen.append(str(canvas.get_attribute("aria-label")))
    assert seen[0] == "Timeline, lane 1 of 137: n004", "the culprit's host and its ranks, then 128 hosts"
    assert seen[6] == "Timeline, lane 7 of 137: rank 37, cause"
    red = """() => { const c = document.querySelector('.tl canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      const rows = new Set();
      for (let y = 300; y < c.height - 40; y++) for (let x = 200; x < c.width - 20; x++) {
        const i = 4 * (y * c.width + x);
        if (d[i] > 150 && d[i + 1] < 110 && d[i + 2] < 110) rows.add(y); }
      return rows.size; }"""
    page.get_by_role("button", name="Whole job").click()
    page.wait_for_timeout(300)
    assert page.evaluate(red) > 400, "each of 128 hosts is four pixels of trouble at the end"
    canvas.press("r")
    page.wait_for_timeout(300)
    assert page.get_by_role("button", name="Rows: ranks").is_visible()
    assert "b=rank" in page.url
    again = browser.new_page()
    again.goto(page.url)
    again.get_by_role("button", name="Rows: ranks").wait_for()


def test_the_rank_table_sorts_searches_and_filters(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, large())
    ranks = page.locator("#ranks")
    rows = ranks.locator("tbody tr")
    first = rows.first.locator("th")
    assert [first.inner_text(), rows.count()] == ["37", 2]
    ranks.get_by_role("searchbox").fill("700")
    assert [rows.count(), rows.first.inner_text().startswith("0–36, 38–1023")] == [1, True]
    ranks.get_by_role("checkbox").check()
    assert [first.inner_text(), rows.count()] == ["700", 1]
    ranks.get_by_role("searchbox").fill("")
    assert rows.count() == 100 and ranks.get_by_role("button", name="Show more").is_visible()
    ranks.get_by_role("button", name="ranks").click()
    ranks.get_by_role("button", name="ranks").click()
    assert first.inner_text() == "1023"
    ranks.get_by_role("combobox").select_option("cause")
    assert [first.inner_text(), ranks.locator(".rank-count").inner_text()] == ["37", "1 of 1,024 ranks"]


@pytest.mark.slow
def test_a_thousand_ranks_fit_on_eight_pages_of_paper(browser: Browser, tmp_path: Path) -> None:
    """Printing unfolded everything: 61 pages, of which the last 50 listed files."""
    page = opened(browser, tmp_path, large())
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", page.pdf()))
    assert 2 <= pages <= 8


@pytest.mark.slow
def test_no_width_scrolls_sideways(browser: Browser, tmp_path: Path) -> None:
    """On half a screen, 710 to 1,000 pixels, the tables of ranks and clocks were wider than the page."""
    case = large()
    for item in case.document["ranks"]:
        item |= {"exit": "SIGABRT", "last_collective": "ALLREDUCE #4228", "group": item["rank"] % 3}
        item["last_line"] = {"source": f"gpu-0065/attempt_0/{item['rank']}/stderr.log", "line": 1073}
    page = opened(browser, tmp_path, case)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    for width in (320, 720, 900, 1000, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paper_has_the_layout_of_a_screen(browser: Browser, tmp_path: Path) -> None:
    """A4 between its margins is narrower than 44rem: tables printed as stacks of cards, and the decisive line alone."""
    page = opened(browser, tmp_path, load("oom"), viewport={"width": 680, "height": 900})
    beside = page.locator(".decisive .row:not(.hit)").first
    head = page.locator("#rank-groups thead")
    assert not (beside.is_visible() or head.is_visible())
    page.emulate_media(media="print")
    assert beside.is_visible() and head.is_visible()
    assert page.locator("#verdict").bounding_box()["x"] >= 0  # type: ignore[index]


def test_the_verdict_of_a_thousand_ranks_is_in_the_first_bytes_of_the_page() -> None:
    """It is painted before the data is there: styles and verdict first, then tables, then what the script reads."""
    page = report.render_html(large())
    assert page.index('id="headline"') < page.index('class="chips"') < 40_000
    assert page.index("</main>") < page.index('id="postmortem-incident"') < page.index('id="postmortem-events"')


# ── finding and reading ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_few_tab_stops_are_before_the_timeline(browser: Browser, tmp_path: Path) -> None:
    """Lists of links are one stop each, with arrow keys inside."""
    for case in (*map(load, NAMES), large()):
        page = opened(browser, tmp_path, case, viewport={"width": 1280, "height": 900})
        if not page.locator(".tl canvas").count():
            continue
        stops = 0
        while page.evaluate("document.activeElement.tagName") != "CANVAS":
            page.keyboard.press("Tab")
            stops += 1
            assert stops < 15
    page.locator("nav a").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.hash") == page.locator("nav a").nth(1).get_attribute("href")


@pytest.mark.slow
def test_search_finds_folded_text_and_lines_of_the_timeline(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"))
    page.keyboard.press("/")
    page.keyboard.type("guard launcher-root-cause")
    page.get_by_text("1 found").wait_for()
    entry = page.get_by_text("guard launcher-root-cause").last
    assert not entry.is_visible()
    page.keyboard.press("Enter")
    assert entry.is_visible() and page.locator("#said").inner_text().startswith("1 of 1")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Connection closed by peer")
    page.get_by_role("button", name="in the timeline").click()
    page.wait_for_timeout(400)
    assert re.match(r"\d+ of \d+ events", page.locator(".tl-count").inner_text())
    page.locator("#find").press("Escape")
    assert page.locator("#said").inner_text() == ""


@pytest.mark.slow
def test_the_theme_is_stored_and_applied_before_the_first_paint(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(color_scheme="light")
    path = tmp_path / "report.html"
    path.write_text(report.render_html(load("oom")), encoding="utf-8")
    page = context.new_page()
    page.goto(path.as_uri())
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    for name in ("light", "dark"):
        page.locator("#theme-next").click()
        assert page.locator("#theme-next").inner_text() == f"Theme: {name}"
    dark = page.evaluate(paper)
    assert dark != light
    again = context.new_page()
    again.add_init_script(f"requestAnimationFrame(() => {{ window.first = {paper}; }})")
    again.goto(path.as_uri())
    assert again.evaluate("window.first") == dark
    again.locator("#theme-next").click()
    assert again.evaluate(paper) == light and again.locator("#theme-next").inner_text() == "Theme: auto"
    context.close()


def test_clicks_copy_addresses_markdown_and_a_summary_and_lines_have_links(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"), permissions=["clipboard-read", "clipboard-write"])

    def clipboard() -> str:
        page.wait_for_timeout(100)
        return str(page.evaluate("navigator.clipboard.readText()"))

    page.locator("#e0 .copy").click()
    page.get_by_text("Copied").wait_for()
    assert clipboard() == "node-b/kernel/dmesg.txt:81"
    page.locator("#ranks td.address").first.click()
    assert clipboard() == page.locator("#ranks td.address").first.inner_text()
    page.get_by_role("button", name="Copy for Slack").click()
    assert clipboard() == render_chat(load("oom"))
    page.get_by_role("button", name="Copy for ticket").click()
    assert clipboard() == report.render_markdown(load("oom"))
    page.locator("#e0l79 a.number").click()
    assert page.url.endswith("#e0l79") and page.locator("#e0l79:target").is_visible()


def state(page: Page) -> str:
    return str(page.evaluate("location.hash"))


def pixels(page: Page) -> str:
    return str(page.evaluate("document.querySelector('.tl canvas').toDataURL()"))


def test_from_the_keyboard_alone_to_the_evidence_of_the_culprit(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"))
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    page.keyboard.press("c")
    assert "node-b/kernel/dmesg.txt:81" in page.locator(".tl-chosen").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#e0$"))  # a function to wait for would be eval, which the page forbids
    assert page.locator("#e0 .hit").is_visible()
    settled(page)
    assert state(page) == "#e0", "the window's address is written after a delay, and must not replace it"


def test_keys_move_over_lanes_and_events(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"))
    canvas = page.locator(".tl canvas")
    canvas.focus()
    seen = set()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", "f", "t"]:
        page.keyboard.press(key)
        seen.add(page.locator(".tl-chosen").inner_text() + str(canvas.get_attribute("aria-label")))
    assert len(seen) >= 6
    assert re.match(r"Timeline, lane \d+ of \d+: ", str(canvas.get_attribute("aria-label")))
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


@pytest.mark.slow
def test_a_link_shows_a_colleague_the_same_window_filter_and_event(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, many(64, 20))
    page.get_by_role("button", name="Culprit").click()
    page.locator(".tl canvas").press("+")
    page.get_by_role("textbox", name="ranks").fill("30-40")
    page.get_by_role("checkbox", name="warning").uncheck()
    settled(page)
    link, picture, count = state(page), pixels(page), page.locator(".tl-count").inner_text()
    assert "e=" in link and "z=" in link and "r=30-40" in link and "s=" in link
    again = opened(browser, tmp_path, many(64, 20), link)
    assert again.locator(".tl-count").inner_text() == count
    assert again.locator(".tl-chosen").inner_text() == page.locator(".tl-chosen").inner_text()
    assert pixels(again) == picture
    assert state(again) == link


@pytest.mark.slow
def test_filters_show_a_count_and_escape_removes_them(browser: Browser, tmp_path: Path) -> None:
    case = many(16, 5)
    page = opened(browser, tmp_path, case)
    page.get_by_role("searchbox", name="text").fill("KILLED process")
    settled(page)
    assert page.locator(".tl-count").inner_text() == "1 of 97 events"
    page.locator(".tl-table summary").click()
    settled(page)
    assert (
        page.locator(".tl-table tbody tr").count() == 0
        or "Killed process 9" in page.locator(".tl-table tbody").inner_text()
    )
    page.locator(".tl canvas").press("Escape")
    settled(page)
    assert page.locator(".tl-count").inner_text() == ""


def test_pointer_shows_the_line_and_its_address(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"), viewport={"width": 1280, "height": 900})
    page.get_by_role("button", name="Culprit").click()
    page.locator(".tl canvas").scroll_into_view_if_needed()
    place = page.evaluate(
        """() => { const c = document.querySelector('.tl canvas'), found = [];
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const cause = getComputedStyle(c).getPropertyValue('--cause');
        const want = cause.match(/[0-9a-f]{2}/gi).map(x => parseInt(x, 16));
        const same = i => want.every((v, k) => Math.abs(d[i + k] - v) < 3);
        for (let y = 64; y < c.height - 30; y++) for (let x = 180; x < c.width - 20; x++) { let run = 0;
          while (run < 5 && same(4 * (y * c.width + x + run))) run++; if (run === 5) found.push([x + 2, y]); }
        return found[Math.floor(found.length / 2)]; }"""
    )
    assert place, "the decisive mark is drawn in the color of the cause"
    page.locator(".tl canvas").hover(position={"x": place[0], "y": place[1]})
    assert "node-b/kernel/dmesg.txt:81" in page.locator(".tl-tip").inner_text()
    page.locator(".tl canvas").click(position={"x": place[0], "y": place[1]})
    assert "Killed process" in page.locator(".tl-chosen").inner_text()


@pytest.mark.parametrize(("width", "scheme"), SCREENS[:2])
def test_accessible_in_both_color_schemes(browser: Browser, tmp_path: Path, scheme: Any, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(
        browser, tmp_path, load("oom"), color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 900}
    )
    page.get_by_role("button", name="Culprit").click()
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    settled(page)
    found = axe.Axe().run(page)
    assert not found.response["violations"], json.dumps(found.response["violations"], indent=1)[:3000]


def test_colors_follow_the_scheme_and_paper_has_the_picture(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"))
    light = pixels(page)
    page.emulate_media(color_scheme="dark")
    settled(page)
    assert pixels(page) != light
    assert not page.locator("svg.timeline").is_visible()
    page.emulate_media(media="print")
    assert page.locator("svg.timeline").is_visible() and not page.locator(".tl canvas").is_visible()


def test_without_decompression_there_is_the_picture(browser: Browser, tmp_path: Path) -> None:
    """Browsers of before 2023."""
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    path = tmp_path / "report.html"
    path.write_text(report.render_html(load("oom")), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_timeout(300)
    assert page.locator("svg.timeline").is_visible()


def test_the_page_reads_back_every_event(browser: Browser, tmp_path: Path) -> None:
    """The browser unpacks what Python packs: times, lanes, texts and addresses of all events, through the table."""
    case = load("oom")
    page = opened(browser, tmp_path, case)
    page.get_by_role("button", name="Whole job").click()
    page.locator(".tl-table summary").click()
    settled(page)
    rows = page.locator(".tl-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    expected = {(row.text, row.address) for row in read_events(case) if row.time == row.time}
    assert {(re.sub(" +", " ", words), address) for _, _, _, words, address in rows} == {
        (re.sub(" +", " ", t), a) for t, a in expected
    }
    assert len(rows) == packed(case).events
