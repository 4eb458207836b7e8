"""The incident -> one self-contained HTML file that can be attached to a ticket and opened anywhere.

No network, no fonts, no inline handlers: the page's own style and script are named by their hashes in the
content security policy, so that nothing else can run even if it got in. Log text reaches the page through
autoescape only, and what would act instead of show is written out first (`text.visible`). The document itself
is embedded as data for programs:

    <script type="application/json" id="postmortem-incident">{"schema":"postmortem/incident/1", …}</script>
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from postmortem.errors import ours
from postmortem.report import (
    attempts,
    collective,
    columns,
    labels,
    lanes,
    ranks,
    recurrence,
    shorten,
    stands,
    svg,
    text,
    view,
)
from postmortem.report import json as plain
from postmortem.report.events import read_events
from postmortem.report.markdown import render_markdown
from postmortem.report.parts import Parts
from postmortem.system import resources
from postmortem.system.process import uncollected

if TYPE_CHECKING:
    from jinja2 import Environment, Template

MAX_SOURCES = 300
MAX_PROOFS = 60
MAX_GROUPS = 200
STEPS = 8  # of the chain that stand open
ALIKE = 8  # lines of one step from which on one speaks for all
CLOCKS = 4  # that stand open without a look at their state
CITED = 3  # lines of each other step that stand open
ROWS = 12  # of a table that stand open; what is longer is folded, on paper too


def render_html(incident: view.Incident) -> str:
    """Return the whole page."""
    from markupsafe import Markup

    style, dark, theme = sheets()
    script = (resources.folder("reports") / "scripts" / "report.js").read_text(encoding="utf-8")
    try:
        with uncollected():
            parts = page(incident)
        return template().render(
            parts,
            policy=policy((style, dark), (theme, script)),
            style=Markup(style),
            dark=Markup(dark),
            theme=Markup(theme),
            script=Markup(script),
            document=Markup(embedded(shorten.fitting(incident.document))),
            markdown=Markup(
                embedded({"text": render_markdown(incident), "brief": render_markdown(incident, brief=True)})
            ),
        )
    except Exception as error:  # the verdict is worth more than the page
        return _bare(incident, ours(error))


def _bare(incident: view.Incident, why: str) -> str:
    """A page without a layout: the verdict, what went wrong, and the document for programs."""
    said, told = (html.escape(text.sentence(words, 600)) for words in (view.headline(incident.document), why))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">\n'
        f"<title>{said}</title>\n</head>\n<body>\n<h1>{said}</h1>\n"
        f"<p><strong>Incomplete.</strong> The page: {told}. What follows is the report as Markdown.</p>\n"
        f"<pre>{html.escape(render_markdown(incident))}</pre>\n"
        f'<script type="application/json" id="postmortem-incident">{embedded(incident.document)}</script>\n'
        "</body>\n</html>\n"
    )


def replay_section(replay: dict[str, Any]) -> str:
    """The part of the page that a replay adds to, by itself."""
    return environment().get_template("replay.html").render(replay=replay).rstrip("\n") + "\n"


def sheets() -> tuple[str, str, str]:
    """The style of a page, what dark mode changes, and the script that chooses it."""
    folder = resources.folder("reports")
    style, dark, theme = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("styles/report.css", "styles/dark.css", "scripts/theme.js")
    )
    style, dark = (re.sub(r"\s*([{};,])\s*", r"\1", sheet) for sheet in (style, dark))  # blanks are for us
    return style, dark, theme


def policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """What a page may load and run: its own, by their names, and nothing else."""
    own, run = (" ".join(f"'{digest(content)}'" for content in those) for those in (styles, scripts))
    return f"default-src 'none'; style-src {own}; script-src {run}; base-uri 'none'; form-action 'none'"


def digest(content: str) -> str:
    """The name of a style or script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def embedded(value: Any) -> str:
    """JSON that can stand in a <script>: without <, > and &,
    no text in it can end the element or open a comment."""
    return plain.dump(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=1)
def template() -> Template:
    """The page before it is filled in. Compiling it takes a tenth of a second."""
    return environment().get_template("report.html")


