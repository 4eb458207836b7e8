"""The pages of a history: figures that can be checked by hand, links, hostile names, size, and a real browser."""

from __future__ import annotations

import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_cases import PAYLOADS
from test_report_browser import ELEMENTS

from conftest import SAMPLES, SCREENS
from postmortem.fleet.history.pages import EXACT, figures, interval, link, pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SITE = Path("/srv/fleet")


def row(number: int, days: float, **fields: Any) -> dict[str, Any]:
    """An incident so many days ago, as the store gives it."""
    when = (NOW - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return {
        "uid": f"{number:064x}", "outcome": "incident", "category": "host-oom", "confidence": "established",
        "headline": f"Rank {number} was killed", "cause": "c1", "job": str(number), "world_size": 8,
        "hours": 2.0, "lost_rank_hours": 16.0, "report": f"/srv/runs/{number}/report.html", "when": when, **fields,
    }  # fmt: skip


def host(number: int, name: str, fault: bool = True) -> dict[str, Any]:
    return {"uid": f"{number:064x}", "kind": "host", "name": name, "fault": fault}


HISTORY = [
    row(1, 1, cause="c2", category="gpu-hardware", lost_rank_hours=None),
    row(2, 2),
    row(3, 9),
    row(4, 30, lost_rank_hours=4.0),
    row(5, 31, outcome="healthy", category=None, cause=None, lost_rank_hours=0.0, hours=10.0),
]
BLAMED = [host(1, "gpu-1"), host(2, "gpu-2"), host(3, "gpu-2"), host(4, "gpu-3"), host(5, "gpu-1", False)]


def many(count: int, days: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A fleet's year, always the same one."""
    categories = ("host-oom", "hang", "gpu-hardware", "network", "python-exception", "native-crash", "storage", None)
    words = "was killed by the kernel's out-of-memory killer (python3, pid 11721) at 13:18:36; 3 other ranks lost"
    rows = [
        row(
            n,
            n * days / count,
            category=categories[n * 7 % 8],
            cause=f"c{n * 31 % 977}",
            world_size=(1, 8, 64, 512, 4096)[n % 5],
            headline=f"Rank {n % 64} on gpu-{n % 120:03} {words} the connection.",
        )
        for n in range(count)
    ]
    return rows, [host(n, f"gpu-{n % 120:03}") for n in range(count)]


def made(rows: list[dict[str, Any]], involved: list[dict[str, Any]]) -> dict[str, str]:
    return pages(rows, involved, NOW.timestamp(), SITE)


def test_runs_that_ended_well_are_counted_and_fill_no_page() -> None:
    """Ten thousand of them, filed by `postmortem run`, have nothing to lead to."""
    good = {"outcome": "healthy", "category": None, "cause": None, "report": None, "lost_rank_hours": 0.0}
    runs = [row(100 + n, 3.0, **good, headline="Ended with exit code 0.") for n in range(1000)]
    pages_of_all = made([*HISTORY, *runs], BLAMED)
    assert "in 1,005 filed jobs since" in pages_of_all["index.html"]
    assert "Ended with exit code 0." not in "".join(pages_of_all.values())
    assert pages_of_all.keys() == made(HISTORY, BLAMED).keys()


def test_figures_of_a_short_history() -> None:
    found = figures(HISTORY, BLAMED, NOW.timestamp())
    assert [found[name] for name in ("filed", "failed", "recent", "before")] == [5, 4, 2, 1]
    assert found["hours"] == 36.0 and found["unknown_hours"] == 1
    categories = [(c["name"], c["count"], c["recent"]) for c in found["categories"]]
    assert categories == [("host-oom", 3, 1), ("gpu-hardware", 1, 1)]
    assert [(c["name"], c["count"], c["host"], c["there"]) for c in found["causes"]] == [("c1", 3, "gpu-2", 2)]
    assert [c["name"] for c in found["new"]] == ["c2"]
    assert found["sizes"] == [{"ranks": "2–8", "jobs": 5, "failures": 4, "hours": 18.0}]


def test_weeks_without_an_incident_are_shown_too() -> None:
    found = figures(HISTORY, BLAMED, NOW.timestamp())
    assert [sum(counts.values()) for _, counts in found["periods"]] == [1, 0, 0, 1, 2]
    assert all(begin.weekday() == 0 for begin, _ in found["periods"]) and not found["monthly"]
    years = figures([row(1, 0), row(2, 800)], [], NOW.timestamp())
    assert years["monthly"] and len(years["periods"]) == 27 and all(begin.day == 1 for begin, _ in years["periods"])


def test_the_interval_is_that_of_the_tables() -> None:
    """Garwood's limits, as tables of the Poisson distribution have them, without a jump where it is approximate."""
    known = {0: (0.0, 3.689), 1: (0.0253, 5.572), 4: (1.090, 10.242), 20: (12.217, 30.888), 100: (81.364, 121.627)}
    for count, limits in known.items():
        assert interval(count) == pytest.approx(limits, abs=2e-3)
    (low, high), (next_low, next_high) = interval(EXACT), interval(EXACT + 1)
    assert next_low - low == pytest.approx(1, abs=0.1) and next_high - high == pytest.approx(1, abs=0.1)


def test_an_empty_history_is_a_page_too() -> None:
    assert set(made([], [])) == {"index.html"} and "No incidents are filed yet" in made([], [])["index.html"]
    healthy = made([HISTORY[4]], [])
    assert set(healthy) == {"index.html", "2026-10.html"} and "none failed" in healthy["index.html"]


def links(page: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(value or "" for name, value in attrs if name == "href")

    Reader().feed(page)
    return found


def test_every_link_leads_to_a_page_a_section_or_a_report() -> None:
    site = made(HISTORY, BLAMED)
    reports = {f"../runs/{n}/report.html" for n in range(1, 6)}
    for page in site.values():
        for target in links(page):
            anchor = target.removeprefix("#")
            assert target in site or target in reports or f'id="{anchor}"' in page, target
    assert reports == {t for name, page in site.items() if name != "index.html" for t in links(page)} - {
        "#headline", *site
    }  # fmt: skip


def test_a_report_is_linked_as_a_path() -> None:
    for report, target in {
        "/srv/fleet/javascript:alert(1)": "javascript%3Aalert%281%29",
        '/srv/runs/a"b <c>/r.html': "../runs/a%22b%20%3Cc%3E/r.html",
        "/srv/runs/%2e?x#y": "../runs/%252e%3Fx%23y",
        **dict.fromkeys(("javascript:alert(1)", "https://example.com/x", "", None), ""),
    }.items():
        assert link(report, SITE) == target


def test_ten_thousand_incidents_are_a_few_seconds_and_three_megabytes() -> None:
    rows, involved = many(10_000, 365)
    start = time.process_time()
    site = made(rows, involved)
    assert time.process_time() - start < 5
    assert sum(len(page.encode()) for page in site.values()) < 3_000_000
    assert sum(page.count("<tr><td>") for name, page in site.items() if name != "index.html") == 10_000


def hostile(words: tuple[str, ...]) -> dict[str, str]:
    """Payloads in every field that a log or a name reaches."""
    names = ("headline", "category", "cause", "job", "report")
    rows = [
        row(n, n / 40, **{name: words[(n + place) % len(words)] for place, name in enumerate(names)})
        for n in range(len(words))
    ]
    rows += [{**each, "uid": f"{n:064x}"} for n, each in enumerate(rows, 1000)]  # each cause came twice
    return made(rows, [host(n, words[n % len(words)]) for n in (*range(len(words)), *range(1000, 1000 + len(words)))])


def test_no_log_text_becomes_markup() -> None:
    plain = hostile(tuple(f"word{n}" for n in range(len(PAYLOADS))))
    assert plain
    for name, page in hostile(tuple(PAYLOADS)).items():
        tags = Counter(re.findall(r"<(script|img|iframe|svg|style|object|form|input)\b", page))
        assert tags == Counter(re.findall(r"<(script|img|iframe|svg|style|object|form|input)\b", plain[name]))


def test_the_command_writes_the_site(tmp_path: Path, in_process: Any) -> None:
    """A recorded run, filed and shown: its row leads to its report by a relative path."""
    pytest.importorskip("sqlalchemy")
    logs = str(SAMPLES / "oom-on-second-host" / "logs")
    in_process("analyze", logs, "--quiet", "--history", "fleet.db", "--output", "run.html")
    in_process("history", "report", "--history", "fleet.db", "--output", "site")
    assert {path.name for path in (tmp_path / "site").iterdir()} == {"index.html", "2026-11.html"}
    month = (tmp_path / "site" / "2026-11.html").read_text()
    assert "../run.html" in links(month) and "Rank 3 on node-b was killed" in month


def opened(browser: Browser, folder: Path, site: dict[str, str], **options: Any) -> Page:
    """Return the overview of a site. Requests, dialogs, errors and messages fail the test."""
    for name, content in site.items():
        (folder / name).write_text(content, encoding="utf-8")
    page = browser.new_page(**options)
    for event in ("dialog", "console", "pageerror"):
        page.on(event, lambda found, event=event: pytest.fail(f"{event}: {found}"))  # type: ignore[misc]
    page.on("request", lambda found: found.url.startswith(folder.as_uri()) or pytest.fail(f"request {found.url}"))
    page.goto((folder / "index.html").as_uri())
    return page


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_site_fits_the_screen_and_is_accessible_also_by_keyboard(
    browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    screen = {"viewport": {"width": width, "height": 850}, "color_scheme": scheme}
    page = opened(browser, tmp_path, made(*many(300, 120)), **screen)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for name, target in (("2026-11", "2026-11.html"), ("Overview", "index.html")):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").is_visible()
        wrong = axe.Axe().run(page).response["violations"]
        assert not wrong, [(item["id"], [node["html"][:200] for node in item["nodes"][:3]]) for item in wrong]
        for _ in range(90):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == name:
                break
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{target}")


@pytest.mark.browser
def test_hostile_names_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    words = tuple(f"word{n}" for n in range(len(PAYLOADS)))
    harmless = opened(browser, tmp_path, hostile(words)).evaluate(ELEMENTS)
    page = opened(browser, tmp_path, hostile(tuple(PAYLOADS)))
    # neither a payload nor a word is the path of a report: links may differ, and never another element
    found = page.evaluate(ELEMENTS)
    assert Counter(tag for tag in found if tag != "AHREF") == Counter(tag for tag in harmless if tag != "AHREF")
    page.goto((tmp_path / "2026-11.html").as_uri())
