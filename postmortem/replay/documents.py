"""Reads the incident document out of a report, and puts the result of a replay into one.

In: `report.html`, with its `<script type="application/json" id="postmortem-incident">{...}</script>`, or
`incident.json`. Out: the document as plain values, which nobody trusts; or the file once more, with
`replay.result` in the document and its sentence on the page. The file on disk is the old one or a complete
new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from postmortem.errors import PathMissing, UsageError
from postmortem.model.contract.incident import SCHEMA
from postmortem.system import output

MAX_BYTES = 256 << 20
OPEN = re.compile(
    r'<script\b(?=[^>]{0,200}\btype="application/json")(?=[^>]{0,200}\bid="postmortem-incident")[^>]{0,200}>'
)
SECTION = re.compile(r'<section id="replay".*?</section>\n?', re.DOTALL)
BEFORE = '<section id="sources"'


def read(path: Path) -> dict[str, Any]:
    """The incident document in a report or a JSON file."""
    text = _text(path)
    page = _span(text)
    if page is None and text.lstrip()[:1] != "{":
        raise UsageError(f"{path} is no report of postmortem", "give the HTML or JSON that `postmortem analyze` wrote")
    try:
        document = json.loads(text[slice(*page)] if page else text)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{path} holds no readable incident document", "write it again: postmortem analyze LOGS"
        ) from None
    if (
        not isinstance(document, dict)
        or document.get("schema") != SCHEMA
        or not isinstance(document.get("verdict"), dict)
    ):
        raise UsageError(
            f"{path} holds no incident document ({SCHEMA})",
            "give the HTML or JSON that `postmortem analyze` wrote",
        )
    return document


def attach(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result of a replay into the report:
    in the document, and in HTML also in the section that people read."""
    from postmortem.report import html, json as plain, templates  # isort: skip

    document = read(path)
    hint = document.get("replay")
    replay = {**(hint if isinstance(hint, dict) else {}), "result": dict(result)}
    replay["scenario"] = replay.get("scenario") or result["scenario"]
    document["replay"] = replay
    text = _text(path)
    page = _span(text)
    if page is None:
        output.write_file(path, plain.dump(document, indent=1) + "\n")
        return
    start, end = page
    changed = text[:start] + templates.embedded(document) + text[end:]
    output.write_file(path, _with_section(changed, html.replay_section(replay)))


def _with_section(page: str, section: str) -> str:
    """Log text on the page is escaped, so these marks stand only where the template put them."""
    if SECTION.search(page):
        return SECTION.sub(lambda _: section, page, count=1)
    return page.replace(BEFORE, f"{section}\n{BEFORE}", 1)


def _span(text: str) -> tuple[int, int] | None:
    """Where the document stands in a page."""
    start = OPEN.search(text)
    end = text.find("</script", start.end()) if start else -1
    return (start.end(), end) if start and end >= 0 else None


def _text(path: Path) -> str:
    if not path.is_file():
        raise PathMissing(
            f"{path} is no file",
            "give a report of `postmortem analyze`, or a scenario of `postmortem replay --list`",
        )
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{path} is larger than any report", "give the HTML or JSON that `postmortem analyze` wrote")
    return path.read_bytes().decode("utf-8", "replace")
