"""Dumps of torch's debug server (torch.distributed.debug, `dump_dir`): the stacks of all ranks in one file.

=== Rank 1: http://gn1:42497/handler/dump_traceback? ===
Thread 0x00007fa603006b80 (most recent call first):
  File "/opt/train/train.py", line 9 in load_batch

The main thread comes last. The file's name has the time of its machine: stacks_20261128_194051.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.documents import outline, stacks
from postmortem.formats import times
from postmortem.formats.excerpt import document_event, timed
from postmortem.formats.frames import Frames, stack_fields
from postmortem.model import Event, Source
from postmortem.model.digits import whole
from postmortem.system import forms

_REGEXES = forms.regexes("formats/exceptions")
_RANK = re.compile(r"=== Rank (\d{1,7}): (?:https?://([\w.-]{1,253})[:/])?.* ===$")
_TAKEN = re.compile(r"_(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)\.txt")


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """A `stack` for each rank that gave one."""
    lines, broken = outline.lines_of(source, content)
    heads = [(number, m) for number, line in enumerate(lines) if (m := _RANK.match(line))]
    m = _TAKEN.search(source.path)
    stamp = times.find("{}-{}-{}T{}:{}:{}".format(*m.groups())) if m else None
    ends = [*(at for at, _ in heads[1:]), len(lines)]
    for (start, head), end in zip(heads, ends, strict=False):
        for event in _stacks(source, lines[start:end]):
            where = event.where._replace(line=event.line + start)
            yield timed(event._replace(where=where, rank=whole(head[1]), host=head[2]), stamp)
    yield from broken


def _stacks(source: Source, lines: list[str]) -> Iterator[Event]:
    """The stack of the main thread, by faulthandler or py-spy."""
    main, frames = -1, Frames()
    for number, line in enumerate(lines):
        if _REGEXES["thread"].match(line):
            main, frames = number, []
        elif main >= 0 and (m := _REGEXES["dumped-frame"].match(line)):
            frames.append((m["file"], whole(m["line"]), m["func"] or ""))
    if frames:
        fields = stack_fields(frames) | {"tool": "torch's debug server"}
        yield document_event(source, "stack", lines, main, fields, None)
    else:
        yield from list(stacks.py_spy(source, lines, None))[:1]
