"""Lines that one run has and the other lacks: the first of each rank, trouble first.

Two kinds of lines are left out: the halves of lines on a console that ranks share, and lines that differ in
every run of a job. A run with many lines of its own (it prints the output of a model) has no significant ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal

from postmortem.fleet.diff.run import Run
from postmortem.formats.lineform import alike
from postmortem.model.contract.comparison import OnlyIn
from postmortem.reading.distinct import DistinctLine, RunLines

MOST_LINES = 12
LETTERS = 6  # in a form with a meaning
OWN = 0.15  # share of a run's forms from which on its ordinary lines are not significant
FEW = 5  # or so many
HALF = 8  # characters of half a line

Side = Literal["a", "b"]


def only_in(run: Run, other: Run, side: Side) -> list[OnlyIn]:
    """Return the lines of `run` that `other` lacks; nothing if the other's logs were not read completely."""
    if other.lines is None or not other.lines.whole:
        return []
    if run.lines is None:
        return list(_quoted(run, other, other.lines, side))[:MOST_LINES]
    forms = run.lines.distinct
    whole = _Whole(other.lines.distinct)
    own = [line for form, line in forms.items() if _is_own(form, other.lines)]
    own = [line for line in own if not whole.has_half(alike(line.text, run.names))]
    troubled = [line for line in own if line.troubled and (line.source, line.line) not in run.context]
    quiet = [line for line in own if line.ordinary]
    if len(quiet) > max(FEW, OWN * len(forms)):
        quiet = []
    return [
        _row(run, line, side) for line in [*_first_of_each(run, troubled), *_first_of_each(run, quiet)][:MOST_LINES]
    ]


def _is_own(form: str, other: RunLines) -> bool:
    return form not in other.distinct and sum(map(str.isalpha, form)) >= LETTERS


def _first_of_each(run: Run, own: Iterable[DistinctLine]) -> Iterator[DistinctLine]:
    """Yield by time the first line of each rank, and of each file for lines without a rank."""

    def order(line: DistinctLine) -> tuple[float, str, int]:
        at = run.time(line.source, line.line)
        return float("inf") if at is None else at, line.source, line.line

    seen: set[object] = set()
    for line in sorted(own, key=order):
        writers: set[object] = {*line.ranks} or {line.source}
        if writers - seen:
            seen |= writers
            yield line


def _row(run: Run, line: DistinctLine, side: Side) -> OnlyIn:
    return {
        "only_in": side,
        "text": line.text.strip(),
        "ranks": sorted(line.ranks),
        "source": line.source,
        "line": line.shown,
        "step": line.step,
        "time": run.moment(line.source, line.line),
        "trouble": line.troubled,
    }


def _quoted(run: Run, other: Run, lines: RunLines, side: Side) -> Iterator[OnlyIn]:
    """Yield the lines of evidence in a document."""
    for proof in run.document["verdict"].get("evidence") or ():
        if _is_own(alike(str(proof.get("text") or "").split("\n")[0], other.names), lines):
            yield {
                "only_in": side,
                "text": str(proof["text"]).strip(),
                "ranks": [] if proof.get("rank") is None else [proof["rank"]],
                "source": str(proof.get("source") or ""),
                "line": proof.get("line"),
                "step": None,
                "time": proof.get("time"),
                "trouble": True,
            }


class _Whole:
    """Forms of whole lines."""

    def __init__(self, forms: Iterable[str]) -> None:
        self.forms = set(forms)
        self.sorted = sorted(self.forms)
        self.reversed = sorted(form[::-1] for form in self.forms)

    def has_half(self, form: str) -> bool:
        """Return whether a form is the begin or the end of a whole line, or is made of two of them."""
        if _is_begin(form, self.sorted) or _is_begin(form[::-1], self.reversed):
            return True
        for at in range(HALF, len(form)):
            if form[:at].rstrip() in self.forms:
                rest = form[at:].lstrip()
                if len(rest) < HALF or rest in self.forms or _is_begin(rest, self.sorted):
                    return True
        return False


def _is_begin(form: str, known: list[str]) -> bool:
    place = bisect_left(known, form)
    return len(form) >= HALF and place < len(known) and known[place].startswith(form)
