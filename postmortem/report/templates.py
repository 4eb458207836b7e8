"""The environment of the HTML templates, and the styles and scripts of a page."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postmortem.report import json as plain
from postmortem.report import labels, summary, text, view
from postmortem.system import cache, resources

if TYPE_CHECKING:
    from jinja2 import Environment

_COMMAND = re.compile(
    r"(`[^`]+`|(?<![\w-])--?[a-z][\w-]*(?:=[\w./:%@{}-]*\w)?|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+(?:=[\w./:,-]*\w)?"
    r"|\b(?:nvidia-smi|dmesg|journalctl|scontrol|sacct|sinfo|kubectl|docker|ulimit|py-spy|ibstat|ss|df|free|lctl"
    r"|ethtool|nfsstat|smartctl|gdb|dcgmi|postmortem)\b(?: (?:(?:get|describe|logs|show|inspect|dump|diag|get_param"
    r"|collect|analyze|run)\b|-{1,2}[\w=-]+|[a-z]+=\w+))*|\b[a-z_]+(?:\.[\w]+)+\([^()]*\)|\b[a-z]+_[a-z_]+=\w+)"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d|± [\d.]+ m?s", re.ASCII)
GLYPHS = {"cause": "◆", "victim": "▽", "silent": "◌", "healthy": "●", "unknown": "·"}
# items outside of a fold:
ROWS = 12  # of a table; longer ones are folded, on paper too


def sheets() -> tuple[str, str, str]:
    """Return the style of a page, its changes for dark mode, and the script that chooses between them."""
    folder = resources.folder("reports")
    names = ("styles/report.css", "styles/dark.css", "scripts/theme.js")
    style, dark, theme = ((folder / name).read_text(encoding="utf-8") for name in names)
    style, dark = (re.sub(r"\s*([{};,])\s*", r"\1", sheet) for sheet in (style, dark))
    return style, dark, theme


def policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """Return a content security policy that allows these styles and scripts, and nothing else."""
    own, run = (" ".join(map(_digest, contents)) for contents in (styles, scripts))
    script = f"script-src {run}; " if run else ""
    return f"default-src 'none'; style-src {own}; {script}base-uri 'none'; form-action 'none'"


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def embedded(value: Any) -> str:
    """Return JSON for a <script>: without <, > and &, no text in it can end the element or open a comment."""
    return plain.dump(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the environment of the templates: with autoescape, and with invisible characters written out."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(resources.folder("reports") / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalized,
        bytecode_cache=_bytecode_cache(),
    )
    made.filters.update(
        {name: getattr(text, name) for name in ("line", "around", "sentence", "plural", "seconds", "size")}
    )
    made.filters.update(offset=view.offset, zone=_zone, commands=_commands, unbroken=_unbroken)
    made.globals.update(view=view, summary=summary, labels=labels, text=text)
    made.globals.update(glyphs=GLYPHS, meanings=labels.STATES, broad=f"{text.BROAD:.0f}")
    made.globals.update(rows=ROWS, most=_most)
    return made


def _bytecode_cache() -> Any:
    """Return a cache of compiled templates: compiling takes 60 ms, a small incident half a second in all."""
    import jinja2
    from jinja2.bccache import Bucket, BytecodeCache

    def path(bucket: Bucket) -> Path:
        # the options of the environment are part of this file
        content = hashlib.sha256(f"{jinja2.__version__} {bucket.key} {bucket.checksum}".encode())
        return cache.named("template", content, "report/templates.py")

    class Cache(BytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            if body := cache.fetch(path(bucket)):
                bucket.load_bytecode(io.BytesIO(body))

        def dump_bytecode(self, bucket: Bucket) -> None:
            body = io.BytesIO()
            bucket.write_bytecode(body)
            cache.store(path(bucket), body.getvalue())

    return Cache()


def _finalized(value: Any) -> Any:
    if value is None:
        return ""
    return text.visible(value) if type(value) is str else value  # Markup is our own


def _most(items: list[Any], room: int) -> int:
    """Return the number of items outside of a fold, which would be longer than its last three items."""
    return len(items) if len(items) <= room + 3 else room


def _commands(words: str) -> Any:
    """Return a sentence with its commands, switches and settings as `<code class="run">`."""
    from markupsafe import Markup, escape

    pieces = _COMMAND.split(text.sentence(words))
    codes = [escape(piece.strip("`")) for piece in pieces[1::2]]
    shown = [Markup('<code class="run" title="Click to copy">{}</code>').format(code) for code in codes]
    return Markup("").join(part for pair in zip(map(escape, pieces[::2]), [*shown, ""], strict=True) for part in pair)


def _unbroken(words: str) -> Any:
    """Return a title whose dates and errors stay on one line: a browser breaks a date after a hyphen."""
    from markupsafe import Markup, escape

    return Markup(_TIME.sub(r'<span class="time">\g<0></span>', str(escape(text.visible(words)))))


def _zone(value: object) -> str:
    """-18000 -> "UTC-05:00"."""
    if not isinstance(value, int | float):
        return "unknown"
    minutes = round(abs(value) / 60)
    return f"UTC{'-' if value < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
