"""The interactive timeline in a real Chromium: keys, pointer, filters and links, and the drawing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_cases import load
from test_report_browser import opened, settled
from test_report_timeline import many, packed

from conftest import SCREENS
from postmortem import report
from postmortem.report.events import read_events

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


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
