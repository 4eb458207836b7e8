"""Lines that all ranks print after the same collective: marks by which the clocks of hosts can be compared.

    2026-11-20 21:02:56,633 INFO [rank1] train: epoch 0 step 15 loss 2.2822
    2026/11/20 09:02:56 PM | INFO     | node-b | RANK 2 | epoch 0 step 15 loss 2.3101
    2026-11-20 21:02:50,001 INFO [rank1] train: process group ready: rank 1 of 3, pid 23160

A counter is a word and a whole number behind it, unless it is a rank, pid or port. The text before it (logger,
host, rank) differs between hosts and is ignored. `align` chooses the counters on which the ranks agree.

In: the sampled lines of one source. Out: events of kind `sync`, one for each writer, form and clock, with packed
marks, so that 16,000 ranks with 300 marks each fit into memory: `family` (the form), `columns` (whole numbers per
mark), `values`, `times`, `lines`. The first column counts how often the numbers restarted.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from postmortem.formats.excerpt import Line, line_event
from postmortem.model import Event, Source
from postmortem.model.details import MARKS, Details
from postmortem.model.digits import whole
from postmortem.system import forms

FAMILIES = 16
COLUMNS = 4
TOKENS = 8
HEAD, FORM = 400, 160  # characters of a line that are searched for a counter; those of a form
_REGEXES = forms.regexes("blocks/counters")

Key = tuple[str, str]  # form, clock
Row = tuple[int, ...]
Form = tuple[str, list[slice]]


@dataclass
class _Family:
    """The marks of one form of line by one writer."""

    first: Line
    rank: int | None
    rows: list[Row] = field(default_factory=list)
    times: array[float] = field(default_factory=lambda: array("d"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    sigma: float = 0.0
    tail_from: int | None = None


class Counters:
    """All families of one source, by writer."""

    def __init__(self) -> None:
        self.writers: dict[tuple[int | None, str | None, int | None], dict[Key, _Family]] = {}

    def read(self, line: Line, form: Form | None, rank: int | None, gap: bool) -> None:
        """Add a line of some form. `gap`: lines before it were not read."""
        env = line.envelope
        if form is None or env.stamp is None or env.stamp.clock == "boot":
            return
        families = self.writers.setdefault((rank, env.host, env.local_rank), {})
        key = (form[0], env.stamp.clock)
        family = families.get(key)
        if family is None:
            if len(families) >= 4 * FAMILIES:
                return
            family = families[key] = _Family(line, rank)
        if gap and family.tail_from is None:
            family.tail_from = len(family.rows)
        family.rows.append(tuple([whole(env.body[place]) for place in form[1]]))
        family.times.append(env.stamp.time)
        family.lines.append(line.number)
        family.sigma = max(family.sigma, env.stamp.sigma)

    def events(self, source: Source) -> Iterator[Event]:
        """One packed event for each family, the largest first, at most MARKS marks for each writer."""
        for families in self.writers.values():
            left = MARKS
            ordered = sorted(families.items(), key=lambda item: (-len(item[1].rows), item[0]))
            for (name, _), family in ordered[:FAMILIES]:
                if chosen := _chosen(family, left):
                    left -= len(chosen)
                    fields: Details = {
                        "family": name,
                        "columns": len(chosen[0][1]),
                        "values": array("q", [n for _, row in chosen for n in row]),
                        "times": array("d", [family.times[i] for i, _ in chosen]),
                        "lines": array("q", [family.lines[i] for i, _ in chosen]),
                    }
                    yield line_event(source, "sync", family.first, family.rank, fields)._replace(
                        sigma=family.sigma, text="", raw_time=""
                    )


def form_of(text: str) -> Form | None:
    """The form of a line, and the places of its whole numbers: `epoch # step # loss ~`, and those of 0 and 15.
    None for lines that show no progress."""
    head = text[:HEAD]
    for m in _REGEXES["counter"].finditer(head) if _REGEXES["may-count"].search(head) else ():
        if not _REGEXES["identity"].fullmatch(m["name"] or m["behind"]):
            return _form(text, m.start())
    may_join = _REGEXES["may-join"].search(head) and _REGEXES["together"].search(head)
    if may_join and not _REGEXES["not-yet"].search(head):
        words = [t.lower() for t in _REGEXES["token"].findall(head) if not t[0].isdecimal()]
        return "once " + " ".join(words[-6:]), []
    return None


def _form(text: str, start: int) -> Form:
    shape: list[str] = []
    numbers: list[slice] = []
    for m in islice(_REGEXES["token"].finditer(text, start, start + FORM), TOKENS):
        token = m[0]
        if token.isdecimal() and len(token) <= 15:
            shape.append("#")
            numbers.append(slice(*m.span()))
        else:  # a loss that was a number may become nan
            shape.append("~" if token[0].isdecimal() or token.lower() in ("nan", "inf") else token.lower())
    return " ".join(shape), numbers[:COLUMNS]


def _restarts(family: _Family) -> list[int]:
    """The number of restarts of the counter before each mark; behind a gap the number of those to come, negative."""
    rows = family.rows
    found, count = [], 0
    for i, row in enumerate(rows):
        count += i > 0 and row < rows[i - 1]
        found.append(count)
    if count * 5 > len(rows):
        return [0] * len(rows)  # these numbers do not count
    if family.tail_from is not None:
        found[family.tail_from :] = [n - count - 1 for n in found[family.tail_from :]]
    return found


def _chosen(family: _Family, most: int) -> list[tuple[int, Row]]:
    """The marks to store, as index and row. Of many the same ones on every rank,
    whatever it printed besides; the last ones always."""
    rows = [(restarts, *row) for restarts, row in zip(_restarts(family), family.rows, strict=True)]
    first: dict[Row, int] = {}
    for i, row in enumerate(rows):
        first.setdefault(row, i)
    indices = sorted(first.values()) if family.rows[0] else [0]
    if len(indices) > most:
        recent = indices[-min(10, most) :] if most else []
        others = indices[: len(indices) - len(recent)]
        others.sort(key=lambda i: (zlib.crc32(repr(rows[i][:3]).encode()), i))  # in an order that all ranks share
        indices = sorted([*others[: most - len(recent)], *recent])
    return [(i, rows[i]) for i in indices]
