r"""What stands around a traceback: who tells of it, the thread that died, the exception that was handled.

-- Process 1 terminated with the following error:         torch/multiprocessing/spawn.py: raised by rank 1
RuntimeError: On WorkerInfo(id=1, name=worker1):          torch/distributed/rpc/internal.py: by worker 1
ray::Worker.run() (pid=22891, ip=10.0.0.2)                ray/exceptions.py RayTaskError: in that process
Exception in thread prefetch:                             CPython Lib/threading.py excepthook
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, takewhile

from postmortem.formats.excerpt import Excerpt
from postmortem.model.digits import number

_SPAWN = re.compile(r"(?:-- Process|\[Rank) (?P<rank>\d{1,7}) (?:terminated with the following error|Error Snippet\])")
_REMOTE = re.compile(r"\bOn WorkerInfo\(id=(?P<rank>\d{1,6}), name=")  # torch/distributed/rpc/internal.py
_RAY_ACTOR = re.compile(r"\bray::[\w.<>\[\]-]{1,120}\(\) \(pid=(?P<pid>\d{1,9}), ip=")  # ray/exceptions.py RayTaskError
_END_OF_TASK = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")
_THREAD = re.compile(r"^Exception in thread (?P<name>[^:]{1,80})")
_GATHERED = re.compile(
    r"Traceback \(most recent call last\): \(RANK (?P<rank>\d{1,6})\)"
)  # torch/distributed/checkpoint/api.py
_ANY = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\(\w+\))?(?::|$)")


def told_rank(excerpt: Excerpt) -> int | None:
    """The rank of which its parent, or the caller of its RPC, tells."""
    if m := _GATHERED.search(excerpt.text):
        return number(m["rank"])
    found = next((m for line in islice(excerpt.preceding(), 3) if (m := _REMOTE.search(line.text))), None)
    found = found or next((m for text in reversed(excerpt.before) if (m := _SPAWN.search(text))), None)
    return number(found["rank"]) if found else None


def told_pid(excerpt: Excerpt, framed: bool) -> int | None:
    """The process in which Ray says that it was raised: `ray::Worker.run() (pid=22891, ip=…)` heads what
    the driver shows of it."""
    for line in islice(excerpt.preceding(), 40):
        if m := _RAY_ACTOR.search(line.text):
            return number(m["pid"])
        if framed and _END_OF_TASK.search(line.text):
            return None
    return None


def around(excerpt: Excerpt) -> dict[str, object]:
    """What stands above a traceback's head: the thread that died of it, or the exception that was handled."""
    found: dict[str, object] = {}
    above = (back.envelope.body.strip() for back in excerpt.preceding() if back.envelope.key == excerpt.envelope.key)
    lines = [body for body in islice(above, 6) if body]
    if lines and (thread := _THREAD.match(lines[0])):
        found["thread"] = thread["name"]
    if len(lines) > 1 and lines[0].startswith("During handling") and (first := _ANY.match(lines[1])):
        found["during"] = first["type"]
    return found


def is_handed_on(frames: Sequence[tuple[str, int, str]], source: str) -> bool:
    """Whether Ray's driver raises what became of a worker, by whatever name: `raise value` of get(), in
    ray/_private/worker.py."""
    return bool(frames) and "ray/_private/worker.py" in frames[-1][0] and source.startswith("raise value")


_RETURNED = re.compile(
    r"(?:return(?:ed)?|exit(?:ed)?)(?:[ _-]?code)?(?: with)?(?: non-zero)?(?: exit)?(?: (?:code|status))?[ =:]{1,3}-?[1-9]\d{0,2}\b"
)
PRINTED = 60  # lines of a child's output that a parent's exception may quote


def of_a_child(excerpt: Excerpt, said: str, last: int) -> bool:
    """Whether an exception only says with which code a program ended, and has what that printed behind it
    (line `last`), with the traceback that it died of."""
    if not _RETURNED.search(said):
        return False
    behind = (line.envelope for line in excerpt.following() if line.number > last)
    printed = takewhile(lambda env: env.stamp is None, islice(behind, PRINTED))
    return any("Traceback (most recent call last)" in env.body for env in printed)
