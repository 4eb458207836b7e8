"""The verdict for CI: annotations of GitHub Actions, and JUnit XML for GitLab and Jenkins.

::error file=train.py,line=412,title=Incident%3A host memory (established)::Rank 3 on node-b …%0A…
<testcase classname="postmortem" name="job 4711"><failure type="host-oom" message="Rank 3 …">…
"""

from __future__ import annotations

import html
import re

from postmortem.report import labels, summary, text, view

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
    word = view.confidence(document)[0]
    title = ": ".join(bit for bit in (labels.OUTCOMES.get(outcome, "Undetermined"), view.category(document)) if bit)
    title += f" ({word})" if word else ""
    lines = [
        view.headline(document),
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
    """Return an XML document with one test case. It fails unless the outcome is healthy or recovered."""
    document = incident.document
    verdict = view.part(document, "verdict")
    failed = verdict.get("outcome") not in ("healthy", "recovered")
    name = view.job(document) or "job"
    lines = [view.headline(document)]
    lines += [f"{label}: {value}" for label, value in view.culprit(document)]
    lines += [f"proof: {proof.address}  {proof.text}" for proof in view.proofs(document)[:3]]
    lines += [f"because: {item}" for item in view.words(verdict.get("because"))[:5]]
    lines += [f"do: {action}" for action in view.action_lines(document)]
    lines += [f"missing: {item.get('what')}" for item in view.rows(verdict.get("missing"))[:5]]
    body = "\n".join(_safe(text.line(line)) for line in lines)
    if failed:
        kind = view.known(verdict.get("category")) or "undetermined"
        inner = f'<failure type="{_safe(kind)}" message="{_safe(view.headline(document))}">{body}</failure>'
    else:
        inner = f"<system-out>{body}</system-out>"
    count = f'tests="1" failures="{int(failed)}" errors="0"'
    case = f'<testcase classname="postmortem" name="{_safe(name)}">\n{inner}\n</testcase>'
    suite = f'<testsuite name="postmortem" {count}>\n{case}\n</testsuite>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="postmortem" {count}>\n{suite}\n</testsuites>\n'


def _safe(words: str) -> str:
    """XML cannot contain control characters or halves of surrogate pairs; `visible` writes them out."""
    return html.escape(text.visible(words), quote=True)
