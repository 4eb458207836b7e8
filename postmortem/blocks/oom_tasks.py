"""The kernel's table of the tasks among which its OOM killer chose (mm/oom_kill.c dump_tasks).

[  pid  ]   uid  tgid total_vm      rss ... name
[  32688]     0 32688   356486   200908 ... python3
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats.excerpt import Excerpt
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.system import forms

OPENER = Signature(":oom-tasks", r"oom-kill:constraint=CONSTRAINT_", after=0, before=16384)
LARGEST = 8  # tasks whose pages are kept
_REGEXES = forms.regexes("formats/excerpts")


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """The pids in the table above the kernel's OOM summary, the largest tasks with their pages, and the use of the
    memory cgroup above the table."""
    fields: Details = {}
    pids: list[int] = []
    rows: list[tuple[int, str, int, int]] = []
    for line in excerpt.preceding():
        if m := _REGEXES["oom-task"].search(line.text):
            pids.append(whole(m["pid"]))
            rows += [(pids[-1], m["name"], whole(m["virtual"]), whole(m["resident"]))] if m["name"] else []
        elif m := _REGEXES["oom-usage"].search(line.text):
            fields["usage"] = whole(m["used"]), whole(m["limit"]), line.number
            break
        elif _REGEXES["oom-summary"].search(line.text):  # of the kill before
            break
    victim = _REGEXES["oom-victim"].search(excerpt.text)
    if pids and victim:
        largest = sorted(rows, key=lambda row: -row[3])[:LARGEST]
        fields |= {"tasks": tuple(pids[:4096]), "resident": tuple(largest)}
        yield excerpt.event("oom-tasks", excerpt.first, fields=fields, pid=whole(victim["pid"]))
