"""The document's `verdict.collective` in one sentence: what the ranks were stuck in, and who was not there.

ALLREDUCE #8120 in the default group, 1,048,576 elements: 3 of 4 ranks entered, rank 2 had completed
#8119; timed out after 600 s
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from postmortem.model.digits import whole
from postmortem.report import text, view

NAMED = 4  # groups of ranks of which it is told where they were
CALLS = {"backward": "the all-reduce of backward", "init": "init_process_group"}


def sentence(document: view.Document) -> str:
    """One sentence on the collective that the ranks were stuck in; empty where nothing tells of a wait."""
    row = view.part(view.part(document, "verdict"), "collective")
    waits = _waited(row)
    if not (waits or any(row.get(name) for name in ("seq", "missing", "elsewhere"))):
        return ""
    return f"{_named(row)}: {', '.join(_who(row))}" + (f"; {waits}" if waits else "")


def _named(row: dict[str, Any]) -> str:
    op = view.known(row.get("op")) or "a collective"
    seq, group = view.whole(row.get("seq")), view.known(row.get("group")).partition(" [")[0]
    said = CALLS.get(op, op) + (f" #{seq}" if seq is not None else "")
    if group:
        said += " in the default group" if group == "default_pg" else f" in group {group}"
    numel, dtype = view.whole(row.get("numel_in")), view.known(row.get("dtype"))
    if numel is not None:
        said += f", {text.plural(numel, f'{dtype} element' if dtype else 'element')}"
    return said


def _who(row: dict[str, Any]) -> Iterator[str]:
    """Who had entered, and where the others were."""
    entered, size = _ranks(row.get("entered")), view.whole(row.get("size"))
    if size is not None and entered:
        everybody = "both ranks" if size == 2 else f"all {size:,} ranks"
        yield f"{everybody if len(entered) == size else f'{len(entered):,} of {size:,} ranks'} entered"
    elif entered:
        yield f"{_named_ranks(entered)} entered"
    done, others = view.part(row, "completed"), view.part(row, "elsewhere")
    told: dict[str, list[int]] = {}
    for rank in _ranks(row.get("missing")):
        n = view.whole(done.get(str(rank)))
        told.setdefault(f"had completed #{n}" if n is not None else "did not", []).append(rank)
    for name, call in others.items():
        if name.isdecimal():
            told.setdefault(f"in {CALLS.get(str(call), str(call))}", []).append(whole(name))
    for said, ranks in list(told.items())[:NAMED]:
        was = ("was " if len(ranks) == 1 else "were ") if said.startswith("in ") else ""
        yield f"{_named_ranks(ranks)} {was}{said}"


def _named_ranks(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text.ranges(ranks)}"


def _ranks(value: object) -> list[int]:
    found = map(view.whole, value) if isinstance(value, list) else ()
    return [n for n in found if n is not None]


def _waited(row: dict[str, Any]) -> str:
    limit, waited = _seconds(row.get("timeout_s")), _seconds(row.get("waited_s"))
    return f"timed out after {limit}" if limit else f"waited for {waited}" if waited else ""


def _seconds(value: object) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        return ""
    return f"{value:.0f} s" if value >= 10 else f"{float(f'{value:.1f}'):g} s"
