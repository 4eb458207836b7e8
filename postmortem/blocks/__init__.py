"""Hits in their context -> Events. One file per log family; each knows formats and no verdicts.

A parser never raises on content: what it cannot read yields nothing,
and the line stays in its file for a human.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import regex

from postmortem import scan
from postmortem.blocks import (
    faulthandler,
    faults,
    flight_recorder,
    kernel_waits,
    own_words,
    progress,
    sieve,
    stacks,
    torchrun,
    traceback,
    utterances,
)
from postmortem.blocks.guard import Guard
from postmortem.formats import carried, envelope, tables, torn, unwrap
from postmortem.formats.envelope import Style
from postmortem.formats.excerpt import Excerpt, first_lines
from postmortem.formats.marks import bare
from postmortem.library import Library, Signature, load, regexes, shipped
from postmortem.library.regexes import PATIENCE
from postmortem.model import Event, Hit, Match, Pattern, Scanned, Skip, Source
from postmortem.model.digits import whole
from postmortem.privacy import may_hold, window
from postmortem.scan.engine import NUMBER, TIRED

OPENERS: tuple[Signature, ...] = (
    traceback.OPENER,
    carried.COMPUTED,
    traceback.HEADLESS,
    utterances.OPENER,
    faulthandler.OPENER,
    faulthandler.DUMP,
    torchrun.OPENER,
    tables.OOM,
    faults.OPENER,
    faults.LIBRARY,
    kernel_waits.OPENER,
    own_words.OPENER,
)
_BLOCKS: dict[str, Callable[[Excerpt], Iterator[Event]]] = {
    traceback.OPENER.id: traceback.parse,
    traceback.HEADLESS.id: traceback.parse_headless,
    utterances.OPENER.id: traceback.parse_uttered,
    carried.COMPUTED.id: traceback.parse_computed,
    faulthandler.OPENER.id: faulthandler.parse,
    faulthandler.DUMP.id: faulthandler.parse_dump,
    torchrun.OPENER.id: torchrun.parse,
    tables.OOM.id: tables.oom_tasks,
    faults.OPENER.id: faults.parse,
    faults.LIBRARY.id: faults.parse_library,
    kernel_waits.OPENER.id: kernel_waits.parse,
    own_words.OPENER.id: own_words.parse,
}
_DOCUMENTS: dict[str, Callable[[Source, bytes], Iterator[Event]]] = {
    "error-file": torchrun.error_file,
    "flight-recorder": flight_recorder.parse,
    "stack": stacks.parse,
    "process-table": tables.processes,
    "cgroup": tables.counters,
}
DOCUMENT_KINDS = frozenset(_DOCUMENTS)  # sources whose whole content a parser wants
TORN = 65536  # bytes: a paste
_SPOKEN = frozenset({"console", "agent", "json-lines", "ray", "scheduler"})


def parse(
    scanned: Scanned, library: Library, lines: int = progress.LINES, lost: list[Skip] | None = None
) -> list[Event]:
    """All events of one source, in the order of its lines.
    `lines` is how many ordinary ones are read, beside those with hits; `lost` takes what could not be read."""
    source = scanned.source
    if source.kind == "binary":
        return []
    guard = Guard(source.path, lost)
    style = guard.call(Style(), lambda: _style(scanned, lines))
    events: list[Event] = []
    document = _DOCUMENTS.get(source.kind)
    if document is not None and scanned.content is not None:
        events += guard.events(None, document, source, scanned.content)
    for e in events:
        if e.kind == "unreadable":
            guard.lose(e.text)
    if source.kind == "error-file" and any(e.kind == "exception" for e in events):
        events += guard.events(None, _patterns_of_document, scanned, library, events)
    elif source.kind != "flight-recorder":
        for hit in scanned.hits:
            events += guard.events(hit.line, _hit, source, hit, style, library)
    if source.kind in _SPOKEN:
        events += guard.events(None, progress.parse, source, scanned.samples, style, lines)
    elif source.kind == "kernel":  # a journal: of its programs only what shows one at work, and who is who
        told = guard.events(None, progress.parse, source, scanned.samples, style, lines)
        events.extend(e for e in told if e.kind in ("worked", "finished", "pid", "exit"))
    elif source.kind == "run":  # our own journal: which process was which rank, and how each ended
        told = guard.events(None, progress.parse, source, scanned.samples, style, lines)
        events.extend(e for e in told if e.kind in ("pid", "exit"))
    if source.kind in _SPOKEN and len(scanned.samples) == 1 and scanned.bytes <= TORN:
        events += guard.events(None, torn.parse_torn, source, scanned.samples[0].text, style)
    events = own_words.left_out(events)
    events = guard.call(events, lambda: _together(events, library, guard))
    return sorted(events, key=lambda e: (e.where.line or 0, e.kind, e.pattern or ""))


def _style(scanned: Scanned, lines: int) -> Style:
    if not scanned.samples or scanned.source.kind == "run":  # its sentences begin with a rank, not with a label
        return Style()
    return envelope.learn(map(bare, first_lines(scanned.samples[0].text, min(200, max(lines, 40)))))


def _together(events: list[Event], library: Library, guard: Guard) -> list[Event]:
    """What the events of one source say of each other."""
    found = _with_last_words(_with_frames(_one_exception_per_line(events)))
    return [*found, *_on_events(found, library, guard)]


def _one_exception_per_line(events: list[Event]) -> list[Event]:
    """An exception line may be found twice:
    by its traceback's head and, where the head is cut off, by itself."""
    whole = {e.where.line for e in events if e.kind == "exception" and not e.fields.get("headless")}
    seen: set[int | None] = set()
    out = []
    for e in sorted(events, key=lambda e: e.kind == "uttered"):
        if e.fields.get("headless"):
            if e.where.line in whole or e.where.line in seen:
                continue
            seen.add(e.where.line)
        out.append(e)
    return out


