"""The stacks of all ranks side by side: equal stacks in one group, the odd one first.

    rank 1        main (train.py:39), below it nine frames of torch and multiprocessing
    ranks 0, 2    main (train.py:43), in all_reduce

Of a rank without a stack the traceback of a failed collective counts, or the frames of its flight recorder. Two stacks
are equal if the user's own frames are: library frames below them change from one sample to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from postmortem.diagnose.case import Case
from postmortem.model import Event
from postmortem.model.contract.incident import LibraryFrame, Stack, StackFrame
from postmortem.model.grouped import grouped
from postmortem.system import forms

GROUPS = 32
FRAMES = 60
PIDS = 64
HOW = {"exception": "traceback", "recorder": "flight recorder"}
_REGEXES = forms.regexes("say/lines")


def stacks(case: Case, culprits: Sequence[int]) -> list[Stack]:
    """Groups of equal stacks: those of culprits first, then the smaller ones. Empty where one rank's traceback is
    all."""
    found = list(shown(case))
    rows = [_row(case, same) for same in grouped((_own_frames(e), e) for e in found).values()]
    if len(rows) < 2 and not any(e.kind == "stack" or e.fields.get("tool") for e in found):
        return []
    rows.sort(key=lambda r: (not {*r["ranks"]} & {*culprits}, r["count"], r["ranks"], r["pids"], str(r["code"])))
    return rows[:GROUPS]


def shown(case: Case) -> Iterator[Event]:
    """The last stack of each rank; of each process, where its rank is unknown."""
    last: dict[object, Event] = {}
    for e in case.of_kind("stack"):
        if e.fields.get("frames") and not e.fields.get("child"):
            rank = case.rank_of(e)
            last[("rank", rank) if rank is not None else (e.where.source, e.pid, e.where.line)] = e
    # a recorder without pending collectives shows where the rank was, not where it is
    waiting = [e for e in case.of_kind("recorder") if e.fields.get("pending")]
    for e in (*case.of_kind("crash"), *case.of_kind("exception"), *waiting):
        rank = case.rank_of(e)
        if rank is not None and e.fields.get("own"):
            last.setdefault(("rank", rank), e)
    yield from last.values()


def _own_frames(e: Event) -> tuple[object, ...]:
    """The user's own frames; of a stack without any its collective and all frames."""
    frames = _frames(e)
    own = tuple(frame for frame, mine in frames if mine)
    return own or (e.fields.get("collective"), *(frame for frame, _ in frames))


def _frames(e: Event) -> list[tuple[tuple[str, int, str], bool]]:
    """Frames, innermost first, and whether each is the user's."""
    found = e.fields.get("frames", ())
    frames = list(zip(found, e.fields.get("own") or (False,) * len(found), strict=False))
    return frames[::-1] if e.kind == "exception" else frames


def _row(case: Case, events: Sequence[Event]) -> Stack:
    first = events[0]
    return {
        "ranks": sorted(case.ranks_of(events)),
        "pids": sorted({e.pid for e in events if e.pid is not None and case.rank_of(e) is None})[:PIDS],
        "count": len(events),
        "collective": next((op for e in events if (op := e.fields.get("collective"))), None),
        "code": first.fields.get("code") or None,
        "how": (first.fields.get("tool") or HOW.get(first.kind, "dump")),
        "source": first.where.source,
        "line": first.where.shown,
        "frames": list(_grouped(first)),
    }


def _grouped(e: Event) -> Iterator[StackFrame]:
    """The user's frames one by one, consecutive library frames together."""
    for mine, members in groupby(_frames(e)[:FRAMES], key=lambda frame: frame[1]):
        frames: list[LibraryFrame] = [{"file": _short(f), "line": n, "function": name} for (f, n, name), _ in members]
        if not mine:
            yield {"own": False, "frames": frames}
        for f in frames if mine else ():
            yield {"own": True, "file": f["file"], "line": f["line"], "function": f["function"]}


def _short(file: str) -> str:
    """The path from the package on, as in py-spy: `torch/utils/data/dataloader.py`; of other paths the name."""
    path = file.replace(chr(92), "/")
    found = _REGEXES["package-root"].split(path, maxsplit=1)
    return found[1] if len(found) > 1 else path.rpartition("/")[2] if path[:1] == "/" else path
