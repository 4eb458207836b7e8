r"""A cleaned line and the gates on it -> the matches that its regexes confirm.

"[rank3]: ncclRemoteError: A call failed"  +  gate of nccl-remote-error  ->  Match("nccl-remote-error",
{"rank": "3"})
"""

from __future__ import annotations

from collections.abc import Sequence

import regex

from postmortem.model import Match
from postmortem.scan.cleaning import WINDOW, begins, ends, units
from postmortem.scan.engine import LONG, NUMBER, TIRED, Engine

Found = dict[str, tuple[int, Match | None]]  # id -> offset in the cleaned line, and its match; None for openers


class Confirm:
    """The exact half of the scan. `gave_up` are the patterns whose regex did not end on some line."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.gave_up: set[str] = set()

    def search(self, number: int, text: bytes, start: int = 0) -> regex.Match[bytes] | None:
        """Search one part of a line. A regex that took too long is not tried on long lines of this source again."""
        engine = self.engine
        if (self.gave_up or engine.tired) and self._left_out(number, text):
            return None
        try:
            found: regex.Match[bytes] | None = engine.search(number, text, start)  # or one of re, which is used alike
            return found
        except TimeoutError:
            name = engine.signatures[number].id
            self.gave_up.add(name)
            engine.tired[name] += 1
            return None

    def _left_out(self, number: int, text: bytes) -> bool:
        """Return whether a regex is not tried any more: one of ours on long lines, a user's on all."""
        name, foreign = self.engine.signatures[number].id, self.engine.foreign[number]
        if foreign and self.engine.tired[name] >= TIRED:
            self.gave_up.add(name)
        return name in self.gave_up and (foreign or len(text) >= LONG)

    def on_line(self, number: int, line: bytes) -> regex.Match[bytes] | None:
        r"""Search each part of a line that tqdm has overwritten with `\r`."""
        if b"\r" not in line:
            return self.search(number, line)
        return next((m for part in line.split(b"\r") if part and (m := self.search(number, part))), None)

    def agrees(self, number: int, line: bytes) -> bool:
        """Return whether a line that passed a gate is a hit; with an exact gate it is."""
        return (self.engine.exact[number] and b"\r" not in line) or self.on_line(number, line) is not None

    def short(self, numbers: Sequence[int], line: bytes) -> Found:
        """Return one match for each id on a line, by the first of its variants that agrees."""
        found: Found = {}
        for number in numbers:
            name = self.engine.signatures[number].id
            if name not in found:
                match = self.on_line(number, line)
                if match:
                    found[name] = 0, self._match(number, match)
        return found

    def long(self, line: bytes, *, inside: bool = False, stop: int | None = None) -> Found:
        """The same for a line, or a piece of one, that is too long for one search; without units from `stop` on."""
        wanted = {self.engine.signatures[key & NUMBER].id for key in self.engine.find(line)}
        found: Found = {}
        for low, high in units(line, inside=inside):
            if len(found) == len(wanted) or (stop is not None and low >= stop):
                break
            self._unit(line, low, high, found)
        return found

    def _unit(self, line: bytes, low: int, high: int, found: Found) -> None:
        # one byte more, so that neither `^` nor `\b` takes the cut for a start
        lead = 0 if begins(line, low) else 1
        part = line[low - lead : high]
        for number in sorted({key & NUMBER for key in self.engine.find(part)}):
            name = self.engine.signatures[number].id
            match = None if name in found else self.search(number, part, lead)
            # a match that the window's end may have cut is left to the next window
            if match and (match.end() < len(part) or match.start() < WINDOW or ends(line, high)):
                found[name] = low - lead + match.start(), self._match(number, match)

    def _match(self, number: int, match: regex.Match[bytes]) -> Match | None:
        signature = self.engine.signatures[number]
        if signature.regex is None:
            return None
        captures = {k: v.decode("utf-8", "backslashreplace") for k, v in match.groupdict().items() if v is not None}
        return Match(signature.id, captures)