def environment() -> Environment:
    """What fills in templates: autoescape, and nothing that acts leaves as it is."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from postmortem.report.compiled import Compiled

    made = Environment(
        loader=FileSystemLoader(resources.folder("reports") / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
        bytecode_cache=Compiled(),
    )
    made.filters.update(
        line=text.line, sentence=text.sentence, plural=text.plural, seconds=text.seconds, size=text.size
    )
    made.filters.update(offset=view.offset, zone=_zone)
    made.globals.update(glyphs=svg.GLYPHS, meanings=labels.STATES, broad=f"{text.BROAD:.0f}")
    made.globals.update(steps=STEPS, rows=ROWS, told=_told, most=_most)
    return made


def _shown(value: Any) -> Any:
    """The last gate before autoescape: nothing leaves as a character that acts.
    Markup is our own and already through it."""
    if value is None:
        return ""
    return text.visible(value) if type(value) is str else value


def page(incident: view.Incident) -> dict[str, Any]:
    """Everything the template lays out."""
    from markupsafe import Markup

    document, parts = incident.document, Parts()
    events = parts.rows("the events", lambda: read_events(incident))
    block = parts.get("the timeline", lambda: columns.block(document, events), None)
    picture = parts.get("the timeline", lambda: lanes.picture(document, events), None)
    drawing = parts.get("the timeline", lambda: svg.draw(picture) if picture else "", "")
    proofs = parts.rows("the evidence", lambda: view.proofs(document))
    chain = parts.rows("the chain", lambda: view.steps(document))
    groups = parts.rows("the ranks", lambda: ranks.rank_groups(document))
    clocks = sorted(view.rows(document.get("clocks")), key=_trusted)[:MAX_SOURCES]
    told = {
        **_verdict(document),
        **_made(document),
        "proofs": proofs[:MAX_PROOFS],
        "unshown": len(proofs) - MAX_PROOFS,
        "cited": _cited(chain) if chain else {proof.index for proof in proofs[:MAX_PROOFS]},
        "chain": chain,
        "findings": parts.rows("the findings", lambda: view.steps(document, "findings")),
        "alternatives": view.rows(document.get("alternatives")),
        "picture": picture if drawing else None,
        "drawing": Markup(drawing),
        "block": Markup(block.data) if block else "",
        "thinned": block.notes if block else (),
        "moments": parts.rows("the timeline", lambda: lanes.moments(events)),
        "groups": groups[:MAX_GROUPS],
        "ungrouped": len(groups) - MAX_GROUPS,
        "states": parts.get("the ranks", lambda: ranks.states(document), dict[str, int]()),
        "stands": parts.rows("the stacks", lambda: stands.stands(document)),
        "compared": parts.rows("the stacks", lambda: stands.compared(document)),
        "clocks": clocks,
        "open": _in_doubt(clocks),
        "others": view.rows(document.get("other_jobs")),
        "replay": view.part(document, "replay"),
        "cut": shorten.said(document),
    }
    told["incomplete"] = " ".join(filter(None, [told["incomplete"], *map(_closed, parts.failed)]))
    return told


def _closed(words: str) -> str:
    return text.sentence(words, 300).rstrip(".") + "."


def _cited(chain: list[view.Step]) -> set[int]:
    """The evidence that the chain rests on; the first of it always, a few lines of each step."""
    shown = (proof.index for step in chain for proof in step.proofs[: _told(step)])
    return {0} | {index for index in shown if index < MAX_PROOFS}


def _most(items: list[Any], room: int) -> int:
    """How many stand open; a fold for the last two would be longer than they are."""
    return len(items) if len(items) <= room + 3 else room


def _told(step: view.Step) -> int:
    return 1 if step.count > ALIKE else CITED


def _in_doubt(clocks: list[dict[str, Any]]) -> int:
    """How many stand open: all where they are few, else those that were not aligned, and one that was."""
    if len(clocks) <= CLOCKS:
        return len(clocks)
    return min(sum(not _trusted(clock) for clock in clocks) + 1, ROWS)


def _trusted(clock: dict[str, Any]) -> bool:
    """Clocks that were not aligned come first."""
    return clock.get("state") == "aligned"


def _verdict(document: view.Document) -> dict[str, Any]:
    """The first screen."""
    verdict = view.part(document, "verdict")
    return {
        "outcome": view.known(verdict.get("outcome")) if verdict.get("outcome") in labels.OUTCOMES else "undetermined",
        "outcome_word": labels.OUTCOMES.get(view.known(verdict.get("outcome")), "Undetermined"),
        "category": view.category(document),
        "headline": view.headline(document),
        "confidence": view.confidence(document),
        "because": view.words(verdict.get("because")),
        "culprit": view.culprit(document),
        "blamed": view.blamed(document),
        "when": view.when(document),
        "collective": collective.sentence(document),
        "seen": recurrence.sentence(document),
        "attempts": attempts.attempts(document),
        "incomplete": view.incomplete(document),
        "todo": view.todo(document),
        "missing": view.rows(verdict.get("missing")),
    }


def _made(document: view.Document) -> dict[str, Any]:
    """What was read, and by what."""
    sources = view.rows(document.get("sources"))
    return {
        "sources": sources[:MAX_SOURCES],
        "unlisted": len(sources) - MAX_SOURCES,
        "source_count": len(sources),
        "ledger": view.part(document, "ledger"),
        "skipped": view.skipped(document)[:MAX_SOURCES],
        "job": _job(view.part(document, "job")),
        "trace": view.rows(document.get("trace")),
        "tool": view.part(document, "tool"),
        "fingerprint": view.known(document.get("fingerprint")),
        "schema": view.known(document.get("schema")),
    }


def _job(job: dict[str, Any]) -> list[str]:
    """The job in a few words: `8 ranks`, `2 hosts`, `torch 2.13.0`."""
    world, attempts = view.whole(job.get("world_size")), view.whole(job.get("attempts"))
    hosts = view.words(job.get("hosts"))
    facts = [f"job {job['id']}" if job.get("id") else ""]
    facts.append(text.plural(world, "rank") if world is not None else "")
    facts.append(text.plural(len(hosts), "host") if hosts else "")
    facts.append(text.plural(attempts, "attempt") if attempts is not None and attempts > 1 else "")
    facts += [f"{label} {job[name]}" for name, label in (("torch", "torch"), ("nccl", "NCCL")) if job.get(name)]
    return [fact for fact in facts if fact]


def _zone(value: object) -> str:
    """-18000 -> "UTC-05:00"."""
    if not isinstance(value, int | float):
        return "unknown"
    minutes = round(abs(value) / 60)
    return f"UTC{'-' if value < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
