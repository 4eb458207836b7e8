"""The incident -> JUnit XML with one test case,
which GitLab and Jenkins show among the results of a pipeline.

    <testcase classname="postmortem" name="job 4711"><failure type="host-oom" message="Rank 3 …">…

It fails for incidents and undetermined failures;
what was healthy or recovered passes, the latter with a note.
"""

from __future__ import annotations

import html

from postmortem.report import text, view

WIDEST = 2000


def render_junit(incident: view.Incident) -> str:
    """Return the whole XML document."""
    document = incident.document
    outcome = view.known(view.part(document, "verdict").get("outcome"))
    failed = outcome not in ("healthy", "recovered")
    name = view.known(view.part(document, "job").get("id"))
    body = "\n".join(map(_safe, _told(document)))
    if failed:
        kind = view.known(view.part(document, "verdict").get("category")) or "undetermined"
        inner = f'<failure type="{_safe(kind)}" message="{_safe(view.headline(document))}">{body}</failure>'
    else:
        inner = f"<system-out>{body}</system-out>"
    count = f'tests="1" failures="{int(failed)}" errors="0"'
    case = f'<testcase classname="postmortem" name="{_safe(f"job {name}" if name else "job")}">\n{inner}\n</testcase>'
    suite = f'<testsuite name="postmortem" {count}>\n{case}\n</testsuite>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="postmortem" {count}>\n{suite}\n</testsuites>\n'


def _told(document: view.Document) -> list[str]:
    """The verdict in lines, as on the terminal."""
    lines = [view.headline(document)]
    lines += [f"{label}: {value}" for label, value in view.culprit(document)]
    lines += [f"proof: {proof.address}  {proof.text}" for proof in view.proofs(document)[:3]]
    lines += [f"because: {item}" for item in view.words(view.part(document, "verdict").get("because"))[:5]]
    lines += [f"do: {f'{lead}. ' if lead else ''}{said}" for lead, said in view.todo(document)]
    lines += [f"missing: {item.get('what')}" for item in view.rows(view.part(document, "verdict").get("missing"))[:5]]
    return [text.line(line, WIDEST) for line in lines]


def _safe(words: str) -> str:
    """XML has no way to write control characters, nor halves of pairs; `visible` writes them out."""
    return html.escape(text.visible(words), quote=True)
