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
from postmortem.report.terminal import Page

FORMS = ("terminal", "md", "html", "json")
TITLE = 140  # characters
SHOWN = 12  # differences on a terminal
NAMES = (("a", "A"), ("b", "B"))

Comparison = Mapping[str, Any]


def render(found: Comparison, form: str, width: int = 80, color: bool = False) -> str:
    if form == "json":
        return plain.harmless(plain.dump(found, indent=1, order=False)) + "\n"
    shown, below = text.sentence(found["headline"], 1000), ""
    if len(shown) > TITLE and "; " in shown:  # of several differences the first
        shown, _, below = shown.partition("; ")
        shown, below = f"{shown}.", f"{below[:1].upper()}{below[1:]}"
    parts: dict[str, Any] = {
        **found,
        "headline": shown,
        "below": below,
        "named": shown.startswith("B failed where A ended well: "),
        "sides": [_side(found[key], name) for key, name in NAMES],
        "rows": [{**row, "by_chance": not row["matters"] and row["kind"] != "missing"} for row in found["differences"]],
        "lines": [{**line, **_shown(line)} for line in found["lines"]],
    }
    if parts["named"]:  # the title has the sentence
        parts["sides"][1]["headline"] = labels.CATEGORIES.get(found["b"]["category"], "")
    if form == "terminal":
        return _terminal(parts, width, color)
    if form == "md":
        from postmortem.report.markdown import templates

        return templates().get_template("diff.md").render(parts).rstrip("\n") + "\n"
    return _html(parts, found)


def _side(side: Mapping[str, Any], name: str) -> dict[str, object]:
    hosts, outcome = side["hosts"], labels.OUTCOMES.get(side["outcome"], str(side["outcome"]))
    shown = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    step, ranks = text.seconds(side["step_s"]), view.known(side["world_size"])
    return {**side, "name": name, "outcome": outcome, "hosts": shown, "step": step, "ranks": ranks}


def _shown(line: Mapping[str, Any]) -> dict[str, str]:
    return {
        "address": view.address(line),
        "who": text.ranks(line["ranks"], view.SPANS) if line["ranks"] else "",
        "moment": text.moment(line["time"]),
        "after": f"after step {line['step']}" if line["step"] is not None else "",
    }


def _terminal(parts: Mapping[str, Any], width: int, color: bool) -> str:
    page = Page(width, color)
    page.lines.append(page.paint("DIFFERENT", "doubt") if parts["differs"] else page.paint("NO DIFFERENCE", "good"))
    page.blank()
    page.paragraph(parts["headline"], "bold")
    if parts["below"]:
        page.paragraph(parts["below"], "")
    page.blank()
    for side in parts["sides"]:
        page.field(side["name"], [f"{text.line(side['path'], 200)}  {text.sentence(side['outcome'], 80)}"])
    rows: dict[str, list[str]] = {"differs": [], "chance": [], "lacks": []}
    for row in parts["rows"]:
        kind = "differs" if row["matters"] else "chance" if row["by_chance"] else "lacks"
        if not (kind == "differs" and row["kind"] == "verdict" and parts["named"]):
            rows[kind].append(text.sentence(row["text"], 300))
    page.field("differs", rows["differs"][:SHOWN])
    for side, name in reversed(NAMES):
        page.field(f"only {name}", [_line(line) for line in parts["lines"] if line["only_in"] == side][:3])
    page.field("chance", rows["chance"][:4])
    page.field("lacks", rows["lacks"][:4])
    page.field("unknown", [text.sentence(item, 300) for item in parts["uncompared"]])
    return page.text()


def _line(line: Mapping[str, Any]) -> str:
    facts = ", ".join(filter(None, (line["who"], line["after"])))
    where = text.line(line["address"], 400) + (f" ({facts})" if facts else "")
    return f"{where}: {text.line(line['text'], 200)}"


def _html(parts: Mapping[str, Any], found: Comparison) -> str:
    from markupsafe import Markup

    from postmortem.report.templates import embedded, environment, policy, sheets

    style, dark, _ = sheets()
    return (
        environment()
        .get_template("diff.html")
        .render(
            parts,
            policy=policy((style, dark), ()),
            style=Markup(style),
            dark=Markup(dark),
            document=Markup(embedded(found)),
        )
    )
