"""The lines that one run has and the other lacks: the first of each rank, trouble first.

What is no line of its own is left out: of a common console the halves of torn lines, and what runs of one job
print otherwise each time. A run that says many things of its own (it prints what a model writes) has no line
that tells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Literal

from postmortem.fleet.diff.run import Run
from postmortem.formats.lineform import alike
from postmortem.model.contract.comparison import OnlyIn
from postmortem.reading.distinct import DistinctLine, RunLines

MOST = 12
LETTERS = 6  # in a form that says something
OWN = 0.15  # the share of forms of its own from which on a run's ordinary lines tell nothing
FEW = 5  # or so many
HALF = 8  # characters of half a line


def only_in(run: Run, other: Run, side: Literal["a", "b"]) -> list[OnlyIn]:
    """What `run` has and `other` lacks; nothing where the other's logs were not read as a whole."""
    if other.heard is None or not other.heard.whole:
        return []
    if run.heard is None:
        return list(_quoted(run.document, other.heard, other.names, side))[:MOST]
    own = [said for form, said in run.heard.distinct.items() if _is_own(form, other.heard)]
    whole = _Whole([*other.heard.distinct, *(form for form in run.heard.distinct if form in other.heard.distinct)])
    own = [said for said in own if not whole.torn(alike(said.text, run.names))]
    troubled = [said for said in own if _troubled(run, said)]
    quiet = [said for said in own if said.ordinary]
    if len(quiet) > max(FEW, OWN * len(run.heard.distinct)):
        quiet = []
    chosen = [*_first_of_each(run, troubled), *_first_of_each(run, quiet)][:MOST]
    return [_row(run, said, side) for said in chosen]


def _is_own(form: str, other: RunLines) -> bool:
    return form not in other.distinct and sum(map(str.isalpha, form)) >= LETTERS


def _troubled(run: Run, said: DistinctLine) -> bool:
    return said.troubled and (said.source, said.line) not in run.context


def _first_of_each(run: Run, own: Iterable[DistinctLine]) -> Iterator[DistinctLine]:
    """In the order of time, the first line of each rank; lines of nobody are one more voice for each file."""
    seen: set[object] = set()
    for said in sorted(own, key=lambda said: _order(run, said)):
        voices: Set[object] = said.ranks or {said.source}
        if voices - seen:
            seen |= voices
            yield said


def _order(run: Run, said: DistinctLine) -> tuple[float, str, int]:
    at = run.time(said.source, said.line)
    return float("inf") if at is None else at, said.source, said.line


def _row(run: Run, said: DistinctLine, side: Literal["a", "b"]) -> OnlyIn:
    return {
        "only_in": side,
        "text": said.text.strip(),
        "ranks": sorted(said.ranks),
        "source": said.source,
        "line": said.shown,
        "step": said.step,
        "time": run.moment(said.source, said.line),
        "trouble": said.troubled,
    }


def _quoted(document: Mapping[str, Any], other: RunLines, names: Set[str], side: Literal["a", "b"]) -> Iterator[OnlyIn]:
    """The lines of proof that a document quotes."""
    for proof in document["verdict"].get("evidence") or ():
        form = alike(str(proof.get("text") or "").split("\n")[0], names)
        if _is_own(form, other):
            rank = proof.get("rank")
            yield {
                "only_in": side,
                "text": str(proof["text"]).strip(),
                "ranks": [] if rank is None else [rank],
                "source": str(proof.get("source") or ""),
                "line": proof.get("line"),
                "step": None,
                "time": proof.get("time"),
                "trouble": True,
            }


class _Whole:
    """Forms of whole lines, to know their halves by: what is the begin or the end of one, or two of them."""

    def __init__(self, forms: Iterable[str]) -> None:
        self.forms = set(forms)
        self.sorted = sorted(self.forms)
        self.reversed = sorted(form[::-1] for form in self.forms)

    def torn(self, form: str) -> bool:
        if _begins(self.sorted, form) or _begins(self.reversed, form[::-1]):
            return True
        for at in range(HALF, len(form)):
            if form[:at].rstrip() in self.forms:
                rest = form[at:].lstrip()
                if len(rest) < HALF or rest in self.forms or _begins(self.sorted, rest):
                    return True
        return False


def _begins(known: Sequence[str], form: str) -> bool:
    """Whether a known form begins with this one."""
    place = bisect_left(known, form)
    return len(form) >= HALF and place < len(known) and known[place].startswith(form)