def _with_frames(events: list[Event]) -> list[Event]:
    """A pattern on an exception's line knows the exception's frames."""
    exceptions = {e.where.line: e for e in events if e.kind in ("exception", "crash") and e.where.line is not None}
    out = []
    for e in events:
        found = exceptions.get(e.where.line) if e.kind == "pattern" and e.where.line is not None else None
        if found is not None:
            carried = e.rank is None or found.fields.get("reported_by") == "parent"
            e = e._replace(fields={**found.fields, **e.fields}, rank=found.rank if carried else e.rank)
            if e.time is None and found.time is not None:
                e = e._replace(time=found.time, clock=found.clock, sigma=found.sigma, raw_time=found.raw_time)
        out.append(e)
    return out


def _with_last_words(events: list[Event]) -> list[Event]:
    """Patterns on the line that torch quotes as NCCL's last error know that. What an exception says of
    the system is read with its frames, so not once more without them."""
    last = {e.where.line for e in events if e.kind == "fault" and e.fields.get("warned")}
    raised = {e.where.line for e in events if e.kind == "exception"} - last
    out = []
    for e in events:
        if e.kind in ("pattern", "fault") and e.where.line in last:
            e = e._replace(fields={**e.fields, "last_error": True})
        if e.kind != "fault" or e.where.line not in raised:
            out.append(e)
    return out


def _hit(source: Source, hit: Hit, style: Style, library: Library) -> Iterator[Event]:
    excerpt = Excerpt(source, hit, style)
    for match in hit.matches:
        pattern = library.get(match.pattern)
        if pattern is not None and _may_stand(pattern, source, excerpt):
            yield _pattern_event(excerpt, pattern, match)
    for opener in hit.openers:
        if opener in _BLOCKS:
            yield from _BLOCKS[opener](excerpt)


def _may_stand(pattern: Pattern, source: Source, excerpt: Excerpt) -> bool:
    """Whether this family of lines may stand in this source:
    a kernel line in a console must look like one."""
    if not pattern.sources or source.kind in pattern.sources:
        return True
    return "kernel" in pattern.sources and excerpt.envelope.kernel


