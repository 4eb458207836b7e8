"""The incident -> workflow commands of GitHub Actions,
which show as annotations on the run and beside the code line.

    ::error file=train.py,line=412,title=Incident%3A host memory (established)::Rank 3 on node-b …%0A…

The runner reads each line of a step's output that begins with `::` as a command (actions/runner,
ActionCommand.cs), so a line of a log must never stand at the beginning of one of ours; line ends and percent
signs are escaped as the toolkit does. The step summary is the Markdown output; the command line appends it to
$GITHUB_STEP_SUMMARY.
"""

from __future__ import annotations

import re

from postmortem.report import labels, text, view

LEVELS = {"incident": "error", "undetermined": "error", "recovered": "warning"}
MAX_MESSAGE = 4000


def render_github(incident: view.Incident) -> str:
    """Return one annotation with the verdict and its proof, and one with what to do."""
    document = incident.document
    verdict = view.part(document, "verdict")
    outcome = view.known(verdict.get("outcome"))
    level = "notice" if outcome == "healthy" else LEVELS.get(outcome, "error")
    word = view.confidence(document)[0]
    title = ": ".join(bit for bit in (labels.OUTCOMES.get(outcome, "Undetermined"), view.category(document)) if bit)
    title += f" ({word})" if word else ""
    said = [
        view.headline(document),
        *(f"{p.address}  {text.line(p.text, 400)}" for p in view.proofs(document)[:1]),
    ]
    said += view.words(verdict.get("because"))[:4]
    lines = [command(level, said, title, view.known(view.part(verdict, "culprit").get("code")))]
    todo = [
        f"{place}. {f'{lead}. ' if lead else ''}{words}" for place, (lead, words) in enumerate(view.todo(document), 1)
    ]
    if todo:
        lines.append(command("notice", todo, "What to do now"))
    return "\n".join(lines) + "\n"


def command(level: str, said: list[str], title: str, code: str = "") -> str:
    """One workflow command; its message has a line for each item."""
    message = "\n".join(text.line(item, 800) for item in said)[:MAX_MESSAGE]
    place = re.fullmatch(r"(.{1,300}):([0-9]{1,9})", code, re.DOTALL)
    properties = [f"file={_property(place[1])}", f"line={place[2]}"] if place else []
    return f"::{level} {','.join([*properties, f'title={_property(title)}'])}::{_escaped(message)}"


def _escaped(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _escaped(text.line(words, 300)).replace(":", "%3A").replace(",", "%2C")
