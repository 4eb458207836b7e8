"""Extends mkdocs.yml: pages outside docs/, and the meaning of a `*` in the navigation.

A page links to files where they are: `../sample_logs/README.md`, `../../patterns/README.md`. On
GitHub such a link leads there. A site holds only what is below docs/, so each file that a page links to, and
each that those link to in turn, gets a copy in the site, and the links lead to the copies: pages under
`repository/`, other files under `files/`.

    docs/catalogue/nccl.md   ../../sample_logs/ctrl-c/   ->   repository/sample_logs/ctrl-c/README.md

The site so needs no address of a repository, and can be read offline. A link to a file that is not there
stays as it is, and `mkdocs build --strict` fails on it. The functions called `on_…` are called by mkdocs.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES, OTHERS = "repository", "files"  # apart, since x.md becomes x.html, and there may be an x.html
BOOST = {"questions": 4, "how-to": 2, "tutorial.md": 2, PAGES: 0.2}
UNSEARCHED = (f"{PAGES}/reports/", f"{PAGES}/sample_logs/")  # half of all words, which only repeat patterns
NOTE = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)  # who wrote the page; mkdocs takes a title only from its first line
LINK = re.compile(
    r"""^(?P<fence>`{3,}).*?^(?P=fence)[ ]*$   # code holds brackets of its own
      | (?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)
      | (?P<before>\]\( | ^\[[^\]\n]+\]:[ ])(?![a-z]+:|/)(?P<path>[^)\s\#]+)""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of docs/ in the place of each `*` in the navigation, but those that it names itself."""
    pages = sorted(p.relative_to(config.docs_dir).as_posix() for p in Path(config.docs_dir).rglob("*.md"))
    named = {*_leaves(config.nav)}
    config.nav = _spread(config.nav, [page for page in pages if page not in named])
    return config


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(entry)


def _spread(nav: Any, pages: list[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _spread(entry, pages) for title, entry in nav.items()}
    if not isinstance(nav, list):
        return nav
    spread: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            spread += [page for page in pages if fnmatch(page, entry)]
        else:
            spread.append(_spread(entry, pages))
    return spread


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a copy of each file outside docs/ that a page leads to."""
    fresh = [file for file in files if file.is_documentation_page()]
    while fresh:
        file = fresh.pop()
        for match in LINK.finditer(file.content_string):
            target = _target(file.src_uri, match)
            if target and not files.get_file_from_path(place := _place(target)):
                copy = File.generated(config, place, abs_src_path=str(ROOT / target))
                files.append(copy)
                fresh += [copy] if copy.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to files of the site, and its search list explanations before samples."""
    folder = page.file.src_uri.partition("/")[0]
    found = not page.file.src_uri.startswith(UNSEARCHED)
    page.meta["search"] = {"boost": BOOST.get(folder, 1)} if found else {"exclude": True}

    def led(match: re.Match[str]) -> str:
        target = _target(page.file.src_uri, match)
        if not target:
            return match[0]
        return match["before"] + posixpath.relpath(_place(target), posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(led, NOTE.sub("", markdown))


def _target(source: str, match: re.Match[str]) -> str:
    """The file of the repository that a link of this page means; empty if there is none."""
    if not match["path"]:
        return ""
    origin = source.removeprefix(f"{PAGES}/") if source.startswith(f"{PAGES}/") else f"docs/{source}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match["path"]))
    if (ROOT / target).is_dir():
        target += "/README.md"
    inside = not target.startswith("..") and os.path.realpath(ROOT / target).startswith(f"{ROOT}/")
    return target if inside and (ROOT / target).is_file() else ""


def _place(target: str) -> str:
    """Where a file of the repository is in the site."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"{PAGES if target.endswith('.md') else OTHERS}/{target}"
