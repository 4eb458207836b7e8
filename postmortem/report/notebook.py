"""The document as a card of a few lines for notebooks: `incident` at the end of a cell shows it.

Incident · host memory · established
Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …
node-b/dmesg.txt:81  [ 2240.704416] Memory cgroup out of memory: Killed process 29502 …
"""

from __future__ import annotations

import html

from postmortem.report import labels, text, view

LINES = "margin:.5em 0 0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.9em"
EDGES = {"incident": "#b3261e", "recovered": "#8a5a00", "healthy": "#1a7f4b", "undetermined": "#8a5a00"}


def card(document: view.Document) -> str:
    """Return a fragment of HTML. Colors except the edge are those of the notebook, so that it fits light and dark."""
    outcome = view.known(view.part(document, "verdict").get("outcome"))
    facts = [labels.OUTCOMES.get(outcome, "Undetermined"), view.category(document), view.confidence(document)[0]]
    edge = f"border-left:4px solid {EDGES.get(outcome, EDGES['undetermined'])};padding:.4em .9em"
    parts = [
        f'<div style="{edge};max-width:60em;font-family:system-ui,sans-serif">',
        f'<div style="opacity:.8;font-size:.9em">{_safe(" · ".join(filter(None, facts)))}</div>',
        f'<div style="font-size:1.1em;font-weight:600;margin-top:.2em">{_safe(view.headline(document), 600)}</div>',
    ]
    for proof in view.proofs(document)[:1]:
        parts.append(f'<pre style="{LINES}"><b>{_safe(proof.address)}</b>\n{_safe(proof.text, 400)}</pre>')
    for _, action in view.actions(document)[:1]:
        parts.append(f'<div style="margin-top:.5em"><b>Do now:</b> {_safe(action, 400)}</div>')
    return "".join([*parts, "</div>"])


def _safe(words: str, limit: int = 300) -> str:
    return html.escape(text.line(words, limit), quote=True)
