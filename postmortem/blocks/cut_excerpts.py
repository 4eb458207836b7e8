"""Logs that are only the middle of a traceback or of a C++ backtrace: the exception was cut off."""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats.envelope import Style
from postmortem.formats.excerpt import MAX_BLOCK, Excerpt
from postmortem.model import Around, Event, Hit, Source
from postmortem.system import forms

MOST_BYTES = 65536  # bytes of an excerpt
NEAR = 8  # first lines among which a frame has to be
_REGEXES = forms.regexes("formats/exceptions")


def parse(source: Source, data: bytes, style: Style) -> Iterator[Event]:
    """A `cut` event on the first frame, if all lines belong to frames."""
    lines = data.splitlines(keepends=True)[:MAX_BLOCK]
    texts = [line.decode("utf-8", "backslashreplace").rstrip() for line in lines]
    found = ((i, m) for i, text in enumerate(texts[:NEAR]) if (m := _REGEXES["inner-frame"].match(text)))
    at, m = next(found, (-1, None))
    if m is not None:
        lead = m["lead"]
        if not all(text in ("", lead.rstrip()) or text.startswith(f"{lead}  ") for text in texts):
            return
    else:
        frames = [i for i, text in enumerate(texts) if _REGEXES["native-frame"].search(text)]
        head = any("frame #0" in text for text in texts)
        if head or len(frames) < 3 or frames[0] >= NEAR or frames[-1] < len(texts) - NEAR:
            return
        at = frames[0]
    hit = Hit(at + 1, 0, lines[at].rstrip(), Around.of(b"", b"".join(lines[at + 1 :])), (), ())
    excerpt = Excerpt(source, hit, style)
    yield excerpt.event("cut", excerpt.first, fields={"opened": excerpt.number})
