"""An incident in the formats that people and programs read.

    render_html(incident)      -> one self-contained HTML file
    render_markdown(incident)  -> text for a ticket, at most 60,000 characters; 2 kB with brief=True
    render_json(incident)      -> the fixed document
    render_terminal(incident)  -> the verdict at 80 columns
    render_verbose(incident)   -> how the verdict was reached
    render_brief(incident)     -> the verdict as JSON of at most 2 kB
    render_ndjson(incident)    -> the events, one a line; Timesketch reads them
    render_csv(incident)       -> the same for spreadsheets and notebooks
    render_parquet(incident)   -> the same as bytes of Parquet
    render_trace(incident)     -> the events for Perfetto
    render_github(incident)    -> annotations of GitHub Actions
    render_junit(incident)     -> the verdict as a test result
    card(document)             -> a few lines of HTML for notebooks

Each is a pure function of the incident. A module is imported at its first use: `--help` must not pay for jinja2.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postmortem.report.view import Incident

_MODULES = {
    "exports": ("render_csv", "render_github", "render_junit", "render_ndjson", "render_parquet", "render_trace"),
    "html": ("card", "render_html"),
    "json": ("render_brief", "render_json"),
    "markdown": ("render_markdown",),
    "terminal": ("render_terminal", "render_verbose"),
}


def render(incident: Incident, form: str, brief: bool = False) -> str | bytes:
    """Return the output of `--format`; JSON and Markdown have a brief form."""
    if form == "md":
        from postmortem.report.markdown import render_markdown

        return render_markdown(incident, brief)
    made: str | bytes = __getattr__(f"render_{'brief' if brief else form}")(incident)
    return made


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
