"""A hit and the lines around it, numbered and decoded; and the lines of one writer among several.

Two ranks that share a console interleave their tracebacks line by line, so a block is the following lines with
the same prefixes; lines of other writers are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from postmortem.formats.envelope import Envelope, Style, clean, peel
from postmortem.formats.marks import bare
from postmortem.model import Event, EventKind, Hit, Severity, Source, Stamp, Where, speaker_in
from postmortem.model.details import Details
from postmortem.privacy import cut
from postmortem.system import forms

CONTEXT = 5
FRAMES = 60  # lines behind the begin of a stack: the user's own frame is below those of libraries
MAX_FOREIGN = 400  # lines of other writers inside a block before it is given up
MAX_BLOCK = 2000
LEAD = 40  # characters before a line's time: prefixes, or `Results reported at`
QUOTED = 12  # characters of a message that are no coincidence
HEAD = "Traceback (most recent"
_SEVERITIES: dict[str, Severity] = {"crash": "fatal", "stack": "warning"}  # of events of whole documents
_REGEXES = forms.regexes("formats/excerpts")
_LOGGED = _REGEXES["logged"]


class Line(NamedTuple):
    number: int
    text: str
    envelope: Envelope

    def with_body(self, body: str) -> Line:
        return self._replace(envelope=self.envelope._replace(body=body))


def decode(data: bytes) -> str:
    """Bytes of a log as text. Invalid UTF-8 becomes \\xNN and stays visible."""
    return clean(data.decode("utf-8", "backslashreplace"))


def split(data: bytes) -> list[str]:
    """Whole lines, ended by `\\n` only; of a progress bar the last visible state."""
    if not data:
        return []
    lines = data.removesuffix(b"\n").decode("utf-8", "backslashreplace").split("\n")
    rewritten = b"\x1b" in data or b"\0" in data or b"\r" in data
    return [visible(clean(line)) for line in lines] if rewritten else lines


def first_lines(data: bytes, most: int) -> list[str]:
    """The first lines; the others are not read."""
    return split(b"\n".join(data.split(b"\n", most)[:most]))


def starts_of_lines(data: bytes, first: int, last: int, all_of: int = 0) -> set[int]:
    """The offsets of the first and the last lines; of all, if there are at most `first + last` or `all_of`."""
    found: list[int] = []
    at = 0
    most = max(first + last, all_of)
    while at < len(data) and len(found) <= most:
        found.append(at)
        at = data.find(b"\n", at) + 1 or len(data)
    if len(found) <= most:
        return set(found)
    out, end = set(found[:first]), len(data) - data.endswith(b"\n")
    for _ in range(last):
        out.add(start := data.rfind(b"\n", 0, end) + 1)
        end = start - 1
    return out


def visible(line: str) -> str:
    """The last state of a line that a progress bar rewrote with `\\r`; if an exception is among the states, that."""
    if "\r" not in line:
        return line
    parts = [part for part in line.split("\r") if part.strip()]
    raised = [part for part in parts if _REGEXES["raised"].match(part)]
    return (raised or parts or [""])[-1]


def _without_bar(line: str) -> str:
    """A line without the states of a progress bar that later ones overwrote; of one with the begin of a traceback,
    without the bar before it."""
    if HEAD not in line:
        *over, last = line.split("\r")
        return "\r".join([*(part for part in over if not _is_bar(part)), last])
    line = next((part for part in line.split("\r") if HEAD in part), line)
    head = _REGEXES["traceback"].search(line)
    return line[head.start() :] if head and _REGEXES["bar"].search(line, 0, head.start()) else line


def _is_bar(part: str) -> bool:
    """Whether a state of a line is a progress bar, and no message follows it."""
    return bool(_REGEXES["bar"].search(part)) and part.rstrip().endswith(("]", "%", "|"))


class Excerpt:
    """One hit of one source with the lines around it; makes events from them."""

    def __init__(self, source: Source, hit: Hit, style: Style) -> None:
        self.source = source
        self.style = style
        self.number = hit.line
        marked = _without_bar(decode(hit.text))
        self.text = bare(marked)
        self.before = split(hit.before)
        self.after = split(hit.after)
        self.envelope = peel(marked, style)
        self.first = Line(self.number, self.text, self.envelope)
        self._room = len(hit.after)

    def to_the_end(self, most: int) -> bool:
        """Whether the source ends with the lines after the hit, of which `most` bytes were requested."""
        return self._room < most - 4096  # whole lines only, so the last may be missing

    def _line(self, number: int, text: str) -> Line:
        return Line(number, bare(text), peel(text, self.style))

    def following(self) -> Iterator[Line]:
        """The hit's line, then all lines after it."""
        yield self.first
        yield from (self._line(self.number + i, text) for i, text in enumerate(self.after[:MAX_BLOCK], start=1))

    def behind(self, number: int) -> Iterator[Line]:
        """All lines after line `number`."""
        return (line for line in self.following() if line.number > number)

    def preceding(self) -> Iterator[Line]:
        """The lines before the hit, nearest first."""
        return (self._line(self.number - i, text) for i, text in enumerate(reversed(self.before), start=1))

    def block(self) -> Iterator[Line]:
        """The hit's line, then the following lines of the same writer."""
        foreign = 0
        for line in self.following():
            if line.envelope.key == self.envelope.key:
                yield line
            elif line.text.strip():
                foreign += 1
                if foreign > MAX_FOREIGN:
                    return

    def above(self, most: int = MAX_BLOCK) -> Line | None:
        """The nearest line before the hit that is not empty, among `most` lines."""
        return next((line for line in islice(self.preceding(), most) if line.text.strip()), None)

    def stamped_above(self) -> Line | None:
        """The nearest line before the hit that begins with a time, among those at hand; code of a frame is none."""
        for line in self.preceding():
            stamp = None if line.text[:1] in (" ", "\t") else line.envelope.stamp
            if stamp is not None and 0 <= line.text.find(stamp.raw) < LEAD:
                return line
        return None

    def handled(self, message: str, last: int) -> str:
        """How an exception was handled: `ignored` where Python prints around the traceback that it continues;
        `logged` where a logger wrote it, or where the line below the last one continues the work or repeats the
        message (optuna, study/_optimize.py); else empty."""
        for above in islice(self.preceding(), 2):
            if _REGEXES["ignored"].search(above.envelope.body):
                return "ignored"
            # where a collector stamps each line, only a logger's own stamp and level count
            text = above.envelope.body if self.envelope.stamp is not None else above.text
            if _LOGGED.search(text) and not above.text.startswith((" ", "\t")):
                return "logged"
        below = next((line for line in self.behind(last) if line.text.strip()), None)
        if below is None:
            return ""
        if _REGEXES["warned"].match(below.text):
            return "ignored"
        quoted = below.envelope.stamp is not None and len(message) >= QUOTED and message[:80] in below.envelope.body
        return "logged" if quoted or _REGEXES["goes-on"].fullmatch(below.envelope.body[:200]) else ""

    def logger(self) -> Envelope | None:
        """The prefixes of the log record right above a block without prefixes: `logging` and structlog write a
        traceback below their line."""
        above = None if self.envelope.key or self.envelope.rank is not None else self.above(2)
        logged = above and _LOGGED.search(above.text) and not above.text[:1].isspace()
        return above.envelope if above and logged else None

    def dumper(self) -> Envelope | None:
        """The prefixes of the line right above a dump of stacks without prefixes, if it announces the dump."""
        above = None if self.envelope.key or self.envelope.rank is not None else self.above()
        named = above and (above.envelope.rank is not None or above.envelope.writer)
        return above.envelope if above and named and _REGEXES["dumps"].search(above.envelope.body) else None

    def context(self, number: int, behind: int = CONTEXT) -> tuple[tuple[str, ...], int]:
        """Up to five lines before line `number`, the line, `behind` lines after it; and the number of lines before."""
        lines = [*self.before, self.text, *self.after]
        at = len(self.before) + number - self.number
        lo = max(0, at - CONTEXT)
        return tuple([cut(bare(text), 2000) for text in lines[lo : at + behind + 1]]), at - lo

    def event(
        self,
        kind: EventKind,
        line: Line,
        *,
        pattern: str | None = None,
        severity: Severity = "error",
        fields: Details | None = None,
        end: int | None = None,
        rank: int | None = None,
        pid: int | None = None,
    ) -> Event:
        """An event with the decisive line `line`, attributed by the line's prefixes, then by its file."""
        env = line.envelope
        fields = fields or {}
        context, before = self.context(line.number, _behind(kind, fields))
        known = (one for one in (rank, env.rank, self.source.rank) if one is not None)
        event = line_event(self.source, kind, line, next(known, None), fields)
        return event._replace(
            where=event.where if end in (None, line.number) else event.where._replace(end_line=end),
            pid=pid if pid is not None else env.pid,
            pattern=pattern,
            severity=severity,
            context=context,
            before=before,
        )


