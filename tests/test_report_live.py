"""The interactive timeline in a real Chromium: what a reader does with keys, pointer,
filters and links, and what it shows."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_cases import PAYLOADS, Case, frames, load
from test_report_timeline import COLUMNS, ZERO, many

from conftest import ROOT, SCREENS, needs
from postmortem import report
from postmortem.report import columns, text
from postmortem.report.events import read_events

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCRIPTS = ROOT / "reports" / "scripts"


def opened(browser: Browser, folder: Path, case: Case, hash_: str = "", **options: Any) -> Page:
    """The report of `case`, its timeline drawn. Whatever goes wrong in the page fails the test."""
    page = browser.new_page(**options)
    page.on("pageerror", lambda error: pytest.fail(f"error in the page: {error}"))
    page.on("console", lambda message: pytest.fail(f"console: {message.text}"))
    path = folder / "report.html"
    path.write_text(report.render_html(case), encoding="utf-8")
    page.goto(path.as_uri() + hash_)
    settled(page)
    return page


def settled(page: Page) -> None:
    page.locator("#timeline-live[data-drawn]").wait_for()
    # typing and links are waited for, so that not every key costs a pass over all events
    page.wait_for_timeout(400)


def state(page: Page) -> str:
    return str(page.evaluate("location.hash"))


def pixels(page: Page) -> str:
    """What the canvas shows."""
    return str(page.evaluate("document.querySelector('.tl canvas').toDataURL()"))


@pytest.mark.browser
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
    assert state(page) == "#e0", "the window's own address is written late, and must not come behind"


@pytest.mark.browser
def test_keys_walk_over_lanes_and_events_and_say_where_they_are(browser: Browser, tmp_path: Path) -> None:
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


@pytest.mark.browser
def test_a_link_shows_a_colleague_the_same_window_filter_and_event(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, many(64, 20))
    page.get_by_role("button", name="Culprit").click()
    page.locator(".tl canvas").press("+")
    page.get_by_role("textbox", name="ranks").fill("30-40")
    page.get_by_role("checkbox", name="warning").uncheck()
    settled(page)
    link, picture, told = state(page), pixels(page), page.locator(".tl-count").inner_text()
    assert "e=" in link and "z=" in link and "r=30-40" in link and "s=" in link
    again = opened(browser, tmp_path, many(64, 20), link)
    assert again.locator(".tl-count").inner_text() == told
    assert again.locator(".tl-chosen").inner_text() == page.locator(".tl-chosen").inner_text()
    assert pixels(again) == picture
    assert state(again) == link


@pytest.mark.browser
def test_filters_say_how_much_is_left_and_escape_brings_all_back(browser: Browser, tmp_path: Path) -> None:
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


@pytest.mark.browser
def test_the_table_says_what_the_window_holds(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, many(64, 20))
    page.get_by_role("button", name="Whole job").click()
    page.locator(".tl-table summary").click()
    settled(page)
    assert "the 200 worst of 1,344 events" in page.locator(".tl-table").inner_text()
    assert "n004/dmesg:1" in page.locator(".tl-table tbody").inner_text()


@pytest.mark.browser
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
    assert place, "the decisive mark is drawn in the colour of the cause"
    page.locator(".tl canvas").hover(position={"x": place[0], "y": place[1]})
    assert "node-b/kernel/dmesg.txt:81" in page.locator(".tl-tip").inner_text()
    page.locator(".tl canvas").click(position={"x": place[0], "y": place[1]})
    assert "Killed process" in page.locator(".tl-chosen").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_accessible_in_both_colour_schemes(browser: Browser, tmp_path: Path, scheme: Any, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(
        browser, tmp_path, load("oom"), color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 900}
    )
    page.get_by_role("button", name="Culprit").click()
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    settled(page)
    found = axe.Axe().run(page)
    assert not found.response["violations"], json.dumps(found.response["violations"], indent=1)[:3000]


@pytest.mark.browser
def test_colours_follow_the_scheme_and_paper_gets_the_picture(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, load("oom"))
    light = pixels(page)
    page.emulate_media(color_scheme="dark")
    settled(page)
    assert pixels(page) != light
    assert not page.locator("svg.timeline").is_visible()
    page.emulate_media(media="print")
    assert page.locator("svg.timeline").is_visible() and not page.locator(".tl canvas").is_visible()


@pytest.mark.browser
def test_without_decompression_the_picture_stays(browser: Browser, tmp_path: Path) -> None:
    """Browsers of before 2023."""
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    path = tmp_path / "report.html"
    path.write_text(report.render_html(load("oom")), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_timeout(300)
    assert page.locator("svg.timeline").is_visible()


@pytest.mark.browser
def test_refused_clocks_are_hatched_and_unsure_times_are_wide(browser: Browser, tmp_path: Path) -> None:
    case = load("oom")
    before = pixels(opened(browser, tmp_path, case))
    for clock in case.document["clocks"]:
        clock["state"] = "refused" if clock["host"] == "node-a" else clock["state"]
    assert pixels(opened(browser, tmp_path, case)) != before
    rows = [[ZERO + i, 0.0, "a", 0, "line", "error", None, "e", "a.log", i, "naive"] for i in range(3)]
    unsure = [[*row[:1], 0.4, *row[2:]] for row in rows]
    sure, wide = (
        pixels(opened(browser, tmp_path, Case({}, frames({"columns": COLUMNS, "rows": some}))))
        for some in (rows, unsure)
    )
    assert sure != wide


# ── the data block ──────────────────────────────────────────────────────────────────────────────────────────


def packed(case: Case, limit: int = columns.MAX_EVENTS) -> columns.Block:
    found = columns.block(case.document, read_events(case), limit)
    assert found
    return found


@pytest.mark.browser
def test_the_page_reads_back_every_event(browser: Browser, tmp_path: Path) -> None:
    """What Python packs, the browser unpacks:
    times, lanes, texts and addresses of all events, through the table."""
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


@needs("node")
def test_every_text_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """Numbers that count on, jump, have leading zeros, points,
    or more digits than a double holds; and all that is hostile."""
    said = [f"step {n}: loss {n / 7:.4f} {n:03d} 0x{n:x} {10**n} {n}.{n} {n * 7919 % 1000}" for n in range(40)]
    said += [text.line(payload)[:300] for payload in PAYLOADS] + ["", "0", "00", "1.", ".5", "٣ ３ 1٣"]
    rows = [
        [ZERO + i, 0.0, "a", i % 3, "line", "info", None, words, "a.log", i, "naive"] for i, words in enumerate(said)
    ]
    found = packed(Case({}, frames({"columns": COLUMNS, "rows": rows})))
    (tmp_path / "block").write_text(found.data)
    script = f"""import {{ decode, unpack }} from "{(SCRIPTS / "src" / "data.js").as_uri()}";
      import {{ readFileSync }} from "node:fs";
      const events = decode(await unpack(readFileSync("{tmp_path / "block"}", "utf8")));
      const rows = [...Array(events.count).keys()].map((i) => [events.line[i], events.text(i)]);
      console.log(JSON.stringify(rows));"""
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script], capture_output=True, text=True, check=True, timeout=60
    )
    read = dict(json.loads(done.stdout))
    assert [read[i] for i in range(1, len(said)) if said[i]] == [words for words in said[1:] if words]


def test_thinning_keeps_what_is_bad_and_what_is_cited_and_says_what_it_left_out() -> None:
    case = many(64, 200)
    found = packed(case, 3000)
    assert found.events <= 3000
    (note,) = found.notes
    assert "of 12,864 events" in note and "lines that are no warning and no error" in note
    rows = [row for row in read_events(case) if row.severity != "info"]
    kept, _ = columns.thinned(read_events(case), 3000, set())
    assert [row for row in kept if row.severity != "info"] == sorted(rows, key=lambda r: r.severity != "fatal")
    assert not packed(case).notes


def test_secrets_stay_out_of_the_block() -> None:
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    rows = [
        [ZERO + i, 0.0, "a", 0, "line", "info", None, f"login {token}", f"{token}.log", i, "naive"] for i in range(3)
    ]
    shown = read_events(Case({}, frames({"columns": COLUMNS, "rows": rows})))
    assert len(shown) == 3 and not [row for row in shown if token in row.text + row.address]


def test_the_block_is_the_same_in_any_order_of_reading() -> None:
    case = load("oom")
    rows = read_events(case)
    assert columns.block(case.document, rows) == columns.block(case.document, rows[::-1])


def test_a_thousand_ranks_cost_less_than_a_photograph() -> None:
    assert len(packed(many(1024, 20)).data) < 400_000


# ── the script ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bundle_was_made_from_these_sources() -> None:
    """No Node needed: the bundle's first line names its sources by their hash,
    as scripts/build.js computes it."""
    found = hashlib.sha256()
    for source in sorted((SCRIPTS / "src").glob("*.js")):
        found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    first = (SCRIPTS / "report.js").read_text().partition("\n")[0]
    assert found.hexdigest()[:16] in first, "run `npm ci --ignore-scripts && npm run build` in reports/"


@needs("node")
def test_the_bundle_is_what_the_bundler_makes(tmp_path: Path) -> None:
    if not (ROOT / "reports" / "node_modules" / "esbuild").is_dir():
        pytest.skip("esbuild is not installed (npm ci --ignore-scripts in reports/)")
    subprocess.run(["node", SCRIPTS / "build.js", tmp_path / "report.js"], check=True, timeout=60)
    assert (tmp_path / "report.js").read_bytes() == (SCRIPTS / "report.js").read_bytes()


@needs("node")
def test_the_modules_of_the_script() -> None:
    files = sorted(map(str, (SCRIPTS / "test").glob("*.test.js")))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_script_can_stand_in_a_page() -> None:
    bundle = (SCRIPTS / "report.js").read_text(encoding="ascii")
    assert not re.search(
        (
            r"</script|\beval\(|new Function|(inner|outer)HTML|insertAdjacentHTML|document\.write"
            r"|fetch\(|https?://"
        ),
        bundle,
    )


def test_the_shell_is_small() -> None:
    """The page without log text: template, style and script."""
    assert len(report.render_html(load("healthy")).encode()) < 80_000
