"""Events of one source, from its hits and their context. One module per family of lines; none knows verdicts.

A parser never raises on content: an unreadable line yields nothing. `Event.fields` are `model.details`.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import regex

from postmortem import documents, scan
from postmortem.blocks import (
    cut_excerpts,
    faults,
    oom_tasks,
    own_verdict,
    progress,
    sanitizers,
    stacks,
    torchrun,
    traceback,
)
from postmortem.blocks.guard import Guard
from postmortem.formats import envelope, unwrap
from postmortem.formats.envelope import Style
from postmortem.formats.excerpt import Excerpt, first_lines, line_event
from postmortem.formats.marks import MARK, bare
from postmortem.formats.sieve import Sieve
from postmortem.library import Library, Signature, load, regexes, shipped
from postmortem.library.regexes import PATIENCE
from postmortem.model import Event, Hit, Pattern, Scanned, Skip, Source, Where
from postmortem.model.details import Details, captured
from postmortem.model.digits import whole
from postmortem.privacy import may_hold, window
from postmortem.scan.engine import TIRED

_PARSERS: tuple[tuple[Signature, Callable[[Excerpt], Iterator[Event]]], ...] = (
    (traceback.OPENER, traceback.parse),
    (traceback.HEADLESS, traceback.parse_headless),
    (stacks.OPENER, stacks.parse_crash),
    (stacks.DUMP, stacks.parse_dump),
    (torchrun.OPENER, torchrun.parse),
    (oom_tasks.OPENER, oom_tasks.parse),
    (faults.OPENER, faults.parse),
    (faults.LIBRARY, faults.parse_library),
    (faults.WAITING, faults.parse_waiting),
    (own_verdict.OPENER, own_verdict.parse),
    (sanitizers.OPENER, sanitizers.parse),
)
OPENERS = tuple(opener for opener, _ in _PARSERS)
_BY_OPENER = {opener.id: parser for opener, parser in _PARSERS}
# the kinds of events that ordinary lines of a source yield; None is all
_ORDINARY: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(("console", "agent", "json-lines", "ray", "scheduler")),
    "kernel": frozenset({"worked", "finished", "pid", "exit"}),  # of the programs in a journal
    "run": frozenset({"pid", "exit"}),  # the journal of `postmortem run`
}
_LOST_BLOCK = bytes(512)  # a file system that lost power has the size of a file, and not its last block
_LOCAL_RANK = regex.compile(r"\blocal_rank: ?(\d{1,4})\b")


def parse(
    scanned: Scanned, library: Library, lines: int = progress.LINES, lost: list[Skip] | None = None
) -> list[Event]:
    """All events of one source, in the order of its lines. `lines` is the number of ordinary lines to read
    beside those with hits; errors are added to `lost`."""
    source = scanned.source
    if source.kind == "binary":
        return []
    guard = Guard(source.path, lost)
    style = guard.call(Style(), lambda: _style(scanned, lines))
    events: list[Event] = []
    document = documents.READERS.get(source.kind)
    if document is not None and scanned.content is not None:
        events += guard.events(None, document, source, scanned.content)
    if source.kind == "error-file" and any(e.kind == "exception" for e in events):
        events += guard.events(None, _patterns_of_document, scanned, library, events)
    elif source.kind not in documents.UNSEARCHED and not (events and source.kind in documents.STATED):
        stamped: set[int] = set()
        for hit in scanned.hits:
            events += guard.events(hit.line, _hit, source, hit, style, library, stamped)
    if (placed := documents.PLACED.get(source.kind)) is not None and (content := scanned.content) is not None:
        events = guard.call(events, lambda: placed(source, content, events))
    for e in events:
        if e.kind == "unreadable":
            guard.note(e.text)
    if source.kind in _ORDINARY:
        kinds = _ORDINARY[source.kind]
        found = guard.events(None, progress.parse, source, scanned.samples, style, lines)
        events += found if kinds is None else [e for e in found if e.kind in kinds]
        if kinds is None and len(scanned.samples) == 1 and scanned.bytes <= cut_excerpts.MOST_BYTES:
            events += guard.events(None, cut_excerpts.parse, source, scanned.samples[0].text, style)
    if scanned.samples and scanned.samples[-1].text.rstrip().endswith(_LOST_BLOCK):
        guard.note("the log ends in a block of NUL bytes, as after a host that lost power")
    events = own_verdict.without(events)
    events = guard.call(events, lambda: _together(events, library, guard))
    return sorted(events, key=lambda e: (e.where.line or 0, e.kind, e.pattern or ""))


def parse_parts(
    source: Source, parts: documents.Parts, library: Library, lost: list[Skip] | None = None, stacks: str = ""
) -> list[Event]:
    """All events of a binary document; errors are added to `lost`. `stacks`: what pystack printed of a core."""
    guard = Guard(source.path, lost)
    events = guard.events(None, documents.IN_PARTS[source.kind], source, parts, stacks)
    for e in events:
        if e.kind == "unreadable":
            guard.note(e.text)
    return guard.call(events, lambda: _together(events, library, guard))


def _style(scanned: Scanned, lines: int) -> Style:
    if not scanned.samples or scanned.source.kind == "run":  # its sentences begin with a rank
        return Style()
    first = first_lines(scanned.samples[0].text, min(200, max(lines, 40)))
    return envelope.learn(map(bare, first) if first and first[0].startswith(MARK) else first)


def _hit(source: Source, hit: Hit, style: Style, library: Library, stamped: set[int]) -> Iterator[Event]:
    """The events of a hit, and the timestamp above it, if they have none, once: `stamped` are lines of such."""
    excerpt = Excerpt(source, hit, style)
    timeless = False
    for event in _events_of(excerpt, hit, library):
        timeless = timeless or event.time is None
        yield event
    if timeless and (line := excerpt.stamped_above()) is not None and line.number not in stamped:
        stamped.add(line.number)
        yield line_event(source, "stamp", line._replace(text=""), None, {})


def _events_of(excerpt: Excerpt, hit: Hit, library: Library) -> Iterator[Event]:
    for match in hit.matches:
        pattern = library.get(match.pattern)
        if pattern is not None and _applies(pattern, excerpt.source, excerpt):
            fields = _captured(match.captures, excerpt.text)
            if m := _LOCAL_RANK.search(excerpt.text) if "local_rank:" in excerpt.text else None:
                fields.setdefault("local_rank", whole(m[1]))
            yield excerpt.event("pattern", excerpt.first, pattern=pattern.id, severity=pattern.severity, fields=fields)
    for opener in hit.openers:
        if opener in _BY_OPENER:
            yield from _BY_OPENER[opener](excerpt)


def _applies(pattern: Pattern, source: Source, excerpt: Excerpt) -> bool:
    """Whether a pattern is one for this source: a kernel line in a console must look like one, and a command line in a
    process table (`python -c "raise …"`) reports no error."""
    if source.kind in pattern.sources or (not pattern.sources and source.kind != "process-table"):
        return True
    return "kernel" in pattern.sources and excerpt.envelope.kernel


def _captured(captures: Mapping[str, str], text: str) -> Details:
    """The captures of a pattern. One that contains a part of a secret is extended, so that it can be recognized
    and masked."""
    if not captures or not may_hold(text):
        return captured(captures)
    found = {}
    for name, value in captures.items():
        at = max(0, text.find(value))
        start, end = window(text, at, at + len(value))
        found[name] = text[start:end] if text.startswith(value, at) else value
    return captured(found)


def _patterns_of_document(scanned: Scanned, library: Library, events: list[Event]) -> Iterator[Event]:
    """Patterns that matched in a document belong to its one exception."""
    base = next(e for e in events if e.kind == "exception")
    matches = {match.pattern: match for hit in reversed(scanned.hits) for match in reversed(hit.matches)}
    for name, match in sorted(matches.items()):
        pattern = library.get(name)
        if pattern is not None and (not pattern.sources or scanned.source.kind in pattern.sources):
            fields = base.fields | captured(match.captures)
            yield base._replace(kind="pattern", pattern=pattern.id, severity=pattern.severity, fields=fields)


# ── events of one source, combined ──────────────────────────────────────────────────────────────────────────


def _together(events: list[Event], library: Library, guard: Guard) -> list[Event]:
    found = _with_last_errors(_with_frames(_one_exception_per_line(events)))
    return [*found, *_on_events(found, library, guard)]


def _one_exception_per_line(events: list[Event]) -> list[Event]:
    """The events without exceptions that the block of a traceback found too, or that an entry of torchrun's failure
    block quotes, with the rank."""
    quoted = {e.where.line for e in events if e.fields.get("reported_by") == "launcher"}
    if quoted:
        theirs = (e.where.line not in quoted or e.fields.get("reported_by") == "launcher" for e in events)
        events = [e for e, own in zip(events, theirs, strict=True) if e.kind != "exception" or own]
    if not [e for e in events if e.fields.get("headless")]:
        return events
    seen = {e.where.line for e in events if e.kind == "exception" and not e.fields.get("headless")}
    out = []
    for e in sorted(events, key=lambda e: e.kind == "mentioned"):
        if not e.fields.get("headless") or e.where.line not in seen:
            out.append(e)
        if e.fields.get("headless"):
            seen.add(e.where.line)
    return out


def _with_frames(events: list[Event]) -> list[Event]:
    """A pattern on an exception's line gets the exception's frames."""
    exceptions = {e.line: e for e in events if e.kind in ("exception", "crash")}
    out = []
    for e in events:
        if e.kind == "pattern" and e.where.line and (found := exceptions.get(e.where.line)) is not None:
            adopts = e.rank is None or found.fields.get("reported_by") == "parent"
            e = e._replace(fields=found.fields | e.fields, rank=found.rank if adopts else e.rank)
            if e.time is None:
                e = e._replace(time=found.time, clock=found.clock, sigma=found.sigma, raw_time=found.raw_time)
        out.append(e)
    return out


def _with_last_errors(events: list[Event]) -> list[Event]:
    """Patterns on the line that torch quotes as NCCL's last error are marked; a fault on the line of an exception
    is dropped: the exception is read with its frames."""
    last = {e.where.line for e in events if e.kind == "fault" and e.fields.get("warned")}
    raised = {e.where.line for e in events if e.kind == "exception"} - last
    return [
        e._replace(fields={**e.fields, "last_error": True})
        if e.kind in ("pattern", "fault") and e.where.line in last
        else e
        for e in events
        if e.kind != "fault" or e.where.line not in raised
    ]


# ── patterns that read a decisive line (`on: exception`) ────────────────────────────────────────────────────


class _Decisive:
    """The patterns of a library for the decisive lines of events. The kind `warned` is that of NCCL's warnings,
    for the one that torch repeats below `Last error:`."""

    def __init__(self, library: Library) -> None:
        self.tired: Counter[str] = Counter()
        self.variants: dict[str, list[tuple[Pattern, str]]] = {}
        for p in library.patterns.values():
            for v in p.variants:
                if kind := v.on or ("warned" if "NCCL WARN" in v.regex else ""):
                    self.variants.setdefault(kind, []).append((p, v.regex))
        self.kinds = {"fault", "mentioned", "crash", "memory", *self.variants}  # of events with a decisive line
        # a user's own regex has no gate, and a time limit
        self.sieves = {
            kind: Sieve({str(n): regex if shipped(p) else "" for n, (p, regex) in enumerate(variants)})
            for kind, variants in self.variants.items()
        }
        self.compiled = lru_cache(maxsize=None)(_compiled)
        self.read = lru_cache(maxsize=4096)(self._read)  # a thousand ranks raise the same exception

    def _read(self, kind: str, text: str) -> tuple[tuple[Pattern, Details | None], ...]:
        """The patterns that match a line, and their captures; None if the match took too long."""
        found: dict[str, tuple[Pattern, Details | None]] = {}
        may = self.sieves[kind].may(text) if kind in self.sieves else 0
        for n, (pattern, expression) in enumerate(self.variants.get(kind, ())):
            if pattern.id in found or not may >> n & 1:
                continue
            try:
                m = self._search(pattern, expression, text)
            except TimeoutError:
                self.tired[pattern.id] += 1
                found[pattern.id] = (pattern, None)
                continue
            if m is not None:
                captures = {k: v for k, v in m.groupdict().items() if v is not None}
                found[pattern.id] = (pattern, _captured(captures, text))
        return tuple(found.values())

    def _search(self, pattern: Pattern, expression: str, text: str) -> Any:
        if shipped(pattern):
            return self.compiled(expression).search(text)
        if self.tired[pattern.id] >= TIRED:
            raise TimeoutError
        return regex.search(expression, text, timeout=PATIENCE)


def _compiled(expression: str) -> Any:
    """The regex as a pattern of `re`, which compiles it in a third of the time; a few it does not know."""
    try:
        return re.compile(expression)
    except re.error:
        return regex.compile(expression)


_decisive = lru_cache(maxsize=8)(_Decisive)


def _on_events(events: list[Event], library: Library, guard: Guard) -> Iterator[Event]:
    """An event for each pattern that matches the decisive line of an event."""
    decisive = _decisive(library)
    read = decisive.read
    named = {(e.line, e.pattern) for e in events if e.kind == "pattern"}
    kinds = decisive.kinds
    for event in [e for e in events if e.kind in kinds]:
        for kind, text, extra in _readings(event):
            for pattern, captures in read(kind, text):
                if captures is None:
                    guard.note(f"the regex of pattern {pattern.id} took too long", event.where.line)
                    continue
                if pattern.frame and regexes.search(pattern.frame, _innermost(event)) is None:
                    continue
                at = event.line
                if kind in ("fault", "warned") and at and (at, pattern.id) in named:
                    continue
                named.add((at, pattern.id))
                fields = event.fields | extra | captures
                fields.pop("signature", None)
                fields.pop("warned", None)
                yield event._replace(kind="pattern", pattern=pattern.id, severity=pattern.severity, fields=fields)


def _readings(event: Event) -> Iterator[tuple[str, str, Details]]:
    """The texts of an event that patterns read: its decisive line, and the fault in it."""
    if event.kind == "fault":
        for kind, text in (("warned", event.fields.get("warned")), ("fault", event.fields.get("signature"))):
            if text:
                yield kind, text, {}
        return
    line = event.fields.get("line", event.text)
    if event.kind == "mentioned":
        yield "exception", line, {"mentioned": True}
        return
    if event.kind in ("fact", "crash", "memory") and (signature := event.fields.get("signature")):
        yield "fact", signature, {}
        return
    yield event.kind, line, {}
    if event.kind == "exception":
        library, text = faults.library_of(line)
        fields = faults.fields_of(faults.read(text, library, _innermost(event)))
        if fields:
            yield "fault", fields.pop("signature"), fields


def _innermost(event: Event) -> str:
    """The innermost frame of an exception as `file function: code`; empty without frames."""
    frames = event.fields.get("frames")
    return f"{frames[-1][0]} {frames[-1][2]}: {event.fields.get('source', '')}" if frames else ""


def read_text(text: str, kind: str = "", library: Library | None = None) -> list[Event]:
    """The events of a piece of log, read by the real scanner as a file of its own: for examples of patterns."""
    library = library or load()
    if kind == "fact":  # what a document states, in the words of its reader
        stated = Event("fact", Where("example", 1), text, fields={"signature": text.rstrip("\n")})
        return list(_on_events([stated], library, Guard("example", None)))
    source = Source(path="example", kind=kind or "console", size=len(text))
    stream = unwrap.of(source, io.BytesIO(text.encode()))
    scanned = scan.scan(source, stream, engine(library), want_content=kind in documents.KINDS)
    return parse(scanned, library)


def engine(library: Library) -> scan.Engine:
    """This thread's engine for the patterns of a library and the first lines of blocks."""
    return scan.own_engine(library, lambda: [*library.signatures(), *OPENERS])


__all__ = ["OPENERS", "engine", "parse", "parse_parts", "read_text"]
