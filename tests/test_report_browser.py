"""The report in a real Chromium, opened from file:// as an engineer opens an attachment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_cases import NAMES, PAYLOADS, Case, load, mixed

from conftest import SCREENS
from postmortem import report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

ELEMENTS = (
    "[...document.querySelectorAll('*')].map(e => e.tagName + [...e.attributes].map(a => a.name).join())"
)


class Watched:
    """A page and everything it did that a report must not do."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.page: Page = browser.new_page(**options)
        self.misdeeds: list[str] = []
        self.opened = ""
        self.page.on(
            "dialog", lambda dialog: (self.misdeeds.append(f"dialog {dialog.message}"), dialog.dismiss())
        )
        self.page.on("console", lambda message: self.misdeeds.append(f"console {message.text}"))
        self.page.on("pageerror", lambda error: self.misdeeds.append(f"error {error}"))
        self.page.on(
            "request",
            lambda request: request.url == self.opened or self.misdeeds.append(f"request {request.url}"),
        )
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error('policy ' + e.violatedDirective))"
        )

    def open(self, case: Case, folder: Path, name: str = "report.html") -> Page:
        path = folder / name
        path.write_text(report.render_html(case), encoding="utf-8")
        self.opened = path.as_uri()
        self.page.goto(self.opened)
        if case.timeline:
            self.page.locator("#timeline-live[data-drawn]").wait_for()
        return self.page


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_it_opens_without_a_request_an_error_or_a_sideways_scroll(
    browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    watched = Watched(browser, viewport={"width": width, "height": 850}, color_scheme=scheme)
    for name in NAMES:
        page = watched.open(load(name), tmp_path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").bounding_box()["y"] < 400  # type: ignore[index]
        proof = page.locator(".hero .hit").bounding_box()
        assert proof and proof["y"] < 850, "the decisive line stands on the first screen"
    assert not watched.misdeeds


def test_injections_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """Payloads in all fields, moved on from page to page:
    the elements are those of the same document with harmless words."""
    watched = Watched(browser)
    words = tuple(f"word{place}" for place in range(len(PAYLOADS)))
    for start in range(0, len(PAYLOADS), 7):
        harmless = Counter(
            watched.open(mixed(start, words), tmp_path, f"{start}-harmless.html").evaluate(ELEMENTS)
        )
        assert Counter(watched.open(mixed(start), tmp_path, f"{start}.html").evaluate(ELEMENTS)) == harmless
        assert not watched.misdeeds


def test_the_policy_stops_what_would_get_in(browser: Browser, tmp_path: Path) -> None:
    """The second lock: even if a payload did become markup, nothing of it could run or call out."""
    path = tmp_path / "broken.html"
    hole = (
        "<script>document.title='owned'</script><img src=https://example.com/x "
        "onerror=\"document.title='owned'\">"
    )
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
    for words in ("What to do now", "How it happened", "node-b/kernel/dmesg.txt:81", "What was read"):
        assert page.get_by_text(words).first.is_visible()
    assert not page.get_by_role("button").all(), "what cannot work is not offered"
    assert len(page.pdf()) > 20_000
    context.close()


def test_copy_as_markdown_is_the_markdown_output(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    path = tmp_path / "report.html"
    path.write_text(report.render_html(load("oom")), encoding="utf-8")
    page.goto(path.as_uri())
    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == report.render_markdown(load("oom"))
    context.close()


def test_a_link_to_folded_evidence_unfolds_it(browser: Browser, tmp_path: Path) -> None:
    case = load("oom")
    case.document["verdict"]["evidence"].append(
        {"source": "other.log", "line": 7, "text": "seen, and not needed"}
    )
    page = Watched(browser).open(case, tmp_path)
    assert not page.locator("#e4").is_visible()
    page.goto(page.url + "#e4")
    assert page.locator("#e4").is_visible()
