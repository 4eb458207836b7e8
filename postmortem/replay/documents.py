"""Reads the incident document out of a report, and puts the result of a replay into one.

In: `report.html`, with its `<script type="application/json" id="postmortem-incident">{...}</script>`, or
`incident.json`. Out: the document as plain values, which are not to be trusted; or the same file with
`replay.result` in the document and its sentence on the page, replaced as a whole.
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
GIVE = "give the HTML or JSON that `postmortem analyze` wrote"
BEFORE = '<section id="sources"'


def read(path: Path) -> dict[str, Any]:
    """Return the incident document in a report or a JSON file."""
    text = _text(path)
    page = _span(text)
    if page is None and text.lstrip()[:1] != "{":
        raise UsageError(f"{path} is not a postmortem report", GIVE)
    try:
        document = json.loads(text[slice(*page)] if page else text)
    except (ValueError, RecursionError):
        again = "write it again: postmortem analyze LOGS"
        raise UsageError(f"{path} contains no readable incident document", again) from None
    if isinstance(document, dict) and document.get("schema") == SCHEMA and isinstance(document.get("verdict"), dict):
        return document
    raise UsageError(f"{path} contains no incident document ({SCHEMA})", GIVE)


def attach(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result of a replay into the document of the report, and in HTML also into the visible section."""
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
    text = text[:start] + templates.embedded(document) + text[end:]
    section = html.replay_section(replay)
    # Log text on the page is escaped, so only the template can have written these marks.
    if SECTION.search(text):
        text = SECTION.sub(lambda _: section, text, count=1)
    else:
        text = text.replace(BEFORE, f"{section}\n{BEFORE}", 1)
    output.write_file(path, text)


def _span(text: str) -> tuple[int, int] | None:
    """Return start and end of the document in a page."""
    start = OPEN.search(text)
    end = text.find("</script", start.end()) if start else -1
    return (start.end(), end) if start and end >= 0 else None


def _text(path: Path) -> str:
    if not path.is_file():
        give = "give a report of `postmortem analyze`, or a scenario of `postmortem replay --list`"
        raise PathMissing(f"{path} is not a file", give)
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{path} is larger than any report", GIVE)
    with path.open("rb") as file:  # it may grow
        return file.read(MAX_BYTES).decode("utf-8", "replace")
