"""Where every rank stood, side by side: alike stacks in one group, the odd one first.

    rank 1        main (train.py:39), below it nine frames of torch and multiprocessing
    ranks 0, 2    main (train.py:43), in all_reduce

In: stacks that a tool took or the program dumped, and of ranks without one the traceback of a collective that
failed, or the frames that the flight recorder kept of the one it
waits in. Out: rows of the document's `stacks`. Two stacks are alike if the user's own frames are:
what a library does below them changes from one look to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from postmortem.diagnose.case import Case
from postmortem.model import Event
from postmortem.model.contract.incident import LibraryFrame, Stack, StackFrame

GROUPS = 32
FRAMES = 60
PIDS = 64
HOW = {"exception": "traceback", "recorder": "flight recorder"}
_ROOT = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python[\d.]+/")


def stacks(case: Case, culprits: Sequence[int]) -> list[Stack]:
    """Groups of alike stacks: those of culprits first, then the smaller ones. Empty where all that is known is
    one rank's traceback."""
    groups: dict[object, list[Event]] = {}
    for e in shown(case):
        groups.setdefault(_key(e), []).append(e)
    rows = [_row(case, events) for events in groups.values()]
    if len(rows) < 2 and not any(e.kind == "stack" for events in groups.values() for e in events):
        return []
    return sorted(rows, key=lambda row: _oddness(row, culprits))[:GROUPS]


def shown(case: Case) -> Iterator[Event]:
    """One stack of each rank, the last that was taken; of each process, where its rank is not known."""
    last: dict[object, Event] = {}
    for e in case.of_kind("stack"):
        if e.fields.get("frames") and not e.fields.get("child"):
            rank = case.rank_of(e)
            last[("rank", rank) if rank is not None else (e.where.source, e.pid, e.where.line)] = e
    # of a collective that is done the recorder tells where the rank was, not where it is
    waiting = [e for e in case.of_kind("recorder") if e.fields.get("pending")]
    for e in (*case.of_kind("exception"), *waiting):
        rank = case.rank_of(e)
        if rank is not None and e.fields.get("own") and ("rank", rank) not in last:
            last["rank", rank] = e
    yield from last.values()


def _frames(e: Event) -> list[tuple[tuple[str, int, str], bool]]:
    """Frames with whether they are the user's, innermost first. A traceback has them the other way round."""
    found, own = e.fields.get("frames"), e.fields.get("own")
    if not isinstance(found, tuple):
        return []
    marks = own if isinstance(own, tuple) else (False,) * len(found)
    frames = list(zip(found, marks, strict=False))
    return frames[::-1] if e.kind == "exception" else frames


def _key(e: Event) -> object:
    frames = _frames(e)
    own = tuple(frame for frame, mine in frames if mine)
    return own or (e.fields.get("collective"), *(frame for frame, _ in frames))


def _row(case: Case, events: Sequence[Event]) -> Stack:
    first = events[0]
    return {
        "ranks": sorted(case.ranks_of(events)),
        "pids": sorted({e.pid for e in events if e.pid is not None and case.rank_of(e) is None})[:PIDS],
        "count": len(events),
        "collective": next((str(op) for e in events if (op := e.fields.get("collective"))), None),
        "code": str(first.fields["code"]) if first.fields.get("code") else None,
        "how": str(first.fields.get("tool") or HOW.get(first.kind, "dump")),
        "source": first.where.source,
        "line": first.where.shown,
        "frames": list(_told(first)),
    }


def _told(e: Event) -> Iterator[StackFrame]:
    """The user's frames one by one, libraries' frames in a row together."""
    for mine, members in groupby(_frames(e)[:FRAMES], key=lambda frame: frame[1]):
        frames: list[LibraryFrame] = [{"file": _short(f), "line": n, "function": name} for (f, n, name), _ in members]
        if mine:
            for f in frames:
                yield {"own": True, "file": f["file"], "line": f["line"], "function": f["function"]}
        else:
            yield {"own": False, "frames": frames}


def _short(file: str) -> str:
    """From the package on, as py-spy has it: `torch/utils/data/dataloader.py`; of other paths the name."""
    path = file.replace(chr(92), "/")
    found = _ROOT.split(path, maxsplit=1)
    return found[1] if len(found) > 1 else path.rpartition("/")[2] if path[:1] == "/" else path


def _oddness(row: Stack, culprits: Sequence[int]) -> tuple[object, ...]:
    return not set(row["ranks"]) & set(culprits), row["count"], row["ranks"], row["pids"], str(row["code"])
