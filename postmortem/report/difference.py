"""A comparison of two runs -> terminal, Markdown, HTML, JSON.

DIFFERENT

B failed where A ended well: Rank 2 raised ValueError …; B has torch 2.6.0 where A has 2.5.1.

  A        good-run/  healthy
  B        bad-run/  incident
  differs  1. torch: B has torch 2.6.0 where A has 2.5.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from postmortem.report import json as plain
from postmortem.report import labels, text, view
from postmortem.report.html import digest, embedded, environment
from postmortem.report.markdown import code, fenced, prose
from postmortem.report.terminal import Page
from postmortem.system import resources

FORMS = ("terminal", "md", "html", "json")
SHOWN = 12  # differences on a terminal
NAMES = (("a", "A"), ("b", "B"))

Comparison = Mapping[str, Any]


def render(found: Comparison, form: str, width: int = 80, colour: bool = False) -> str:
    """Return it in one of FORMS."""
    if form == "json":
        return plain.harmless(plain.dump(found, indent=1, order=False)) + "\n"
    if form == "html":
        return _html(found)
    return _markdown(found) if form == "md" else _terminal(found, width, colour)


def _terminal(found: Comparison, width: int, colour: bool) -> str:
    page = Page(max(min(width, 120), 40), colour)
    tone = "doubt" if found["differs"] else "good"
    page.lines.append(page.paint("DIFFERENT" if found["differs"] else "NO DIFFERENCE", tone))
    page.blank()
    page.paragraph(text.sentence(found["headline"], 1000), "bold")
    page.blank()
    for side, name in NAMES:
        page.field(name, [f"{text.line(found[side]['path'], 200)}  {text.sentence(_outcome(found[side]), 80)}"])
    told = [text.sentence(row["text"], 300) for row in found["differences"] if row["matters"]]
    page.field("differs", told[:SHOWN])
    for side, name in reversed(NAMES):
        page.field(f"only {name}", [_line(line) for line in found["lines"] if line["only_in"] == side][:3])
    others = [row for row in found["differences"] if not row["matters"]]
    page.field("chance", [text.sentence(row["text"], 300) for row in others if _by_chance(row)][:4])
    page.field("lacks", [text.sentence(row["text"], 300) for row in others if not _by_chance(row)][:4])
    page.field("unknown", [text.sentence(said, 300) for said in found["uncompared"]])
    return page.text()


def _outcome(side: Mapping[str, Any]) -> str:
    return labels.OUTCOMES.get(side["outcome"], str(side["outcome"]))


def _line(line: Mapping[str, Any]) -> str:
    facts = ", ".join(filter(None, (_who(line), _step(line))))
    where = text.line(view.address(line), 400) + (f" ({facts})" if facts else "")
    return f"{where}: {text.line(line['text'], 200)}"


def _who(line: Mapping[str, Any]) -> str:
    ranks = line["ranks"]
    return f"rank{'s' * (len(ranks) > 1)} {text.ranges(ranks, view.SPANS)}" if ranks else ""


def _step(line: Mapping[str, Any]) -> str:
    return f"after step {line['step']}" if line["step"] is not None else ""


def _markdown(found: Comparison) -> str:
    blocks = [f"# {prose(found['headline'])}"]
    sides = [
        f"| {name} | {code(side['path'])} | {prose(_outcome(side))} | {prose(side['headline'], 400)} |"
        for side, name in ((found[key], name) for key, name in NAMES)
    ]
    blocks.append("\n".join(["| run | logs | outcome | verdict |", "|---|---|---|---|", *sides]))
    if rows := found["differences"]:
        cells = [
            f"| {prose(row['name'], 80)} | {prose(row['a'], 200)} | {prose(row['b'], 200)} |"
            f" {prose(row['text'], 300)}{' *May be chance.*' if _by_chance(row) else ''} |"
            for row in rows
        ]
        table = ["| what | A | B | in words |", "|---|---|---|---|", *cells]
        blocks.append("## What differs\n\n" + "\n".join(table))
    for side, name in reversed(NAMES):
        lines = [line for line in found["lines"] if line["only_in"] == side]
        for place, line in enumerate(lines):
            facts = ", ".join(filter(None, (_who(line), text.moment(line["time"]), _step(line))))
            head = f"## Only in {name}\n\n" if place == 0 else ""
            where = f"{code(view.address(line)) or 'no address'}{f' ({facts})' if facts else ''}"
            blocks.append(f"{head}{where}\n\n{fenced([text.line(line['text'], 1000)])}")
    if found["uncompared"]:
        blocks.append("## Not compared\n\n" + "\n".join(f"- {prose(said)}" for said in found["uncompared"]))
    return "\n\n".join(blocks) + "\n"


def _by_chance(row: Mapping[str, Any]) -> bool:
    return not row["matters"] and row["kind"] != "missing"


def _html(found: Comparison) -> str:
    from markupsafe import Markup

    folder = resources.folder("reports") / "styles"
    sheets = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "dark.css"))
    style, dark = (re.sub(r"\s*([{};,])\s*", r"\1", sheet) for sheet in sheets)
    return (
        environment()
        .get_template("diff.html")
        .render(
            policy=f"default-src 'none'; style-src '{digest(style)}' '{digest(dark)}'; base-uri 'none'; "
            "form-action 'none'",
            style=Markup(style),
            dark=Markup(dark),
            headline=text.sentence(found["headline"], 1000),
            differs=found["differs"],
            sides=[_side(found[key], name) for key, name in NAMES],
            rows=found["differences"],
            lines=[_shown(line) for line in found["lines"]],
            uncompared=found["uncompared"],
            document=Markup(embedded(found)),
        )
    )


def _side(side: Mapping[str, Any], name: str) -> dict[str, object]:
    hosts: Sequence[str] = side["hosts"]
    told = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    step, ranks = text.seconds(side["step_s"]), view.known(side["world_size"])
    return {**side, "name": name, "outcome": _outcome(side), "hosts": told, "step": step, "ranks": ranks}


def _shown(line: Mapping[str, Any]) -> dict[str, object]:
    return {**line, "address": view.address(line), "who": _who(line), "moment": text.moment(line["time"])}
