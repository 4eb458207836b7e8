r"""A log that a collector has wrapped -> its lines as a plain file would have them, each with the number of
the file's line.

    {"ts": ..., "rank": 2, "exc_info": "Traceback ...\n  File ..."}      one line, and a traceback of many
    __REALTIME_TIMESTAMP=... \n MESSAGE=[rank2]: step 20                journalctl -o export, -o verbose
    [ {                                                                  a pretty-printed export, newest first
        "textPayload": "[rank1]: ValueError: ..."
    time,host,message                                                  a table with fields of several lines
    2026-11-22T07:07:03Z stderr P begin of a line                        containerd cuts lines at 16 KiB
    [36m(Worker pid=7)[0m ready                                         a paste that lost its escape bytes

Which it is, is learnt from the head, and a plain file costs no more than that. What reads behind it (scan,
parsers, rules) sees plain lines; `marks` carries the record's rank, host, pid and time in front of each.
Bytes that cannot be unwrapped pass as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from postmortem.formats import exports, framing, journal_export, pasted, records, times
from postmortem.formats.excerpt import decode, visible
from postmortem.formats.framing import CHUNK, LINE, SOME, Framer, Group, Numbered
from postmortem.formats.marks import head, marked
from postmortem.model import Source, Stamp
from postmortem.scan.reader import Readable

HEAD = 1 << 16
BEGIN = 40  # lines that tell whether records are written
SEVERAL = 3  # records one after the other, among what torchrun prints
PRINTED = frozenset({"kernel", "scheduler", "kubernetes"})  # of a serial console, say
WRAPPED = frozenset({"console", "agent", "json-lines", "ray", "run"})  # kinds that a collector wraps


def of(source: Source, stream: Readable) -> Unwrapped | Again:
    """The stream of a source, unwrapped if its head shows that it is wrapped."""
    if source.kind not in WRAPPED | PRINTED:
        return Again(b"", stream)
    first = _peek(stream)
    again = Again(first, stream)
    framer = learn(first) if source.kind in WRAPPED else _journal(first)
    framer = _without_ends(first) or framer
    return Unwrapped(again, framer) if framer is not None else again


def _peek(stream: Readable) -> bytes:
    first = b""
    while len(first) < HEAD:
        try:
            piece = stream.read(HEAD - len(first))
        except Exception:  # the next read tells the reader
            break
        if not piece:
            break
        first += piece
    return first


class Again:
    """A stream of which the head was read already."""

    def __init__(self, first: bytes, stream: Readable) -> None:
        self._first, self._stream = first, stream

    def read(self, n: int, /) -> bytes:
        if self._first:
            piece, self._first = self._first[:n], self._first[n:]
            return piece
        return self._stream.read(n)


class Unwrapped:
    """The stream of a wrapped log: its lines as they were printed. `bytes` and `lines` are those of the
    file."""

    def __init__(self, stream: Again, framer: Framer) -> None:
        self.bytes = self.lines = 0
        self._stream = stream
        self._ready = b""
        self._failure: Exception | None = None
        self._groups = framer(self._numbered())

    def read(self, n: int, /) -> bytes:
        if len(self._ready) < n:
            pieces, size = [self._ready], len(self._ready)
            while size < n and (group := next(self._groups, None)) is not None:
                pieces.append(_written(group))
                size += len(pieces[-1])
            self._ready = b"".join(pieces)
        if not self._ready and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        piece, self._ready = self._ready[:n], self._ready[n:]
        return piece

    def _numbered(self) -> Iterator[Numbered]:
        rest = b""
        while piece := self._piece():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                self.lines += 1
                yield self.lines, _text(line)
            while len(rest) > LINE:
                yield self.lines + 1, _text(rest[:LINE])
                rest = rest[LINE:]
        if rest:
            self.lines += 1
            yield self.lines, _text(rest)

    def _piece(self) -> bytes:
        try:
            piece = self._stream.read(CHUNK)
        except Exception as failure:  # of a codec, or the ledger's row: raised again behind what was read
            self._failure, piece = failure, b""
        self.bytes += len(piece)
        return piece


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").removesuffix("\r")


def _written(group: Group) -> bytes:
    out, known, shared = [], None, ""
    for line in group:
        if line.facts is not known:
            known, shared = line.facts, head(line.facts)
        out.append(marked(line.number, shared, line.text, line.lead))
    return ("\n".join(out) + "\n").encode("utf-8", "backslashreplace") if out else b""


# ── which it is ─────────────────────────────────────────────────────────────────────────────────────────


def _without_ends(first: bytes) -> Framer | None:
    """Of a log whose lines end in `\\r` alone, as serial consoles and progress bars write them."""
    bare = first.rstrip(b"\r\n")
    return framing.returned if bare.count(b"\r") >= 3 and b"\n" not in bare else None


def learn(first: bytes) -> Framer | None:
    """Learn from a source's first bytes how its lines are to be had; None of a plain one."""
    whole = first if len(first) < HEAD else first[: first.rfind(b"\n") + 1]
    text = decode(whole.removeprefix(b"\xef\xbb\xbf"))
    undo = pasted.learn(text)
    if undo is None:
        return _framer(text)
    return pasted.undone(undo, _framer("\n".join(map(undo, text.split("\n")))) or framing.plain)