def _behind(kind: EventKind, fields: Details) -> int:
    """The number of context lines behind the decisive one: of a stack the frames too."""
    return CONTEXT + (min(len(fields.get("frames", ())), FRAMES) if kind == "stack" else 0)


def source_event(source: Source, kind: EventKind, text: str, line: int | None = None, **more: Any) -> Event:
    """An event attributed by the name of its file."""
    where = more.pop("where", None) or Where(source.path, line)
    by_name = {"rank": source.rank, "host": source.host, "attempt": source.attempt, "run": source.run}
    return Event(kind, where, text, source_kind=source.kind, **{"speaker": speaker_in(source.kind), **by_name, **more})


def line_event(
    source: Source, kind: EventKind, line: Line, rank: int | None, fields: Details, most: int = 4000
) -> Event:
    """An event on one line, with host, pid and time of the line's prefixes."""
    env, stamp = line.envelope, line.envelope.stamp
    local = env.local_rank if env.local_rank is not None else source.local_rank
    known: Details = {} if local is None else {"local_rank": local}
    known |= {"writer": env.writer} if env.writer else {}
    known |= {"quoted": True} if env.quoted else {}
    return Event(
        kind,
        Where(source.path, line.number, None, env.line),
        cut(line.text, most),
        stamp.time if stamp else None,
        stamp.clock if stamp else "none",
        stamp.sigma if stamp else 0.0,
        rank,
        env.host or source.host,
        env.pid,
        attempt=source.attempt,
        run=source.run,
        fields=known | fields,
        raw_time=stamp.raw if stamp else "",
        source_kind=source.kind,
        speaker=speaker_in(source.kind, env.kernel, env.local_rank if rank is None else rank, env.program),
    )


