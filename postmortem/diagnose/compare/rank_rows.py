"""One row per rank of a job that may hang, and how rows are compared.

A row holds the complaint of a rank, its stack, its last step, its last lines and its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.order import gap
from postmortem.diagnose.processes import WRITTEN, Process
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.endings import Ending, of_a_thread
from postmortem.formats.lineform import message, shape
from postmortem.model import Event
from postmortem.model.grouped import grouped
from postmortem.system import forms

MOST_RANKS = 65536  # ranks that are compared
LAST_LINES = 3
DYING_S = 2.0  # a launcher notices the end of a rank up to two seconds late
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
_REGEXES = forms.regexes("diagnose/lines")
Printed = tuple[Event, str]  # a line, and its text without prefixes
Place = tuple[str, str]  # collective (`none` outside of any) and line of the user's code


@dataclass
class Row:
    """What one rank shows of the hang, beside the row of its process."""

    process: Process
    complaint: Event | None = None  # it waited until a timeout
    lost: Event | None = None  # it lost a peer
    fatal: Event | None = None  # it failed in another way
    stack: Event | None = None
    thread: Event | None = None  # the last exception that ended one of its helper threads
    once: list[Printed] = field(default_factory=list)  # ordinary lines with a form that came once

    @property
    def rank(self) -> int:
        return self.process.rank or 0

    @property
    def end(self) -> Ending | None:
        return self.process.end

    @property
    def last(self) -> Event | None:
        return self.process.last_line

    @property
    def silent(self) -> bool:
        return self.proof is None

    @property
    def stopped(self) -> bool:
        """Whether it ran until the launcher ended it: then it may have waited like the others."""
        return self.end is not None and self.end.signal == "SIGTERM"

    @property
    def aborted(self) -> bool:
        return self.end is not None and self.end.signal == "SIGABRT"

    @property
    def left(self) -> bool:
        """Whether it reported its end, and no launcher reports that it failed by itself."""
        return self.process.finished is not None and (
            self.end is None or self.stopped or self.end.kind in ("clean", "kill")
        )

    @cached_property
    def last_lines(self) -> list[Event]:
        """Its last ordinary line in each of its files, latest first."""
        ordinary = [
            e for e in self.process.lines if not e.fields.get("first") and not _REGEXES["trouble"].search(e.text)
        ]
        return sorted(ordinary, key=lambda e: (e.at or 0.0, e.line), reverse=True)[:LAST_LINES]

    @property
    def last_message(self) -> str:
        """The message of the last line that the program wrote, and neither a library nor a traceback."""
        for e in self.last_lines[:1]:
            return message(e.fields.get("final", (0, "" if e.fields.get("last") else e.text))[1])
        return ""

    @property
    def last_error(self) -> Event | None:
        """Its last line where that is an error of its own, and not a supervisor's report of its end."""
        last = max(self.process.lines, key=lambda e: e.line, default=None)
        if last is None or not (last.fields.get("reports_error") and last.fields.get("last")):
            return None
        report = self.end.reported_by if self.end is not None else None
        return None if report is not None and report.where == last.where else last

    @property
    def place(self) -> Place | None:
        """Where it waits."""
        for e in (self.stack, self.complaint, self.lost, self.fatal):
            if e is None or not (code := e.fields.get("code")):
                continue
            collective = e.fields.get("collective") or ("store.get" if "wait timeout after" in e.text else None)
            if collective or e is self.stack:
                return collective or "none", code
        return None

    @property
    def proof(self) -> Event | None:
        return self.complaint or self.lost or self.fatal

    @property
    def waits(self) -> bool:
        """Whether it reports that it waited, or its stack is in a collective."""
        if self.silent:
            return self.stack is not None and bool(self.stack.fields.get("collective"))
        return self.complaint is not None or self.lost is not None


