"""A report -> pictures of it, taken by the system's Chromium.

    python scripts/screenshot.py reports/examples/oom-on-second-host.html docs/report.png --height 720
    python scripts/screenshot.py report.html out.png --width 400 --scheme dark --full
    python scripts/screenshot.py report.html out.pdf

The first form makes the picture of the README.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def shoot(report: Path, target: Path, width: int, height: int, scheme: Any, full: bool, scroll: str) -> None:
    """Open the report as a reader would, wait for its timeline, and save the visible page;
    a .pdf is the printed one."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("POSTMORTEM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(report.resolve().as_uri())
        if page.locator("#postmortem-events").count():
            page.locator("#timeline-live[data-drawn]").wait_for(timeout=20_000)
        if target.suffix == ".pdf":
            page.pdf(
                path=target,
                format="A4",
                margin={"top": "1.5cm", "bottom": "1.5cm", "left": "1.5cm", "right": "1.5cm"},
            )
        else:
            if scroll:
                page.locator(scroll).evaluate("element => element.scrollIntoView()")
                page.wait_for_timeout(200)
            page.screenshot(path=target, full_page=full)
        browser.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=860)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--full", action="store_true", help="the whole page, not the first screen")
    parser.add_argument("--scroll", default="", metavar="SELECTOR", help="bring this into sight first")
    given = parser.parse_args(arguments)
    shoot(given.report, given.target, given.width, given.height, given.scheme, given.full, given.scroll)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
