"""Incidents to render: the documents of tests/data/report, and the same with hostile text in every field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import pandas as pd

from postmortem.model.frame import of_columns, plain

DATA = Path(__file__).parent / "data" / "report"
NAMES = ("oom", "undetermined", "healthy")

# Each has got out of some report, terminal or chat: markup, script contexts, style, templates, Markdown, escapes.
PAYLOADS = (
    "</script><script>alert(1)</script><!--<script>",
    "--><img src=x onerror=alert(1)>]]><svg onload=alert(1)>",
    "</style><style>*{display:none}</style></title><script>alert(1)</script>",
    "</pre></mark></span></figure><h1>forged</h1>",
    '"><img src=x onerror=alert(1)>" onmouseover="alert(1)" x="',
    "'><img src=x onerror=alert(1)>' autofocus onfocus=alert(1) '",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<a href=javascript:alert(1)>click</a><iframe src=https://example.com></iframe>",
    "<link rel=stylesheet href=https://example.com/x.css><base href=https://example.com/>",
    "<meta http-equiv=refresh content='0;url=https://example.com'>",
    "<form action=https://example.com><input name=x></form><object data=https://example.com/x></object>",
    "<template><script>alert(1)</script></template><math><mtext></mtext><script>alert(1)</script></math>",
    "<svg><use href='https://example.com/x#y'/></svg><details open ontoggle=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<plaintext><textarea><xmp>",
    "{{7*7}}{% for x in ().__class__.__mro__ %}{% endfor %}{# #}${alert(1)}`alert(1)`",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;b&#62; &amp; \\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "line\u2028separator\u2029end, before\x00after\x01\x08, carriage\rreturn\nnext\x0b\x0c\x85line",
    "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x9b31m\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\",
    "\u202egnp.exe\u202c \u2066isolated\u2069 \u200fmark, tag\U000e0041\U000e007f \ufeff \u200b \u2060",
    "half a pair \ud800 and \udfff, and a byte \udc80",
    "```\n# forged heading\n```\n<b>x</b>",
    "~~~~ `````` [x](https://example.com) ![y](https://example.com/y.png)",
    "| a | b |\n|---|---|\n1. one\n- two\n> three\n***",
    "https://example.com www.example.com @someone #123 GH-1 user/repo#4",
    "=cmd|' /C calc'!A0",
    "$(touch /tmp/x) `id` ; rm -rf / && --flag ../../../../etc/passwd",
    "long " + "A" * 6000,
)


COLUMNS = ("time", "sigma", "host", "rank", "kind", "severity", "pattern", "text", "source", "line", "clock")


@dataclass(frozen=True)
class Case:
    document: dict[str, Any]
    timeline: pd.DataFrame | None = None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the timeline as values of COLUMNS."""
        assert self.timeline is not None
        return list(zip(*(plain(self.timeline[name]) for name in COLUMNS), strict=True))


def load(name: str) -> Case:
    document = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    events = DATA / f"{name}.events.json"
    return Case(document, framed(json.loads(events.read_text())["rows"]) if events.exists() else None)


def framed(rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    return of_columns(dict(zip(COLUMNS, zip(*rows, strict=True), strict=False)), len(rows))


def poisoned(text: str) -> Case:
    """Return the OOM incident with `text` in every text field and in keys of free mappings."""
    return _poisoned(repeat(text))


def mixed(start: int, texts: tuple[str, ...] = PAYLOADS) -> Case:
    """Return the same with a different text in each field, from number `start` on."""
    return _poisoned(islice(cycle(texts), start, None))


def _poisoned(texts: Iterator[str]) -> Case:
    document = json.loads((DATA / "oom.json").read_text(encoding="utf-8"))
    document["replay"] = {"scenario": "s", "arguments": {next(texts): "v"}, "result": {"text": "t"}}
    attempt = dict.fromkeys(("begin", "end", "outcome", "category", "pattern", "why", "ended"), "t")
    document["attempts"] = [attempt | {"number": n, "ranks": [n], "hosts": ["h"]} for n in (0, 1)]
    collective = {"op": "o", "seq": 7, "group": "g", "numel_in": 2, "dtype": "d", "entered": [0], "missing": [1]}
    document["verdict"]["collective"] = collective | {"elsewhere": {"2": "c"}, "completed": {"1": 6}}
    document["clocks"].append({"host": "h", "reason": "r", "state": "s"})
    events = json.loads((DATA / "oom.events.json").read_text())
    severity = events["columns"].index("severity")
    for row in events["rows"]:
        row[:] = [
            next(texts) if isinstance(value, str) and place != severity else value for place, value in enumerate(row)
        ]
    return Case(_filled(document, texts), framed(events["rows"]))


def _filled(value: Any, texts: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    return {key: _filled(item, texts) for key, item in value.items()} if isinstance(value, dict) else value
