"""The numbered list of the lines of claims, each once; and the stacks of all ranks side by side, the odd one first.

    rank 1        main (train.py:39), below it nine frames of torch and multiprocessing
    ranks 0, 2    main (train.py:43), in all_reduce

Of a rank without a stack the traceback of a failed collective counts, or the frames of its flight recorder. Two stacks
are equal if the user's own frames are: library frames below them change from one sample to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from postmortem.diagnose.case import Case
from postmortem.diagnose.wording import INHERITED, iso
from postmortem.library import regexes
from postmortem.model import Event, Pattern
from postmortem.model.contract import verdict as contract
from postmortem.model.contract.incident import LibraryFrame, Stack, StackFrame
from postmortem.model.grouped import grouped
from postmortem.system import forms

MOST_ITEMS = 40
AROUND = 5  # lines shown on each side of a frame


class Evidence:
    """Grows while the document is written. `items` are rows of `verdict.evidence`."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.items: list[contract.Evidence] = []
        self.index: dict[tuple[str, int | None, str], int] = {}

    def add(self, e: Event, pattern: str | None, about: Sequence[int] = ()) -> int | None:
        """The number of this line in the list; None where the list is full."""
        e = own_frame(e)
        key = (*e.place, e.text[:200])
        if key in self.index:
            return self.index[key]
        if len(self.items) >= MOST_ITEMS:
            return None
        self.index[key] = len(self.items)
        self.items.append(self._row(e, pattern, about))
        return self.index[key]

    def _row(self, e: Event, pattern: str | None, about: Sequence[int]) -> contract.Evidence:
        rank = self.case.rank_of(e)
        if rank is None and len(about) == 1:
            rank = about[0]
        part = _match(self.case.library.get(pattern), e.text) if pattern else ""
        row: contract.Evidence = {
            "source": e.where.source,
            "line": e.where.shown,
            "end_line": e.where.shown_end,
            "text": e.text,
            "time": iso(e.at) if e.at_sigma <= INHERITED else None,
            "uncertainty_s": round(e.at_sigma, 6) if iso(e.at) else None,
            "rank": rank,
            "host": e.host or (self.case.registry.host_of.get(rank) if rank is not None else None),
            "pattern": pattern,
            "attempt": e.attempt,
            "context": list(e.context),
            "context_before": e.before,
        }
        return {**row, "match": part} if part else row


def _match(pattern: Pattern | None, text: str) -> str:
    """The part of a line that a pattern matches; empty where that is the whole line, or not known."""
    found = (m[0] for v in (pattern.variants if pattern else ()) if v.regex and (m := regexes.search(v.regex, text)))
    part = next(found, "").strip()
    return part if len(part) < len(text.strip()) else ""


def own_frame(e: Event) -> Event:
    """The line of the user's code in a stack: `Thread 21965 (idle)` by itself shows nothing."""
    if e.kind != "stack":
        return e
    place = _frame(e)
    if place is None:
        return e._replace(context=e.context[: e.before + AROUND + 1])
    where = e.where._replace(line=e.line + place - e.before, file_line=None)
    low = max(0, place - AROUND)
    shown = e.context[low : place + AROUND + 1]
    return e._replace(where=where, text=e.context[place], context=shown, before=place - low)


def _frame(e: Event) -> int | None:
    """The index of the user's own frame in its context."""
    if not (code := e.fields.get("code")) or e.where.line is None:
        return None
    file, _, number = code.rpartition(":")
    frame = re.compile(rf"{re.escape(file)}(?::|\", line ){number}\b")
    return next((i for i in range(e.before + 1, len(e.context)) if frame.search(e.context[i])), None)


# ── stacks ────────────────────────────────────────────────────────────────────

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