def _pattern_event(excerpt: Excerpt, pattern: Pattern, match: Match) -> Event:
    line = next(excerpt.following())
    fields: dict[str, object] = {**_whole(match.captures, excerpt.text)}
    if m := _LOCAL.search(excerpt.text) if "local_rank" not in fields else None:
        fields["local_rank"] = whole(m[1])
    return excerpt.event("pattern", line, pattern=pattern.id, severity=pattern.severity, fields=fields)


def _whole(captures: Mapping[str, str], text: str) -> dict[str, str]:
    """What a pattern captured, without parts of secrets: with a part goes what would show that it is one."""
    if not may_hold(text):
        return dict(captures)
    kept = {}
    for name, said in captures.items():
        at = max(0, text.find(said))
        start, end = window(text, at, at + len(said))
        kept[name] = text[start:end] if text.startswith(said, at) else said
    return kept


_LOCAL = regex.compile(r"\blocal_rank: ?(\d{1,4})\b")


def _patterns_of_document(scanned: Scanned, library: Library, events: list[Event]) -> Iterator[Event]:
    """Patterns that matched in a document are facts about its one exception;
    a line number in it means nothing."""
    base = next(e for e in events if e.kind == "exception")
    seen: set[str] = set()
    for hit in scanned.hits:
        for match in hit.matches:
            pattern = library.get(match.pattern)
            if (
                pattern is None
                or match.pattern in seen
                or (pattern.sources and scanned.source.kind not in pattern.sources)
            ):
                continue
            seen.add(match.pattern)
            fields = dict(base.fields) | dict(match.captures)
            yield base._replace(kind="pattern", pattern=pattern.id, severity=pattern.severity, fields=fields)


class _Decisive:
    """The patterns of a library that read a block's decisive line. `warned` are those of NCCL's warnings, for
    the one that torch repeats below `Last error:`. Their gates say which regexes are worth compiling."""

    def __init__(self, library: Library) -> None:
        self.tired: Counter[str] = Counter()
        self.variants: dict[str, list[tuple[Pattern, str]]] = {}
        for p in library.patterns.values():
            for v in p.variants:
                if kind := v.on or ("warned" if "NCCL WARN" in v.regex else ""):
                    self.variants.setdefault(kind, []).append((p, v.regex))
        self.gated = lru_cache(maxsize=None)(self._gated)
        self.compiled = lru_cache(maxsize=None)(regex.compile)
        self.read = lru_cache(maxsize=4096)(self._read)  # a thousand ranks raise the same exception

    def _read(self, kind: str, text: str) -> tuple[tuple[Pattern, dict[str, str] | None], ...]:
        """The patterns that match an event's line, and what they capture; None: it took too long."""
        found: dict[str, tuple[Pattern, dict[str, str] | None]] = {}
        for pattern, expression in self._worth_asking(kind, text):
            if pattern.id in found:
                continue
            try:
                m = self._search(pattern, expression, text)
            except TimeoutError:
                self.tired[pattern.id] += 1
                found[pattern.id] = (pattern, None)
                continue
            if m is not None:
                told = {k: v for k, v in m.groupdict().items() if v is not None}
                found[pattern.id] = (pattern, _whole(told, text))
        return tuple(found.values())

    def _worth_asking(self, kind: str, text: str) -> list[tuple[Pattern, str]]:
        """The variants whose gate passes, and those that have none. A gate looks at single lines."""
        variants = self.variants.get(kind, [])
        if not variants or "\n" in text:
            return variants
        signatures, gated = self.gated(kind)
        engine = scan.own_engine((self, kind), lambda: signatures, prefer="re2")
        passed = {gated[hit & NUMBER] for hit in engine.find(text.encode("utf-8", "replace"))}
        ungated = set(range(len(variants))).difference(gated)
        return [variants[n] for n in sorted(passed | ungated)]

    def _gated(self, kind: str) -> tuple[list[Signature], list[int]]:
        """The gates of a kind's variants, and the number of the variant that each stands for. What a user
        wrote may be anything, and is always asked."""
        gates = {n: sieve.gate_of(r) for n, (p, r) in enumerate(self.variants[kind]) if shipped(p)}
        found = {n: gate for n, gate in gates.items() if gate}
        return [Signature(str(n), gate, gate) for n, gate in found.items()], list(found)

    def _search(self, pattern: Pattern, expression: str, text: str) -> regex.Match[str] | None:
        """One search. Nobody knows how long the expressions of a user's own take."""
        if shipped(pattern):
            return self.compiled(expression).search(text)
        if self.tired[pattern.id] >= TIRED:
            raise TimeoutError
        return self.compiled(expression).search(text, timeout=PATIENCE)


