"""Dumps of torch's debug server (torch.distributed.debug, `dump_dir`): the stacks of all ranks in one file.

=== Rank 1: http://gn1:42497/handler/dump_traceback? ===
Thread 0x00007fa603006b80 (most recent call first):
  File "/opt/train/train.py", line 9 in load_batch

The main thread comes last. The file's name has the time of its machine: stacks_20261128_194051.txt.

=== FR Trace ===                  what the recorders of all ranks have; of torchcomms, `TorchComms FR Trace`
--- Collectives ---
  id    ...    collective_seq_id    ...  expected_ranks    collective_state    collective_frames    missing_ranks
  13    ...                   14    ...  {0, 1, 2}         scheduled           []                   {1}

debug_server/rank1: b'http://gn1:53163'               keys of the store, with the host of each rank

Stacks of one process are by py-spy, or by a debugger (see `crash`):

Process 23888: /opt/train/venv/bin/python3 -u train.py               py-spy: most recent first
Thread 23888 (idle): "MainThread"
    __getitem__ (train.py:13)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, takewhile

from postmortem.documents import crash, outline
from postmortem.formats import times
from postmortem.formats.excerpt import decode, document_event, source_event, timed
from postmortem.formats.frames import Frames, frame_of, stack_fields
from postmortem.model import Event, Source
from postmortem.model.details import Collective, Counts, Details, Group
from postmortem.model.digits import whole
from postmortem.system import forms

_REGEXES = forms.regexes("formats/exceptions")
_RANK = re.compile(r"=== Rank (\d{1,7}): (?:https?://([\w.-]{1,253})[:/])?.* ===$")
_STORED = re.compile(r"debug_server/rank(\d{1,7}): b'https?://([\w.-]{1,253}):\d")
_OTHERS = re.compile(
    r"(\d{1,7}): Collective\(.{0,200}?collective_name='([^']{1,80})', input_sizes=(\[[\[\]\d, ]{0,300}\])"
)
MOST_RANKS, MOST_ROWS = 4096, 20_000  # ranks; rows of a table
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
    yield from (timed(event, stamp) for event in (*_hosts(source, lines), *_recorded(source, lines)))
    yield from broken


def _hosts(source: Source, lines: list[str]) -> Iterator[Event]:
    for number, line in enumerate(lines):
        if m := _STORED.match(line):
            event = document_event(source, "identity", lines, number, {}, None)
            yield event._replace(rank=whole(m[1]), host=m[2])


def _recorded(source: Source, lines: list[str]) -> Iterator[Event]:
    """A `recorder` for each rank, from the table of collectives, which torch's analysis joined over all ranks."""
    entries: dict[int, list[tuple[Collective, bool]]] = {}
    groups: dict[str, Group] = {}
    for cells, line in _collectives(lines):
        group, name, sizes, expected = cells[6], cells[7], cells[8], _numbers(cells[10])[:MOST_RANKS]
        missing = {n for cell in cells[13:] if cell[:1] == "{" and "Collective" not in cell for n in _numbers(cell)}
        others = {whole(m[1]): (m[2], m[3]) for m in _OTHERS.finditer(line)}
        groups[group] = {"desc": group.rpartition(":")[2], "ranks": tuple(sorted(expected))}
        for rank in expected:
            own = (group, whole(cells[3]), *others.get(rank, (name, sizes)))
            entries.setdefault(rank, []).extend([] if rank in missing else [(own, cells[11] == "completed")])
    return (_recorder(source, rank, made, groups) for rank, made in entries.items())


def _collectives(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """The rows of the table, each with its cells; no cell before the last has two spaces in it."""
    first = next((number for number, line in enumerate(lines) if line.startswith("--- Collectives")), len(lines))
    for line in takewhile(lambda line: line[:3] != "---", islice(lines, first + 1, first + MOST_ROWS)):
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        if len(cells) > 12 and cells[3].isdecimal():
            yield cells, line


def _recorder(source: Source, rank: int, made: list[tuple[Collective, bool]], groups: dict[str, Group]) -> Event:
    status: dict[str, Counts] = {}
    for (group, seq, *_), done in made:
        last = status.setdefault(group, {"enqueued": 0, "started": None, "completed": None})
        last["enqueued"] = max(last["enqueued"] or 0, seq)
        last["completed"] = max(last["completed"] or 0, seq) if done else last["completed"]
    pending = tuple(entry for entry, done in made if not done)
    fields: Details = {"entries": tuple(entry for entry, _ in made), "pending": pending, "status": status}
    fields |= {"groups": groups, "whole": False}
    text = f"rank {rank}: last enqueued " + ", ".join(f"{c['enqueued']} of {group}" for group, c in status.items())
    return source_event(source, "recorder", text, rank=rank, fields=fields)


def _numbers(text: str) -> list[int]:
    return [whole(n) for n in re.findall(r"\d{1,7}", text)]


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
        yield from list(py_spy(source, lines, None))[:1]


# ── stacks of one process ───────────────────────────────────────────────────────────────────────────────────

_FORKED = ("_launch", "_bootstrap_inner")


def stacks(source: Source, content: bytes) -> Iterator[Event]:
    """Read a document of stacks of any tool."""
    lines = [decode(line) for line in content[: 8 << 20].split(b"\n")]
    m = _REGEXES["pid-in-path"].search(source.path)
    pid = whole(m[1]) if m else None
    yield from py_spy(source, lines, pid)
    yield from crash.pystack(source, lines)
    yield from crash.gdb(source, lines, pid)


def py_spy(source: Source, lines: list[str], pid: int | None) -> Iterator[Event]:
    at, name, state = -1, "", ""
    frames: Frames = []
    for i, line in enumerate([*lines, "Process 0: "]):
        process, m = _REGEXES["spy-process"].match(line), _REGEXES["spy-thread"].match(line)
        if (process or m) and at >= 0 and frames and name in ("MainThread", ""):
            fields = stack_fields(frames) | {"state": state, "tool": "py-spy"}
            if any(func.split(".")[-1] in _FORKED or "popen_fork" in file for file, _, func in frames):
                fields["child"] = True  # a forked worker has its parent's frames below popen_fork
            yield document_event(source, "stack", lines, at, fields, pid)
        if process:
            pid, at, frames = whole(process["pid"]), -1, []
        elif m:
            at, name, state, frames = i, m["name"] or "", m["state"], []
        elif at >= 0 and (m := _REGEXES["spy-frame"].match(line)):
            frames.append(frame_of(m))