@dataclass(frozen=True)
class Table:
    """The rows of all ranks of a job that may hang."""

    case: Case
    claims: Sequence[Claim]
    rows: dict[int, Row]

    @cached_property
    def waiting(self) -> list[int]:
        """Ranks that waited until a timeout."""
        return [r for r, row in self.rows.items() if row.complaint is not None]

    @cached_property
    def remote(self) -> bool:
        """Whether the ranks that waited did so for answers to calls of torch.distributed.rpc, and in no collective."""
        waits = [c for c in self.claims if c.tells("wait")]
        return bool(waits) and all(c.tells("call") for c in waits)

    @property
    def missed(self) -> str:
        """The pattern of a rank that the others waited for."""
        return "rank-did-not-answer" if self.remote else "rank-never-arrived"

    @property
    def only_lost(self) -> set[int]:
        """Ranks that lost a peer and did not wait until a timeout."""
        return {r for r, row in self.rows.items() if row.lost is not None and row.complaint is None}

    @cached_property
    def complaining(self) -> list[int]:
        return [r for r, row in self.rows.items() if not row.silent]

    @cached_property
    def quiet(self) -> list[int]:
        return [r for r, row in self.rows.items() if row.silent]

    @property
    def aborted(self) -> list[int]:
        """Silent ranks that aborted, where no rank waited until a time-out: the launcher stopped the other silent ones."""
        return [] if self.waiting else [r for r in self.quiet if self.rows[r].aborted]

    @cached_property
    def proofs(self) -> dict[int, Event]:
        """The complaint of each rank that has one."""
        return {r: row.proof for r, row in self.rows.items() if row.proof is not None}

    @property
    def stacked(self) -> bool:
        """Whether there are stacks of two ranks, and some rank has not finished."""
        rows = self.rows.values()
        return sum(row.stack is not None for row in rows) >= 2 and not all(row.process.finished for row in rows)

    @property
    def world(self) -> int | None:
        """The number of ranks, by the logs or by the launcher's list of ranks that failed."""
        return self.case.registry.world or len(self.case.ends) or None

    @property
    def complete(self) -> bool:
        """Whether every rank of the job is in these logs."""
        return self.world is not None and set(self.rows) == set(range(self.world))


def table(case: Case, claims: Sequence[Claim]) -> Table:
    """The row of every rank of the job, from its events and from the claims about it."""
    rows = _rows(case, claims)
    for c in claims:
        rank = _writer(case, c)
        if rank in rows and c.accuses and c.speaker != "kernel":
            _add_claim(rows[rank], c)
    if not any(c.tells("wait") for c in claims):
        _drop_counts(rows.values())
    _add_nameless(case, rows)
    return Table(case, claims, rows)


def _rows(case: Case, claims: Sequence[Claim]) -> dict[int, Row]:
    ends = (case.ends[r].reported_by for r in case.ended("kill", "crash", "own"))
    death = min(filter(None, ends), key=lambda e: (e.at is None, e.at or 0.0), default=None)
    gave_up = case.ranks_of(c.event for c in claims if c.tells("wait"))
    rows, processes = {}, {p.rank: p for p in case.processes if p.role == "rank"}
    for r in dict.fromkeys((*case.registry.ranks[:MOST_RANKS], *case.by_rank)):
        own = [e for e in case.by_rank.get(r, ()) if e.kind != "stack" or not _while_dying(e, death, gave_up)]
        rows[r] = _row(processes.get(r) or Process("rank", r, end=case.end_of(r)), own)
    return rows


def _writer(case: Case, c: Claim) -> int | None:
    """The rank that a claim is of: where lines of two ranks are mixed, the one that waits is not the line's."""
    return c.ranks[0] if c.tells("wait") and len(c.ranks) == 1 else case.rank_of(c.event)


def _row(process: Process, own: Sequence[Event]) -> Row:
    """What the events of a rank show."""
    written = [e for e in own if e.kind in WRITTEN]
    return Row(
        process,
        next((e for e in written if _REGEXES["cut-complaint"].match(e.text)), None),
        stack=next((e for e in reversed(own) if e.kind == "stack" and not e.fields.get("child")), None),
        thread=next(filter(of_a_thread, reversed(own)), None),
        once=_undumped(own, written),
    )


def _undumped(own: Sequence[Event], written: Sequence[Event]) -> list[Printed]:
    """The lines with a form that came once, without those that a dump of stacks prints."""
    dumped = {e.place for e in own if e.kind == "stack"}
    return [one for e in written for one in once(e) if one[0].place not in dumped]


def last_seen(rows: Sequence[Row]) -> str:
    """Where the first of these ranks was by its stack; of a single one, what ended its thread, or its last message."""
    if (stack := rows[0].stack) is not None:
        return f" (it was at {stack.fields.get('code') or '?'})"
    if (raised := rows[0].thread) is not None and len(rows) == 1:
        where = f" in {raised.fields['code']}" if raised.fields.get("code") else ""
        return f" (its helper thread had ended with {message(raised.fields['line'])}{where})"
    last = rows[0].last_message
    return f" (its last line: `{last}`)" if last and len(rows) == 1 else ""


def once(e: Event) -> Iterator[Printed]:
    """The lines of a writer with a form that came once."""
    for number, text, body in e.fields.get("once", ()):
        where = e.where._replace(line=number, end_line=None)
        yield e._replace(where=where, text=text, at=None, raw_time="", fields={}, context=(), before=0), body