def _framer(text: str) -> Framer | None:
    """How the lines of a log are to be had that has this at its head."""
    start = text.lstrip()[:1]
    lines = [line for line in text.split("\n") if line.strip()]
    if "\r" in text:
        lines = [visible(line) for line in lines]
    if len(lines) < 2 and start not in ("{", "["):
        return None
    framer: Framer | None = None
    if start in ("{", "[") or any(line.startswith('{"') for line in lines[:BEGIN]):
        framer = _json(text, lines)
    for test, form in _TEXTS if framer is None else ():
        if test(lines):
            framer = form
            break
    framer = framer or framing.table(lines)
    if framer is None:
        some = lines[:SOME]
        backwards = _descending((times.find(line[:48]) for line in some), len(some))
        return framing.newest_first(framing.singles) if backwards else None
    stamps = [
        group[0].facts.stamp for group in islice(framer(iter(list(enumerate(text.split("\n"), 1)))), 400) if group
    ]
    return framing.newest_first(framer) if _descending(stamps, len(stamps)) else framer


def _journal(first: bytes) -> Framer | None:
    """A machine's journal as an export, or as JSON over several lines; its other forms are lines as they
    stand."""
    text = decode(first)
    lines = text[: 1 << 13].split("\n")[:-1]
    if journal_export.looks(lines):
        return journal_export.export
    pretty = text[:1] in ("{", "[") and lines and records.load(lines[0]) is None
    return framing.document if pretty and exports.looks(text) else None


def _json(text: str, lines: list[str]) -> Framer | None:
    found = [records.load(line) for line in lines[:BEGIN]]
    known = [n for n, it in enumerate(found, 1) if it is not None and records.body_of(it) is not None]
    if len(known) * 2 > len(found):
        return framing.json_lines
    if len(known) >= SEVERAL and len(known) * 2 > known[-1] - known[0] + 1:
        return framing.json_lines  # and around them what the launcher prints, which is none
    return framing.document if text.lstrip()[:1] in ("{", "[") and exports.looks(text) else None


def _descending(stamps: Iterable[Stamp | None], lines: int) -> bool:
    """Whether an export of so many lines begins with its end. Most logs go up, and are known by their first
    dozen lines: then too few are left that could go down."""
    known = ups = downs = 0
    before: float | None = None
    for read, stamp in enumerate(stamps, 1):
        if stamp is not None:
            known += 1
            ups += before is not None and stamp.time > before
            downs += before is not None and stamp.time < before
            before = stamp.time
        if lines - 1 - ups < 20 * ups or (read - known) * 2 >= lines:
            return False
    return known * 2 > lines and downs >= 4 and downs >= 20 * ups


_TEXTS: tuple[tuple[Callable[[list[str]], bool], Framer], ...] = (
    (journal_export.looks, journal_export.export),
    (journal_export.looks_verbose, journal_export.verbose),
    (framing.mostly_pairs, framing.logfmt),
    (framing.partial, framing.cri),
    (framing.of_java, framing.java),
    (framing.folded, framing.unfolded),
)
