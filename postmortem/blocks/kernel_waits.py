r"""Kernel stacks of waiting tasks: the file system, device or driver that holds them, as events of kind `fault`.

    INFO: task python3:15902 blocked for more than 122 seconds.        kernel/hung_task.c
    task:python3         state:D stack:    0 pid:15902 ppid: 1         kernel/sched/core.c sched_show_task
    Call Trace:
     rpc_wait_bit_killable+0x25/0xb0 [sunrpc]
     nfs4_proc_getattr+0x7f/0xb0 [nfsv4]                               -> kernel wait/nfs

    [<0>] ll_file_io_generic+0x4a1/0xc20 [lustre]                      /proc/PID/stack

The innermost function of a known holder decides (faults.yaml); `schedule` and `io_schedule` belong to none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from postmortem.formats import forms
from postmortem.formats.excerpt import Excerpt
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.digits import number

OPENER = Signature(
    ":waiting-task",
    r"(?:blocked for more than \d+ seconds|state:D stack|\[<0>\] \w{3,60}[+]0x)",
    after=8192,
    before=512,
)
DEPTH = 60  # lines of a stack
_REGEXES = forms.regexes("blocks/faults")
_HOLDERS = [(row["held_by"], _REGEXES[name]) for name, row in forms.rows("blocks/faults").items() if "held_by" in row]


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the stack below the first line of a waiting task; of /proc/PID/stack, its first line."""
    if "[<0>]" in excerpt.text and any("[<0>]" in line.text for line in islice(excerpt.preceding(), 2)):
        return
    task = _REGEXES["waiting-task"].search(excerpt.text)
    stack = _stack(excerpt, task)
    holder = next((name for text in stack for name, form in _HOLDERS if form.search(text)), "")
    if not holder:
        return
    fields: dict[str, object] = {"says": f"kernel wait/{holder.replace(' ', '-')}", "detail": holder}
    pid = number(task["pid"]) if task else None
    if task:
        fields |= {"comm": task["comm"], "pid": pid}
    yield excerpt.event("fault", next(excerpt.following()), severity="warning", fields=fields, pid=pid)


def _stack(excerpt: Excerpt, task: re.Match[str] | None) -> Iterator[str]:
    """The functions of one task's stack, innermost first, up to the next task."""
    seen = False
    for n, line in enumerate(islice(excerpt.following(), DEPTH)):
        if n and _REGEXES["waiting"].search(line.text):
            other = _REGEXES["waiting-task"].search(line.text)
            if seen or task is None or other is None or task["pid"] != other["pid"]:
                return
        if _REGEXES["kernel-frame"].search(line.text):
            seen = True
            yield line.text
        elif seen and "</TASK>" in line.text:
            return
