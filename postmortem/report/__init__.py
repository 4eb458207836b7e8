"""Incident -> what people and programs read.

    render_html(incident)      -> one self-contained HTML file
    render_markdown(incident)  -> text for a ticket, at most 60,000 characters; 3,000 where it is to be brief
    render_json(incident)      -> the fixed document
    render_terminal(incident)  -> the verdict at 80 columns
    render_verbose(incident)   -> how the verdict came about
    render_brief(incident)     -> the verdict as JSON of at most 8 KB
    render_ndjson(incident)    -> the events, one a line; Timesketch reads them
    render_csv(incident)       -> the same for spreadsheets and notebooks
    render_parquet(incident)   -> the same as bytes of Parquet
    render_trace(incident)     -> the events for Perfetto
    render_github(incident)    -> annotations of GitHub Actions
    render_junit(incident)     -> the verdict as a test result
    card(document)             -> a few lines of HTML for notebooks

Each is a pure function of the incident. Nothing is imported before it is asked for:
`--help` must not pay for jinja2.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postmortem.report.brief import render_brief
    from postmortem.report.csv import render_csv
    from postmortem.report.github import render_github
    from postmortem.report.html import render_html
    from postmortem.report.json import render_json
    from postmortem.report.junit import render_junit
    from postmortem.report.markdown import render_markdown
    from postmortem.report.ndjson import render_ndjson
    from postmortem.report.notebook import card
    from postmortem.report.parquet import render_parquet
    from postmortem.report.terminal import render_terminal
    from postmortem.report.trace import render_trace
    from postmortem.report.verbose import render_verbose
    from postmortem.report.view import Incident

__all__ = [
    "card",
    "render",
    "render_brief",
    "render_csv",
    "render_github",
    "render_html",
    "render_json",
    "render_junit",
    "render_markdown",
    "render_ndjson",
    "render_parquet",
    "render_terminal",
    "render_trace",
    "render_verbose",
]


def render(incident: Incident, form: str, brief: bool = False) -> str | bytes:
    """Return what `--format` writes; `brief` is known of JSON and Markdown."""
    if form == "md":
        from postmortem.report.markdown import render_markdown

        return render_markdown(incident, brief)
    made: str | bytes = __getattr__(f"render_{'brief' if brief else form}")(incident)
    return made


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "notebook" if name == "card" else name.removeprefix("render_")
    return getattr(import_module(f"{__name__}.{module}"), name)
