"""Incident -> what people and programs read: JSON, Markdown, terminal text, one HTML file, a notebook card.

    render_html(incident)      -> one self-contained HTML file
    render_markdown(incident)  -> text for a ticket, at most 60,000 characters
    render_json(incident)      -> the fixed document
    render_terminal(incident)  -> the verdict at 80 columns
    render_verbose(incident)   -> how the verdict came about
    card(document)             -> a few lines of HTML for notebooks

Each is a pure function of the incident. Nothing is imported before it is asked for: `--help` must not pay for jinja2.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postmortem.report.html import render_html
    from postmortem.report.json import render_json
    from postmortem.report.markdown import render_markdown
    from postmortem.report.notebook import card
    from postmortem.report.terminal import render_terminal
    from postmortem.report.verbose import render_verbose

__all__ = ["card", "render_html", "render_json", "render_markdown", "render_terminal", "render_verbose"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "notebook" if name == "card" else name.removeprefix("render_")
    return getattr(import_module(f"{__name__}.{module}"), name)
