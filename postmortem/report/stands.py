"""The document's stacks -> where the ranks stood: alike stacks together, the odd one first, libraries folded.

rank 1        py-spy       … 9 frames of torch, multiprocessing     main  train.py:39
ranks 0, 2    py-spy       … 3 frames of torch                      main  train.py:43      in all_reduce
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from postmortem.report import text, view

SHOWN = 12  # groups on the page
COMPARED = 2  # in the verdict's card


@dataclass(frozen=True, slots=True)
class Frames:
    """One frame of the user's code, or those of libraries in a row: then `said` counts them."""

    own: bool
    said: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stand:
    """A group of alike stacks. `place` is the user's innermost frame, `inside` the collective."""

    who: str
    how: str
    address: str
    place: str
    inside: str
    frames: tuple[Frames, ...]


def stands(document: view.Document) -> list[Stand]:
    """The groups in their order, as many as a page shows."""
    return [_stand(row) for row in view.rows(document.get("stacks"))[:SHOWN]]


def compared(document: view.Document) -> list[Stand]:
    """The two that differ, for the card of a hang; nothing where all stood alike or the matter is another."""
    hang = view.part(document, "verdict").get("category") in ("hang", "collective-mismatch")
    found = stands(document) if hang else []
    return found[:COMPARED] if len(found) > 1 else []


def _stand(row: dict[str, Any]) -> Stand:
    frames = tuple(_frames(row))
    own = next((f.said for f in frames if f.own), view.known(row.get("code")))
    collective = view.known(row.get("collective"))
    return Stand(
        who=_who(row),
        how=view.known(row.get("how")),
        address=view.address(row),
        place=own,
        inside=f"in {collective}" if collective else "",
        frames=frames,
    )


def _who(row: dict[str, Any]) -> str:
    ranks = _numbers(row.get("ranks"))
    if ranks:
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {text.ranges(ranks, view.SPANS)}"
    pids = _numbers(row.get("pids"))
    if pids:
        return f"{'process' if len(pids) == 1 else 'processes'} {', '.join(map(str, pids[:6]))}"
    return text.plural(view.whole(row.get("count")) or 1, "process", "processes")


def _numbers(value: object) -> list[int]:
    found = map(view.whole, value) if isinstance(value, list) else ()
    return [n for n in found if n is not None]


def _frames(row: dict[str, Any]) -> Iterator[Frames]:
    for item in view.rows(row.get("frames")):
        if item.get("own"):
            yield Frames(True, _line(item))
        else:
            below = view.rows(item.get("frames"))
            tops = dict.fromkeys(_package(view.known(f.get("file"))) for f in below)
            yield Frames(False, f"{text.plural(len(below), 'frame')} of {', '.join(tops)}", tuple(map(_line, below)))


def _line(frame: dict[str, Any]) -> str:
    name = view.known(frame.get("file")).rpartition("/")[2]
    return f"{view.known(frame.get('function'))} ({name}:{frame.get('line')})"


def _package(file: str) -> str:
    """`torch/utils/data/dataloader.py` is torch's."""
    return file.lstrip("/").partition("/")[0].removesuffix(".py") or "?"
