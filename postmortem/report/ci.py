"""The verdict for CI: annotations of GitHub Actions, and JUnit XML for GitLab and Jenkins.

::error file=train.py,line=412,title=Incident%3A host memory (established)::Rank 3 on node-b …%0A…
<testcase classname="postmortem" name="job 4711"><failure type="host-oom" message="Rank 3 …">…
"""

from __future__ import annotations

import re

from postmortem.report import summary, text, view
from postmortem.report.templates import environment

LEVELS = {"incident": "error", "undetermined": "error", "recovered": "warning", "healthy": "notice"}
MAX_MESSAGE = 4000


def render_github(incident: view.Incident) -> str:
    """Return one annotation with the verdict and its proof, and one with the actions.

    The runner reads each line of a step's output that begins with `::` as a command (actions/runner,
    ActionCommand.cs), so a line of a log must never be at the beginning of one of ours; line ends and percent signs
    are escaped as the toolkit does. The command line appends the Markdown output to $GITHUB_STEP_SUMMARY.
    """
    document = incident.document
    verdict = view.part(document, "verdict")
    outcome = view.known(verdict.get("outcome"))
    word = summary.confidence(document)[0]
    title = ": ".join(bit for bit in (view.outcome(document), view.category(document)) if bit)
    title += f" ({word})" if word else ""
    lines = [
        *filter(None, view.lead(document)),
        " · ".join(summary.facts(document)),
        *(f"{p.address}  {text.line(p.text, 400)}" for p in view.proofs(document)[:1]),
    ]
    lines += view.words(verdict.get("because"))[:4]
    code = view.known(view.part(verdict, "culprit").get("code"))
    commands = [_command(LEVELS.get(outcome, "error"), lines, title, code)]
    actions = [f"{place}. {action}" for place, action in enumerate(view.action_lines(document), 1)]
    if actions:
        commands.append(_command("notice", actions, "What to do now"))
    return "\n".join(commands) + "\n"


def _command(level: str, lines: list[str], title: str, code: str = "") -> str:
    message = "\n".join(text.line(line, 800) for line in lines if line)[:MAX_MESSAGE]
    place = re.fullmatch(r"(.{1,300}):([0-9]{1,9})", code, re.DOTALL)
    properties = [f"file={_property(place[1])}", f"line={place[2]}"] if place else []
    return f"::{level} {','.join([*properties, f'title={_property(title)}'])}::{_escaped(message)}"


def _escaped(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _escaped(text.line(words, 300)).replace(":", "%3A").replace(",", "%2C")


def render_junit(incident: view.Incident) -> str:
    """Return an XML document with one test case."""
    document = incident.document
    template = environment().get_template("junit.xml")
    return template.render(document=document, verdict=view.part(document, "verdict"))