def _add_nameless(case: Case, rows: Mapping[int, Row]) -> None:
    """Of stacks that all ranks print on one console, the one outside of a collective is that of the only rank that
    does not complain, or else of the only one with a last line of its own."""
    silent = [row for row in rows.values() if row.silent]
    nameless = [e for e in case.of_kind("stack") if case.rank_of(e) is None and not e.fields.get("child")]
    outside = [e for e in nameless if not e.fields.get("collective")]
    everyone = len(silent) == len(rows) == len(nameless)
    silent = _with_own_last_line(silent) if everyone else silent
    if len(silent) == len(outside) == 1 < len(nameless):
        silent[0].stack = silent[0].stack or outside[0]
        if everyone:
            _share(rows, [e for e in nameless if e is not outside[0]])


def _with_own_last_line(rows: Sequence[Row]) -> list[Row]:
    """The one row whose last line has another form than that of all others."""
    forms = grouped((shape(row.last.text), row) for row in rows if row.last is not None)
    return next((own for own in forms.values() if len(own) == 1), []) if len(forms) == 2 else []


def _share(rows: Mapping[int, Row], stacks: Sequence[Event]) -> None:
    """Give the rows without a stack one each, if all are alike: which is whose does not matter."""
    if len({(e.fields.get("collective"), e.fields.get("code")) for e in stacks}) == 1:
        for row, e in zip((row for row in rows.values() if row.stack is None), stacks, strict=False):
            row.stack = e


def _while_dying(e: Event, death: Event | None, gave_up: Collection[int]) -> bool:
    """Whether a rank printed its stack when it was asked to stop after another rank's end
    (`faulthandler.register(SIGTERM)`): such a stack shows a victim, unless the other had waited until a timeout."""
    if e.fields.get("state") == "T":  # a stopped process does not continue by waiting
        return not gave_up
    if "asked" in e.fields:
        return "still" not in e.fields and e.fields.get("after") not in gave_up
    if death is None or e.speaker == "tool":
        return False
    apart = gap(e, death)
    if apart is not None:
        return apart <= DYING_S
    return any("SIGTERM" in line or "Signal 15" in line for line in e.context)


def _add_claim(row: Row, c: Claim) -> None:
    e = c.event
    if e.fields.get("interrupted"):  # an error in a signal handler shows where the signal met the rank, as a stack does
        row.stack = row.stack or e
    elif c.tells("wait"):
        row.complaint = _better(row.complaint, e)
    elif c.pattern.category == "peer-lost" or (c.role == "symptom" and c.kind == "network"):
        row.lost = _better(row.lost, e)
    elif c.tells("count"):
        row.complaint = row.complaint or e  # the watchdog's report on its own rank
    elif c.pattern.family != "launcher" and not c.tells("end"):
        row.fatal = row.fatal or e


def _drop_counts(rows: Iterable[Row]) -> None:
    """A watchdog prints its counts also when a peer is lost: no wait, but how far its rank had come until then."""
    for row in rows:
        if row.lost is not None and row.complaint is not None and row.complaint.kind == "pattern":
            row.complaint = None


def _better(old: Event | None, new: Event) -> Event:
    """Of two complaints the first, or the one with the user's line of code."""
    return new if old is None or (not old.fields.get("code") and new.fields.get("code")) else old


# ── comparisons ─────────────────────────────────────────────────────────────────────────────────────────────


def odd_one_out(groups: Mapping[Any, list[int]]) -> tuple[list[int], bool]:
    """The ranks outside the largest group, and whether that group is a true majority. Without one all ranks
    are returned."""
    ordered = sorted(groups.values(), key=lambda ranks: (-len(ranks), sorted(ranks)))
    if len(ordered) < 2:
        return [], False
    majority = len(ordered[0]) * 2 > sum(map(len, ordered))
    accused = ordered[1:] if majority else ordered
    return [r for ranks in accused for r in ranks], majority


def at_odds(odd: list[int], majority: bool, places: str) -> str:
    """The reason for a claim about ranks in different collectives; without a majority it names them all."""
    return places if majority or len(odd) > 6 else f"{ranks_text(odd)} were in different collectives: {places}"


def undecided(table: Table, calls: set[str]) -> bool:
    """Whether ranks are inside and outside of the start, so that the group itself is at odds about its size or its
    members; or wait for a neighbor, which may be a silent rank."""
    return "init" in calls or (bool(table.quiet) and calls <= set(POINT_TO_POINT))
