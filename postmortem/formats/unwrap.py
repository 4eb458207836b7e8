r"""A log that a collector wrapped: its lines as they were printed, each with the number of the file's line.

    {"ts": ..., "rank": 2, "exc_info": "Traceback ...\n  File ..."}      one line, and a traceback of many
    [ {                                                                  a pretty-printed export, newest first
        "textPayload": "[rank1]: ValueError: ..."
    level=info msg="[rank2]: step 20"                                  logfmt
    time,host,message                                                  a table with fields of several lines
    2026-11-22T07:07:03Z stderr P begin of a line                      containerd and Docker cut lines at 16 KiB
    [36m(Worker pid=7)[0m ready                                         a browser drops the ESC byte of a color
    #033[33m(raylet)#033[0m 2 Workers killed                           rsyslog writes it in octal, less as ^[

The first 64 KiB decide. The stages behind read plain lines; `marks` has the fields of the record in front of
each. Bytes that cannot be unwrapped pass unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from postmortem.formats import framing, records, times
from postmortem.formats.excerpt import decode, visible
from postmortem.formats.framing import LINE, Framer, Numbered
from postmortem.formats.marks import head, marked
from postmortem.input.streams import Readable
from postmortem.model import Source
from postmortem.system import lazy

HEAD = 1 << 16
CHUNK = 1 << 20
SOME = 200  # first lines of which the order is examined
FIRST = 40  # lines that decide whether records are written
SEVERAL = 3  # consecutive records among the lines of a launcher
PRINTED = frozenset({"kernel", "scheduler"})  # kinds of which only journals are wrapped
WRAPPED = frozenset({"console", "agent", "json-lines", "ray", "run"})  # kinds that a collector wraps


def of(source: Source, stream: Readable) -> Readable:
    """The stream of a source, `Unwrapped` if its first bytes show that it is wrapped."""
    if source.kind not in WRAPPED | PRINTED:
        return stream
    again = Again(stream)
    framer = learn(again.first) if source.kind in WRAPPED else _journal(again.first)
    bare = again.first.rstrip(b"\r\n")
    if bare.count(b"\r") >= 3 and b"\n" not in bare:
        framer = framing.returned
    return Unwrapped(again, framer) if framer is not None else again


class Again:
    """A stream whose `first` bytes were read already."""

    def __init__(self, stream: Readable) -> None:
        self.first, self._stream = b"", stream
        with suppress(Exception):  # the next read raises it again
            while len(self.first) < HEAD and (piece := stream.read(HEAD - len(self.first))):
                self.first += piece

    def read(self, n: int, /) -> bytes:
        if self.first:
            piece, self.first = self.first[:n], self.first[n:]
            return piece
        return self._stream.read(n)


class Unwrapped:
    """The stream of a wrapped log: its lines as they were printed. `bytes` and `lines` are those of the file."""

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
                out, known, shared = [], None, ""
                for line in group:
                    if line.facts is not known:
                        known, shared = line.facts, head(line.facts)
                    out.append(marked(line.number, shared, line.text, line.prefix))
                pieces.append(("\n".join(out) + "\n").encode("utf-8", "backslashreplace") if out else b"")
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
        except Exception as failure:  # of a codec, or the ledger's row: raised again behind the lines read so far
            self._failure, piece = failure, b""
        self.bytes += len(piece)
        return piece


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").removesuffix("\r")


# ── which format ────────────────────────────────────────────────────────────────────────────────────────────


def learn(first: bytes) -> Framer | None:
    """The reader for a source that begins with these bytes; None for a plain one."""
    whole = first if len(first) < HEAD else first[: first.rfind(b"\n") + 1]
    text = decode(whole.removeprefix(b"\xef\xbb\xbf"))
    undo = restoring(text)
    if undo is None:
        return _framer(text)
    framer = _framer("\n".join(map(undo, text.split("\n")))) or framing.plain
    return lambda numbered: framer((number, undo(line)) for number, line in numbered)


def _lines(text: str, most: int = -1) -> list[str]:
    """The lines that are not blank, of at most `most` lines where these are enough."""
    *some, rest = text.split("\n", most)
    lines = [line for line in some if line.strip()]
    lines += [line for line in rest.split("\n") if line.strip()] if len(lines) < SOME or most < 0 else []
    return list(map(visible, lines)) if "\r" in text else lines


def _framer(text: str) -> Framer | None:
    start = text.lstrip()[:1]
    lines = _lines(text, SOME + FIRST)[:SOME]
    if len(lines) < 2 and start not in ("{", "["):
        return None
    framer: Framer | None = None
    if start in ("{", "[") or [line for line in lines[:FIRST] if line[:2] == '{"']:
        framer = _json(text, lines)
    framer = framer or (framing.logfmt if framing.is_logfmt(lines) else None)
    if framer is None and [line for line in lines[:FIRST] if " std" in line] and framing.is_cut_by_cri(_lines(text)):
        framer = framing.cri
    framer = framer or framing.table(lines)
    if framer is None:
        backwards = framing.is_descending((times.find(line[:48]) for line in lines), len(lines))
        return framing.newest_first(framing.singles) if backwards else None
    numbered = enumerate(text.split("\n"), 1)
    stamps = [group[0].facts.stamp for group in islice(framer(iter(list(numbered))), 400) if group]
    return framing.newest_first(framer) if framing.is_descending(stamps, len(stamps)) else framer


def _journal(first: bytes) -> Framer | None:
    """A machine's journal as JSON over several lines; its other forms are plain lines."""
    text = decode(first)
    lines = text[: 1 << 13].split("\n")[:-1]
    pretty = text[:1] in ("{", "[") and lines and records.load(lines[0]) is None
    return framing.export if pretty and framing.is_export(text) else None


