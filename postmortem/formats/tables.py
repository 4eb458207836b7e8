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

OOM = Signature(":oom-tasks", r"oom-kill:constraint=CONSTRAINT_", after=0, before=16384)
_REGEXES = forms.regexes("formats/excerpts")


def oom_tasks(excerpt: Excerpt) -> Iterator[Event]:
    """The pids in the table above the kernel's OOM summary."""
    pids: list[int] = []
    for line in excerpt.preceding():
        if m := _REGEXES["oom-task"].search(line.text):
            pids.append(whole(m["pid"]))
        elif pids:
            break
    victim = _REGEXES["oom-victim"].search(excerpt.text)
    if pids and victim:
        fields: Details = {"tasks": tuple(pids[:4096])}
        yield excerpt.event("oom-tasks", excerpt.first, fields=fields, pid=whole(victim["pid"]))
