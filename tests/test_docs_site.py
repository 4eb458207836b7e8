"""The site is built strictly and needs no network."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT, needs, python

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def build(*options: str | Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    words = ("-m", "mkdocs", "build", "--strict", "--config-file", config, *options)
    return python(*words, env={"NO_MKDOCS_2_WARNING": "1"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build("--site-dir", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@needs("mkdocs")
def test_site_is_built_without_a_dead_link(site: Path) -> None:
    """Each page of docs/, the pages outside it that they link to, and a link between the two."""
    assert (pages := [*(ROOT / "docs").rglob("*.md")])
    for page in pages:
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / (name.with_name("index.html") if name.name == "README.html" else name)).is_file(), page
    copies = site / "repository"
    assert (copies / "patterns" / "index.html").is_file() and (copies / "CONTRIBUTING.html").is_file()
    assert (copies / "sample_logs" / "ctrl-c" / "index.html").is_file()
    sample = "repository/sample_logs/host-oom-cache-of-rank-2/index.html"
    assert sample in (site / "questions" / "sigkill.html").read_text()
    report = site / "files" / "reports" / "examples" / "oom-on-second-host.html"
    assert report.read_bytes() == (ROOT / "reports" / "examples" / "oom-on-second-host.html").read_bytes()


@pytest.mark.slow
@needs("mkdocs")
def test_dead_links_and_forgotten_pages_fail(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "other.md").write_text("# Other\n\n## There\n")
    config = tmp_path / "mkdocs.yml"
    settings = (
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: [{ROOT / 'scripts' / 'site_pages.py'}]\n"
        f"docs_dir: {pages}\nsite_dir: {tmp_path / 'site'}\n"
    )
    good = "[a](../LICENSE) [b](../sample_logs/ctrl-c/) [c](other.md#there) `[a](code.md)` is code"
    (pages / "index.md").write_text(f"# One\n\n{good}\n")
    config.write_text(f"{settings}nav: [index.md, '*.md']\n")
    assert build(config=config).returncode == 0
    dead = ("nowhere.md", "other.md#nowhere", "../nowhere.md", "../sample_logs/nowhere/", "../../etc/passwd")
    (pages / "index.md").write_text("# One\n\n" + " ".join(f"[a]({link})" for link in dead) + "\n")
    (pages / "forgotten.md").write_text("# Two\n")
    config.write_text(f"{settings}nav: [index.md, other.md]\n")
    done = build(config=config)
    assert done.returncode != 0 and "forgotten.md" in done.stderr
    for link in dead:
        assert f"'{link}'" in done.stderr, link


@pytest.mark.slow
@pytest.mark.browser
@needs("mkdocs")
def test_search_finds_a_pattern_from_a_folder_without_requests(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("index.html", "reference/cli.html"):
        page.goto((site / path).as_uri())
    page.locator(".md-search__input").click()
    page.keyboard.type("oom")
    page.locator(".md-search-result__item").first.wait_for(timeout=90_000)  # the index is built
    page.locator(".md-search__input").fill("kernel-oom-killed-process")
    page.locator(".md-search-result__item").first.wait_for()
    found = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any("catalogue/host-memory.html" in link for link in found), found
    page.locator(".md-search__input").fill("oom")
    page.get_by_text("matching documents").wait_for()
    assert "/repository/" not in page.locator(".md-search-result__link").first.evaluate("link => link.href")
    assert len(asked) > 5 and not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


@pytest.mark.slow
@pytest.mark.browser
@needs("mkdocs")
def test_no_page_is_wider_than_the_screen(site: Path, browser: Browser) -> None:
    for width in (1280, 400):
        page = browser.new_page(viewport={"width": width, "height": 800})
        for path in ("index", "tutorial", "reference/cli", "catalogue/nccl", "how-to/collect", "contract"):
            page.goto((site / f"{path}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
