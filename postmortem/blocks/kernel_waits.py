r"""Kernel stacks of tasks that wait: which file system, device or driver holds them.

    INFO: task python3:15902 blocked for more than 122 seconds.        kernel/hung_task.c
    task:python3         state:D stack:    0 pid:15902 ppid: 1         kernel/sched/core.c sched_show_task
    Call Trace:
     rpc_wait_bit_killable+0x25/0xb0 [sunrpc]
     nfs4_proc_getattr+0x7f/0xb0 [nfsv4]                               -> kernel wait/nfs

    [<0>] ll_file_io_generic+0x4a1/0xc20 [lustre]                      /proc/PID/stack

The innermost function that belongs to one says it; `schedule` and `io_schedule` say only that it waits.
Out: an event of kind `fault` on the stack's head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from postmortem.formats.excerpt import Excerpt
from postmortem.library import Signature
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.system import lazy as late

OPENER = Signature(
    ":waiting-task",
    r"(?:blocked for more than \d+ seconds|state:D stack|\[<0>\] \w{3,60}[+]0x)",
    after=8192,
    before=512,
)
# in the order in which they are asked of each function: a module's name, or how its functions begin
HELD_BY = (
    ("gpfs", r"\[mmfs|\[mmfslinux|\bgpfs_|\bkxWaitCondvar|mmfs26"),
    ("lustre", r"\[(?:lustre|ptlrpc|osc|mdc|lov|lmv|obdclass|lnet)\]|\b(?:ll|ptlrpc|osc|mdc|cl)_\w+\+"),
    ("nfs", r"\[(?:nfs|nfsv[34]|sunrpc)\]|\b(?:nfs\d?|rpc)_\w+\+"),
    ("ceph", r"\[(?:ceph|libceph|rbd)\]|\bceph_\w+\+"),
    ("beegfs", r"\[beegfs\]|\b(?:FhgfsOps|beegfs)_?\w+\+"),
    ("fuse", r"\[fuse\]|\b(?:fuse|request_wait_answer)_?\w*\+"),
    ("smb", r"\[cifs\]|\b(?:cifs|smb2)_\w+\+"),
    ("ext4", r"\[ext4\]|\b(?:ext4|jbd2|do_get_write_access)_?\w*\+"),
    ("xfs", r"\[xfs\]|\bxfs_\w+\+"),
    ("btrfs", r"\[btrfs\]|\bbtrfs_\w+\+"),
    (
        "block device",
        r"\b(?:blk|bio|blkdev|nvme|scsi|submit_bio|dm)_\w+\+|\[(?:nvme(?:_core)?|(?:scsi|dm|md)_mod|raid\d*)\]",
    ),
    ("nvidia", r"\[nvidia|\b(?:uvm|nv)_\w+\+|_nv\d{6}rm\+"),
)  # fmt: skip
STORAGE = tuple(name for name, _ in HELD_BY if name != "nvidia")
_HELD_BY = tuple((name, re.compile(form)) for name, form in HELD_BY)
_FRAME = late.regex(r"[A-Za-z_][\w.]{1,120}\+0x[0-9a-f]+/0x[0-9a-f]+")
_HEAD = late.regex(r"blocked for more than|state:[DSRT] ")
_TASK = late.regex(r"task:? ?(?P<comm>[^\s:]{1,40})(?:[: ]|\s+state:D.{0,60}?\bpid: ?)(?P<pid>\d{1,9})")
DEPTH = 60  # lines that a stack may take


def parse(excerpt: Excerpt) -> Iterator[Event]:
    """Read the stack below the head of one waiting task; of /proc/PID/stack its first line is the head."""
    if "[<0>]" in excerpt.text and any("[<0>]" in line.text for line in islice(excerpt.preceding(), 2)):
        return
    named = _TASK.search(excerpt.text)
    held = next((name for text in _stack(excerpt, named) if (name := _holder(text))), "")
    if not held:
        return
    fields: dict[str, object] = {"says": f"kernel wait/{held.replace(' ', '-')}", "detail": held}
    pid = number(named["pid"]) if named else None
    if named:
        fields |= {"comm": named["comm"], "pid": pid}
    yield excerpt.event("fault", next(excerpt.following()), severity="warning", fields=fields, pid=pid)


def _stack(excerpt: Excerpt, named: re.Match[str] | None) -> Iterator[str]:
    """The functions of one task's stack, innermost first; the next task's head ends it."""
    seen = False
    for n, line in enumerate(islice(excerpt.following(), DEPTH)):
        if n and _HEAD.search(line.text) and (seen or not _same_task(named, _TASK.search(line.text))):
            return
        if _FRAME.search(line.text):
            seen = True
            yield line.text
        elif seen and "</TASK>" in line.text:
            return


def _same_task(a: re.Match[str] | None, b: re.Match[str] | None) -> bool:
    """`INFO: task python3:15902 blocked` and `task:python3 state:D … pid:15902` head one stack."""
    return a is not None and b is not None and a["pid"] == b["pid"]


def _holder(text: str) -> str:
    """What a function of the kernel belongs to; empty where it is the scheduler's or unknown."""
    return next((name for name, form in _HELD_BY if form.search(text)), "")