_decisive = lru_cache(maxsize=8)(_Decisive)


def _on_events(events: list[Event], library: Library, guard: Guard) -> Iterator[Event]:
    """Patterns that read a block's decisive line (`on: exception`), each once."""
    read = _decisive(library).read
    named: set[tuple[int | None, str | None]] = {
        (e.where.line, e.pattern) for e in events if e.kind == "pattern" and e.where.line is not None
    }
    for event in list(events):
        for kind, text, told in _readings(event):
            for pattern, captures in read(kind, text):
                if captures is None:
                    guard.note(f"the regex of pattern {pattern.id} took too long", event.where.line)
                    continue
                if not _fits(pattern.frame, event):
                    continue
                if kind in ("fault", "warned") and (event.where.line, pattern.id) in named:
                    continue
                named.add((event.where.line, pattern.id))
                fields = {k: v for k, v in event.fields.items() if k not in ("says", "warned")} | told | captures
                yield event._replace(kind="pattern", pattern=pattern.id, severity=pattern.severity, fields=fields)


def _fits(frame: str, event: Event) -> bool:
    """Whether the innermost frame is one that a pattern asks for."""
    return not frame or regexes.search(frame, _innermost(event)) is not None


def _readings(event: Event) -> Iterator[tuple[str, str, dict[str, object]]]:
    """What patterns may read of an event: its decisive line, and what that line says of the system."""
    if event.kind == "fault":
        if event.fields.get("warned"):
            yield "warned", str(event.fields["warned"]), {}
        if event.fields.get("says"):
            yield "fault", str(event.fields["says"]), {}
        return
    line = str(event.fields.get("line", event.text))
    if event.kind == "uttered":
        yield "exception", line, {"uttered": True}
        return
    yield event.kind, line, {}
    if event.kind == "exception":
        library, said = faults.speaker_of(line)
        told = faults.fields_of(faults.read(said, library, _innermost(event)))
        if told:
            yield "fault", str(told.pop("says")), told


def _innermost(event: Event) -> str:
    """Where an exception was raised, as `file function: code`; empty if that was not read."""
    frames = event.fields.get("frames")
    if not isinstance(frames, tuple) or not frames:
        return ""
    return f"{frames[-1][0]} {frames[-1][2]}: {event.fields.get('source') or ''}"


def read_text(text: str, kind: str = "", library: Library | None = None) -> list[Event]:
    """Read a piece of log as if it stood in a file of its own, through the real scanner:
    what the examples of patterns run through."""
    library = library or load()
    source = Source(path="example", kind=kind or "console", size=len(text))
    stream = unwrap.of(source, io.BytesIO(text.encode()))
    scanned = scan.scan(source, stream, engine(library), want_content=kind in DOCUMENT_KINDS)
    return parse(scanned, library)


def engine(library: Library) -> scan.Engine:
    """This thread's engine for the patterns of a library and the heads of the
    blocks that the parsers read."""
    return scan.own_engine(library, lambda: [*library.signatures(), *OPENERS])


__all__ = ["DOCUMENT_KINDS", "OPENERS", "engine", "parse", "read_text"]
