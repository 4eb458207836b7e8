"""A comparison of two runs for a terminal, as Markdown, HTML or JSON.

DIFFERENT

B failed where A ended well: Rank 2 raised ValueError …; B has torch 2.6.0 where A has 2.5.1.

  A        good-run/  healthy
  B        bad-run/  incident
  differs  1. torch: B has torch 2.6.0 where A has 2.5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postmortem.report import json as plain
from postmortem.report import labels, text, view
from postmortem.report.markdown import code, fenced, prose, table
from postmortem.report.terminal import Page

FORMS = ("terminal", "md", "html", "json")
SHOWN = 12  # differences on a terminal
NAMES = (("a", "A"), ("b", "B"))

Comparison = Mapping[str, Any]


def render(found: Comparison, form: str, width: int = 80, color: bool = False) -> str:
    """Return the comparison in one of FORMS."""
    if form == "json":
        return plain.harmless(plain.dump(found, indent=1, order=False)) + "\n"
    if form == "html":
        return _html(found)
    return _markdown(found) if form == "md" else _terminal(found, width, color)


def _terminal(found: Comparison, width: int, color: bool) -> str:
    page = Page(width, color)
    page.lines.append(page.paint("DIFFERENT", "doubt") if found["differs"] else page.paint("NO DIFFERENCE", "good"))
    page.blank()
    page.paragraph(text.sentence(found["headline"], 1000), "bold")
    page.blank()
    for side, name in NAMES:
        page.field(name, [f"{text.line(found[side]['path'], 200)}  {text.sentence(_outcome(found[side]), 80)}"])
    rows = found["differences"]
    differs = [row for row in rows if row["matters"] and not (row["kind"] == "verdict" and _names_cause(found))]
    page.field("differs", [text.sentence(row["text"], 300) for row in differs][:SHOWN])
    for side, name in reversed(NAMES):
        page.field(f"only {name}", [_line(line) for line in found["lines"] if line["only_in"] == side][:3])
    page.field("chance", [text.sentence(row["text"], 300) for row in rows if _by_chance(row)][:4])
    lacks = [row for row in rows if not row["matters"] and not _by_chance(row)]
    page.field("lacks", [text.sentence(row["text"], 300) for row in lacks][:4])
    page.field("unknown", [text.sentence(item, 300) for item in found["uncompared"]])
    return page.text()


def _names_cause(found: Comparison) -> bool:
    """Return whether the headline has the verdict of B, which the row of the outcomes would repeat."""
    return str(found["b"]["headline"]).rstrip(".") in found["headline"]


def _outcome(side: Mapping[str, Any]) -> str:
    return labels.OUTCOMES.get(side["outcome"], str(side["outcome"]))


def _line(line: Mapping[str, Any]) -> str:
    facts = ", ".join(filter(None, (_who(line), _step(line))))
    where = text.line(view.address(line), 400) + (f" ({facts})" if facts else "")
    return f"{where}: {text.line(line['text'], 200)}"


def _who(line: Mapping[str, Any]) -> str:
    return text.ranks(line["ranks"], view.SPANS) if line["ranks"] else ""


def _step(line: Mapping[str, Any]) -> str:
    return f"after step {line['step']}" if line["step"] is not None else ""


def _by_chance(row: Mapping[str, Any]) -> bool:
    return not row["matters"] and row["kind"] != "missing"


def _markdown(found: Comparison) -> str:
    sides = [
        [name, code(found[key]["path"]), prose(_outcome(found[key])), prose(found[key]["headline"], 400)]
        for key, name in NAMES
    ]
    blocks = [f"# {prose(found['headline'])}", table("run | logs | outcome | verdict", sides)]
    rows = [
        [
            *(prose(row[name], limit) for name, limit in (("name", 80), ("a", 200), ("b", 200))),
            f"{prose(row['text'], 300)}{' *May be chance.*' if _by_chance(row) else ''}",
        ]
        for row in found["differences"]
    ]
    if rows:
        blocks.append(f"## Differences\n\n{table('item | A | B | in words', rows)}")
    for side, name in reversed(NAMES):
        lines = [line for line in found["lines"] if line["only_in"] == side]
        for place, line in enumerate(lines):
            facts = ", ".join(filter(None, (_who(line), text.moment(line["time"]), _step(line))))
            head = f"## Only in {name}\n\n" if place == 0 else ""
            where = f"{code(view.address(line)) or 'no address'}{f' ({facts})' if facts else ''}"
            blocks.append(f"{head}{where}\n\n{fenced([text.line(line['text'], 1000)])}")
    if found["uncompared"]:
        blocks.append("## Not compared\n\n" + "\n".join(f"- {prose(item)}" for item in found["uncompared"]))
    return "\n\n".join(blocks) + "\n"


def _html(found: Comparison) -> str:
    from markupsafe import Markup

    from postmortem.report.templates import embedded, environment, policy, sheets

    style, dark, _ = sheets()
    return (
        environment()
        .get_template("diff.html")
        .render(
            policy=policy((style, dark), ()),
            style=Markup(style),
            dark=Markup(dark),
            headline=text.sentence(found["headline"], 1000),
            differs=found["differs"],
            sides=[_side(found[key], name) for key, name in NAMES],
            rows=found["differences"],
            lines=[
                {**line, "address": view.address(line), "who": _who(line), "moment": text.moment(line["time"])}
                for line in found["lines"]
            ],
            uncompared=found["uncompared"],
            document=Markup(embedded(found)),
        )
    )


def _side(side: Mapping[str, Any], name: str) -> dict[str, object]:
    hosts = side["hosts"]
    shown = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    step, ranks = text.seconds(side["step_s"]), view.known(side["world_size"])
    return {**side, "name": name, "outcome": _outcome(side), "hosts": shown, "step": step, "ranks": ranks}