def document_event(
    source: Source, kind: EventKind, lines: list[str], at: int, fields: Details, pid: int | None
) -> Event:
    """An event of a whole document; line `at` (from 0) of `lines` is the decisive one."""
    lo = max(0, at - CONTEXT)
    context = tuple(cut(line, 2000) for line in lines[lo : at + _behind(kind, fields) + 1])
    severity = _SEVERITIES.get(kind, "info")
    event = source_event(source, kind, cut(lines[at], 4000), at + 1, pid=pid, severity=severity, fields=fields)
    return event._replace(context=context, before=at - lo)


def timed(event: Event, stamp: Stamp | None) -> Event:
    if stamp is None:
        return event
    return event._replace(time=stamp.time, clock=stamp.clock, sigma=stamp.sigma, raw_time=stamp.raw)


def fact(
    source: Source,
    lines: list[str],
    at: int,
    signature: str,
    *,
    pid: int | None = None,
    stamp: Stamp | None = None,
    fields: Details | None = None,
    **who: Any,
) -> Event:
    """A statement of a document, with the evidence on line `at` (from 0). `signature` has the same words for all
    formats of a kind; `who`: rank, host, gpu, run, attempt, as far as the document itself names them."""
    event = document_event(source, "fact", lines, at, {**(fields or {}), "signature": signature}, pid)
    return timed(event._replace(**who), stamp)
