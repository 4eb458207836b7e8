"""The document as a card of a few lines for notebooks: `incident` at the end of a cell shows it.

Incident · host memory · established
Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …
node-b/dmesg.txt:81  [ 2240.704416] Memory cgroup out of memory: Killed process 29502 …
"""

from __future__ import annotations

from postmortem.report import view
from postmortem.report.templates import environment


def card(document: view.Document) -> str:
    """Return a fragment of HTML. Colors except the edge are those of the notebook, so that it fits light and dark."""
    outcome = view.known(view.part(document, "verdict").get("outcome"))
    return environment().get_template("card.html").render(document=document, outcome=outcome).rstrip("\n")
