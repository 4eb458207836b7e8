"""A hit and its surroundings as numbered, decoded lines; and the lines of one writer among several.

Two ranks that share a console interleave their tracebacks line by line,
so a block is what follows with the same prefixes, and other writers' lines are stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from postmortem.formats.envelope import Envelope, Style, clean, peel
from postmortem.formats.marks import bare
from postmortem.model import Event, Hit, Severity, Source, Where, speaker_in
from postmortem.privacy import cut

CONTEXT = 5
FRAMES = 60  # lines behind the head of a stack: the user's own frame stands below those of the libraries
MAX_FOREIGN = 400  # lines of other writers inside a block before it is given up
MAX_BLOCK = 2000
_IGNORED = re.compile(r"\W*(?:Exception ignored (?:in|while)|Error in atexit\._run|Logging error ---)")
_LOGGED = re.compile(
    r"\d\d:\d\d.{0,80}\b(?:ERROR|CRITICAL|EXCEPTION|WARNING|WARN|error|critical|exception|warning)\b|^(?:ERROR|WARNING):"
)

_GOES_ON = re.compile(  # and no number: of another rank's step nobody knows whose it is
    r"(?!\s)\D{0,120}\b"
    r"(?:(?:goes|going|go|carry(?:ing)?|carries|moving) on|continu(?:es|ing)|ignor(?:ed|ing)|skipp(?:ed|ing))\b\D{0,80}",
    re.IGNORECASE,
)
QUOTED = 12  # characters of a message that nobody says by chance
_DUMPS = re.compile(r"stack|dump|traceback|watchdog|progress|stall|stuck|hang|hung|time(?:d )?.?out", re.IGNORECASE)


class Line(NamedTuple):
    number: int
    text: str
    envelope: Envelope


def decode(data: bytes) -> str:
    """Bytes of a log as text. Invalid UTF-8 becomes \\xNN and stays visible."""
    return clean(data.decode("utf-8", "backslashreplace"))


def split(data: bytes) -> list[str]:
    """Whole lines, ended by `\\n` only; of a progress bar the last state that shows something."""
    if not data:
        return []
    return _texts(data[:-1] if data.endswith(b"\n") else data)


def starts_of_lines(data: bytes, first: int, last: int, all_of: int = 0) -> set[int]:
    """Where the first and the last lines begin;
    all lines, if they are no more than `first + last` or `all_of`."""
    found: list[int] = []
    at = 0
    while at < len(data) and len(found) <= max(first + last, all_of):
        found.append(at)
        at = data.find(b"\n", at) + 1 or len(data)
    if len(found) <= max(first + last, all_of):
        return set(found)
    out, end = set(found[:first]), len(data) - data.endswith(b"\n")
    for _ in range(last):
        out.add(start := data.rfind(b"\n", 0, end) + 1)
        end = start - 1
    return out


def first_lines(data: bytes, most: int) -> list[str]:
    """The first lines, without a look at the others."""
    return _texts(b"\n".join(data.split(b"\n", most)[:most]))


def _texts(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    if b"\x1b" in data or b"\0" in data or b"\r" in data:
        return [visible(clean(line)) for line in lines]
    return lines


def visible(line: str) -> str:
    """What a terminal would show in the end of a line that a progress bar rewrote with `\\r`; but of one that
    a bar was drawn over, what tells of an exception."""
    if "\r" not in line:
        return line
    parts = [part for part in line.split("\r") if part.strip()]
    told = [part for part in parts if _RAISED.match(part)]
    return (told or parts or [""])[-1]


_RAISED = re.compile(
    r"(?:\[[^\]]{1,40}\]:? ?)*(?:Traceback \(most recent|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b)"
)
_HEAD = re.compile(r"\[[A-Za-z_]{2,20}\d{1,6}\]: ?(?:[╭+┌][─-]{1,200} )?Traceback \(most recent")


_BAR = re.compile(r"%\||[━█▏▎▍▌▋▊▉]|s/it|it/s")  # tqdm, rich


def _told(line: str) -> str:
    """Of a line that a progress bar has begun, and on which a traceback begins, the part with its head."""
    if "Traceback (most recent" not in line:
        return line
    line = next((part for part in line.split("\r") if "Traceback (most recent" in part), line)
    head = _HEAD.search(line)
    if head is not None and _BAR.search(line, 0, head.start()):
        return line[head.start() :]
    return line


class Excerpt:
    """One hit of one source: its line, what stands around it, and how to make events from it."""

    def __init__(self, source: Source, hit: Hit, style: Style) -> None:
        self.source = source
        self.style = style
        self.number = hit.line
        self.raw = hit.text.decode("utf-8", "backslashreplace")
        marked = _told(decode(hit.text))
        self.text = bare(marked)
        self.before = split(hit.before)
        self.after = split(hit.after)
        self.envelope = peel(marked, style)
        self._room = len(hit.after)

    def to_the_end(self, most: int) -> bool:
        """Whether the lines after the hit are all that the source still holds,
        where `most` bytes of them were asked for."""
        return self._room < most - 4096  # whole lines only, so the last may be lacking

    def following(self) -> Iterator[Line]:
        """The hit's line, then all lines after it."""
        yield Line(self.number, self.text, self.envelope)
        for i, text in enumerate(self.after[:MAX_BLOCK], start=1):
            yield Line(self.number + i, bare(text), peel(text, self.style))

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

    def announced(self) -> str:
        """`ignored` where Python says above a traceback that it goes on, `logged` where a logger wrote it:
        then somebody caught it."""
        for above in islice(self.preceding(), 2):
            if _IGNORED.match(above.envelope.body):
                return "ignored"
            if _LOGGED.search(above.text) and not above.text.startswith((" ", "\t")):
                return "logged"
        return ""

    def told_again(self, message: str, last: int) -> str:
        """`logged` where the line right below an exception says that work goes on, or is a logger's that tells
        it again: a sweep that goes on with its next trial caught it (optuna, study/_optimize.py)."""
        below = next((line for line in self.following() if line.number > last and line.text.strip()), None)
        if below is None:
            return ""
        if _GOES_ON.fullmatch(below.envelope.body[:200]):
            return "logged"
        quoted = below.envelope.stamp is not None and len(message) >= QUOTED
        return "logged" if quoted and message[:80] in below.envelope.body else ""

    def logged_by(self) -> Envelope | None:
        """Whose logger wrote the error right above a block that has no prefix of its own: `logging` and
        structlog put the traceback below their line, bare."""
        if self.envelope.key or self.envelope.rank is not None:
            return None
        above = next((line for line in islice(self.preceding(), 2) if line.text.strip()), None)
        if above is None or not _LOGGED.search(above.text) or above.text[:1].isspace():
            return None
        return above.envelope

    def asked_by(self) -> Envelope | None:
        """Who says, right above a dump of stacks without a prefix, that it dumps them."""
        above = next((line for line in self.preceding() if line.text.strip()), None)
        named = above is not None and (above.envelope.rank is not None or above.envelope.writer)
        if above is None or not named or self.envelope.rank is not None or self.envelope.key:
            return None
        return above.envelope if _DUMPS.search(above.envelope.body) else None

    def preceding(self) -> Iterator[Line]:
        """The lines before the hit, nearest first."""
        for i, text in enumerate(reversed(self.before), start=1):
            yield Line(self.number - i, bare(text), peel(text, self.style))

    def context(self, number: int, behind: int = CONTEXT) -> tuple[tuple[str, ...], int]:
        """Up to five lines before line `number`, `behind` lines after it, and how many of them stand before it."""
        lines = [*self.before, self.text, *self.after]
        at = len(self.before) + number - self.number
        lo = max(0, at - CONTEXT)
        return tuple(cut(bare(text), 2000) for text in lines[lo : at + behind + 1]), at - lo

    def event(
        self,
        kind: str,
        line: Line,
        *,
        pattern: str | None = None,
        severity: Severity = "error",
        fields: dict[str, object] | None = None,
        end: int | None = None,
        rank: int | None = None,
        pid: int | None = None,
        text: str | None = None,
    ) -> Event:
        """An event whose decisive line is `line`, attributed by the line's prefixes, then by its file."""
        env = line.envelope
        stamp = env.stamp
        context, before = self.context(line.number, _behind(kind, fields))
        details = dict(fields or {})
        local = env.local_rank if env.local_rank is not None else self.source.local_rank
        if local is not None:
            details.setdefault("local_rank", local)
        if env.writer:
            details.setdefault("writer", env.writer)
        if env.quoted:
            details["quoted"] = True
        spoken_by = rank if rank is not None else env.rank if env.rank is not None else self.source.rank
        return Event(
            kind=kind,
            where=Where(self.source.path, line.number, end if end != line.number else None, env.line),
            text=cut(line.text if text is None else text, 4000),
            time=stamp.time if stamp else None,
            clock=stamp.clock if stamp else "none",
            sigma=stamp.sigma if stamp else 0.0,
            raw_time=stamp.raw if stamp else "",
            rank=spoken_by,
            host=env.host or self.source.host,
            pid=pid if pid is not None else env.pid,
            attempt=self.source.attempt,
            run=self.source.run,
            pattern=pattern,
            severity=severity,
            fields=details,
            context=context,
            before=before,
            source_kind=self.source.kind,
            speaker=speaker_in(self.source.kind, env.kernel, spoken_by, env.program),
        )


def _behind(kind: str, fields: dict[str, object] | None) -> int:
    """How many lines behind the decisive one are kept: of a stack its frames too."""
    frames = (fields or {}).get("frames") if kind == "stack" else None
    return CONTEXT + min(len(frames), FRAMES) if isinstance(frames, tuple) else CONTEXT


SEVERITIES: dict[str, Severity] = {"crash": "fatal", "stack": "warning"}


def document_event(
    source: Source, kind: str, lines: list[str], at: int, fields: dict[str, object], pid: int | None
) -> Event:
    """An event of a document that is read whole: line `at` (from 0) of `lines` is the decisive one."""
    lo = max(0, at - CONTEXT)
    return Event(
        kind=kind,
        where=Where(source.path, at + 1),
        text=cut(lines[at], 4000),
        rank=source.rank,
        host=source.host,
        pid=pid,
        attempt=source.attempt,
        run=source.run,
        severity=SEVERITIES.get(kind, "info"),
        fields=fields,
        context=tuple(cut(line, 2000) for line in lines[lo : at + _behind(kind, fields) + 1]),
        before=at - lo,
        source_kind=source.kind,
        speaker=speaker_in(source.kind),
    )
