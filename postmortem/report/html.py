"""The incident as one self-contained HTML file that can be attached to a ticket and opened anywhere.

No network, no fonts, no inline handlers: the content security policy names the page's own styles and scripts by their
hashes, so that nothing else can run. Log text gets into the page only through autoescape, and characters that act are
written out first (`text.visible`). The document is embedded as data for programs:

    <script type="application/json" id="postmortem-incident">{"schema":"postmortem/incident/1", …}</script>
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from postmortem.errors import ours
from postmortem.report import bars, causes, columns, groups, lanes, svg, text, view
from postmortem.report.events import Row, read_events
from postmortem.report.markdown import guarded, render_chat, render_markdown
from postmortem.report.templates import ROWS, embedded, environment, policy, sheets
from postmortem.system import resources
from postmortem.system.process import uncollected

if TYPE_CHECKING:
    from jinja2 import Template

MAX_SOURCES = 200
MAX_PROOFS = 60
MAX_GROUPS = 200
CLOCKS = 4  # outside of a fold whatever their state
# a document with more rows of ranks, files and clocks is embedded with the first of each; the page shows no process
EMBEDDED_ROWS = 3000
SHOWN = {"ranks": (500, "rank"), "sources": (200, "file"), "clocks": (200, "clock")}
EMBEDDED = SHOWN | {"processes": (60, "process row"), "findings": (60, "finding")}
EMBEDDED_SOURCES = 8  # of each clock


def render_html(incident: view.Incident) -> str:
    """Return the whole page."""
    from markupsafe import Markup

    style, dark, theme = sheets()
    script = (resources.folder("reports") / "scripts" / "report.js").read_text(encoding="utf-8")
    try:
        with uncollected():
            parts = page(incident)
        texts = {"text": render_markdown(incident), "chat": render_chat(incident)}
        return template().render(
            parts,
            policy=policy((style, dark), (theme, script)),
            style=Markup(style),
            dark=Markup(dark),
            theme=Markup(theme),
            script=Markup(script),
            document=incident.document,
            embedded=Markup(embedded(fitting(incident.document))),
            markdown=Markup(embedded(texts)),
        )
    except Exception as error:  # the verdict is worth more than the page
        return _bare(incident, ours(error))


def _bare(incident: view.Incident, error: str) -> str:
    """Return a page without a layout: the verdict, the error, and the document for programs."""
    title, reason = (html.escape(text.sentence(words, 600)) for words in (view.headline(incident.document), error))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">\n'
        f"<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p><strong>Incomplete.</strong> The page: {reason}. What follows is the report as Markdown.</p>\n"
        f"<pre>{html.escape(render_markdown(incident))}</pre>\n"
        f'<script type="application/json" id="postmortem-incident">{embedded(incident.document)}</script>\n'
        "</body>\n</html>\n"
    )


def replay_section(replay: dict[str, Any]) -> str:
    """Return the part of the page that a replay adds to, alone."""
    return environment().get_template("replay.html").render(replay=replay).rstrip("\n") + "\n"


def template() -> Template:
    return environment().get_template("report.html")


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────────


def page(incident: view.Incident) -> dict[str, Any]:
    """Return the variables of the template. An internal error costs one part of the page, and is named."""
    from markupsafe import Markup

    document = incident.document
    failed: list[str] = []

    def rows(name: str, make: Callable[[], list[Any]]) -> list[Any]:
        return guarded(name, make, list[Any](), failed)

    events: list[Row] = rows("the events", lambda: read_events(incident))
    block = guarded("the timeline", lambda: columns.block(document, events), None, failed)
    picture = guarded("the timeline", lambda: lanes.picture(document, events), None, failed)
    drawing = guarded("the timeline", lambda: svg.draw(picture) if picture else "", "", failed)
    proofs = rows("the evidence", lambda: view.once(view.proofs(document)))
    chain, more = guarded("the chain", partial(view.story, document), (list[view.Step](), list[view.Step]()), failed)
    ranks = rows("the ranks", lambda: groups.rank_groups(document))
    # clocks that were not aligned come first, and outside of the fold together with one that was
    clocks = sorted(view.rows(document.get("clocks")), key=_is_aligned)[:MAX_SOURCES]
    in_doubt = sum(not _is_aligned(clock) for clock in clocks)
    sources = view.rows(document.get("sources"))
    parts = {
        "proofs": proofs[:MAX_PROOFS],
        "unshown": len(proofs) - MAX_PROOFS,
        "shows": (shows := _shows(chain)),
        "rest": [proof for proof in proofs[1:MAX_PROOFS] if proof.index not in shows.values()],
        "chain": chain,
        "more": more,
        "findings": rows("the findings", lambda: view.steps(document, "findings")),
        "picture": picture if drawing else None,
        "drawing": Markup(drawing),
        "block": Markup(block.data) if block else "",
        "thinned": block.notes if block else (),
        "drawn": {row.severity for row in events},
        "groups": ranks[:MAX_GROUPS],
        "ungrouped": len(ranks) - MAX_GROUPS,
        "states": guarded("the ranks", partial(groups.states, document), dict[str, int](), failed),
        "stacks": rows("the stacks", lambda: groups.stacks(document)),
        "memory": view.rows(document.get("memory")),
        "used": rows("the memory", lambda: bars.memory(document)),
        "hang": guarded("the hang", lambda: bars.hang(document), None, failed),
        "culprits": view.numbers(view.part(view.part(document, "verdict"), "culprit").get("ranks")),
        "pace": guarded("the pace", lambda: bars.pace(document), None, failed),
        "losses": guarded("the loss", lambda: bars.losses(document), None, failed),
        "last_steps": rows("the last steps", lambda: bars.last_steps(document)),
        "snapshot": bars.snapshot,
        "tones": svg.TONES,
        "places": bars.PLACES,
        "usual": (usual := rows("the usual causes", lambda: causes.usual(document))),
        "undecided": causes.note(usual),
        "compared": rows("the stacks", lambda: groups.compared(document)),
        "clocks": clocks,
        "open": max(min(in_doubt + 1, ROWS), ROWS if len(clocks) <= CLOCKS else 0),
        "cut": cut_note(document),
        "sources": sources[:MAX_SOURCES],
        "listed": MAX_SOURCES,
        "unlisted": len(sources) - MAX_SOURCES,
        "source_count": len(sources),
    }
    reasons = [text.sentence(reason, 300).rstrip(".") + "." for reason in failed]
    parts["incomplete"] = " ".join(filter(None, [view.incomplete(document), *reasons]))
    return parts


def _shows(chain: list[view.Step]) -> dict[str, int]:
    """Return the evidence that each step shows, by its id: its first line that no step before it and no card shows."""
    shown: dict[str, int] = {}
    for step in chain:
        free = (p.index for p in step.proofs if p.index < MAX_PROOFS and p.index not in (0, *shown.values()))
        if (first := next(free, None)) is not None and not any(p.index == 0 for p in step.proofs):
            shown[step.id] = first
    return shown


def _is_aligned(clock: dict[str, Any]) -> bool:
    return clock.get("state") == "aligned"


def fitting(document: view.Document) -> dict[str, Any]:
    """Return the document, of thousands of ranks with the first rows, odd ranks first, and their number under `cut`:
    {"ranks": [500 rows], …, "cut": {"ranks": 16384}}."""
    found = {name: view.rows(document.get(name)) for name in EMBEDDED}
    many = sum(len(found[name]) for name in SHOWN) > EMBEDDED_ROWS
    cut = {name: len(rows) for name, rows in found.items() if len(rows) > EMBEDDED[name][0]}
    short, cut = dict(document), {name: n for name, n in cut.items() if many or name not in ("ranks", "clocks")}
    if cut:
        short["cut"] = cut
    if "ranks" in cut:
        found["ranks"].sort(key=view.oddness)
    short |= {name: found[name][: EMBEDDED[name][0]] for name in cut}
    if many:
        short["clocks"] = [
            {**row, "sources": row["sources"][:EMBEDDED_SOURCES]} if isinstance(row.get("sources"), list) else row
            for row in view.rows(short.get("clocks"))
        ]
    return short


def cut_note(document: view.Document) -> str:
    """Return a sentence on the rows that are not embedded; empty where all are."""
    cut = view.part(fitting(document), "cut")
    if not cut:
        return ""
    parts = ", ".join(f"{EMBEDDED[name][0]} of {text.plural(n, EMBEDDED[name][1])}" for name, n in cut.items())
    return f"The embedded document has {parts}; `postmortem analyze --format json` writes all of them."


def card(document: view.Document) -> str:
    """Return a fragment of HTML. Colors except the edge are those of the notebook, so that it fits light and dark."""
    outcome = view.known(view.part(document, "verdict").get("outcome"))
    return environment().get_template("card.html").render(document=document, outcome=outcome).rstrip("\n")