def _json(text: str, lines: list[str]) -> Framer | None:
    found = [records.load(line) for line in lines[:FIRST]]
    known = [n for n, it in enumerate(found, 1) if it is not None and records.body_of(it) is not None]
    several = len(known) >= SEVERAL and len(known) * 2 > known[-1] - known[0] + 1  # among lines of a launcher
    if several or len(known) * 2 > len(found):
        return framing.json_lines
    return framing.export if text.lstrip()[:1] in ("{", "[") and framing.is_export(text) else None


# ── colors without their escape byte, and a margin of the whole log ─────────────────────────────────────────

Undo = Callable[[str], str]
FEW = 3  # lines that show a margin
_COLOR = lazy.regex(r"(?:#033|\^\[|\\(?:x1[bB]|033|u001[bB])|\u241b|\ufffd)?\[(?:\d{1,3}(?:;\d{1,3}){0,5})?m")
_RESET = lazy.regex(r"\[(?:00?|39)?m")


def restoring(text: str) -> Undo | None:
    """The function that restores each line of a log that begins with `text`; None where nothing was changed."""
    indented, colored = text.lstrip("\n")[:1] in (" ", "\t"), _RESET.search(text) is not None
    if not indented and not colored:
        return None
    lines = [line for line in text.split("\n") if line.strip()]
    margin = _margin(lines) if indented else ""
    if colored and sum(map(_is_colored, lines)) > 1:
        return lambda line: _COLOR.sub("", line.removeprefix(margin))
    return (lambda line: line.removeprefix(margin)) if margin else None


def _is_colored(line: str) -> bool:
    """Whether a line sets and resets a color without escape bytes."""
    if "\x1b" in line or not _RESET.search(line):
        return False
    codes = [m[0] for m in _COLOR.finditer(line)]
    return len(codes) > 1 and any(_RESET.search(code) for code in codes[1:])


def _margin(lines: Sequence[str]) -> str:
    """The blanks in front of every line. A frame of a traceback is indented by two within its block."""
    if len(lines) < FEW:
        return ""
    shared = os.path.commonprefix([line[:200] for line in lines])
    margin = shared[: len(shared) - len(shared.lstrip())]
    framed = any(line.startswith('File "', len(margin)) for line in lines)
    return margin.removesuffix("  ") if framed else margin
