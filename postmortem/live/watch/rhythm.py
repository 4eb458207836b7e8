"""How long a run may make no progress, by its own earlier quiet; and when it hangs.

    Rhythm: steps every 2 s, once 40 s of evaluation   ->   60 s between steps, 300 s in an evaluation
    Judge:  quiet for longer, and two looks without activity   ->   still

Pure: the caller provides the time, whether anything moved, and a look at the processes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from postmortem.system import forms

S = TypeVar("S")
START = "start"  # before the first step
GAPS = 256  # latest ones, which determine the usual one
NAMED = 5.0  # factor of the patience in a phase that may be silent, and before the first step
LONGER = 1.5  # factor of the longest earlier quiet
STRONG, WEAK = 10.0, 5.0  # times the patience for which activity prevents a hang
ABSENT = 10.0  # seconds from one round to the next
BACK_OFF = 30.0  # seconds between two looks, at most


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's choices."""

    patience: float = 60.0  # minimum quiet time before a hang is reported (seconds)
    factor: float = 4.0  # minimum quiet time as a multiple of the usual quiet time
    again: float = 5.0  # seconds from the first look to the second


class Rhythm:
    """The times between signs of progress, and the longest one of each phase."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.begun = False  # a step was seen
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self.usual = 0.0  # nine of ten gaps are shorter
        self.longest: dict[str, float] = {}

    def learn(self, gap: float, phase: str) -> None:
        if gap >= 0:
            self._gaps.append(gap)
            self.usual = sorted(self._gaps)[int(0.9 * (len(self._gaps) - 1))]
            self.longest[phase] = max(gap, self.longest.get(phase, 0.0))

    def patience(self, phase: str) -> float:
        """Return how long the run may be quiet in this phase."""
        least = self.settings.patience
        ordinary = max(least, self.settings.factor * self.usual, LONGER * self.longest.get("", 0.0))
        if not phase and self.begun:
            return ordinary
        return max(ordinary, NAMED * least, LONGER * max(self.longest.values(), default=0.0))


@dataclass(frozen=True, slots=True)
class Activity:
    """Why a run that prints nothing does not hang."""

    why: str
    strong: bool = True


@dataclass
class Judge(Generic[S]):
    """Moving, quiet, alive or still. `look` looks at the processes, `compare` compares two looks."""

    rhythm: Rhythm
    look: Callable[[], S]
    compare: Callable[[S, S, float], Activity | None]
    phase_of: Callable[[S], str] = lambda _: ""
    last: float = 0.0  # time of the last progress
    state: str = "moving"
    activity: Activity | None = None
    phase: str = START
    _phase_before: str = START
    _seen: tuple[float, S] | None = None
    _active_at: float = float("-inf")
    _pause: float = 0.0
    _ticked: float = 0.0

    def begin(self, last: float, phase: str) -> None:
        """Set the time and phase of the last progress before the first round."""
        self.last, self.phase, self._phase_before = last, phase, phase

    def patience(self) -> float:
        return self.rhythm.patience(self.phase)

    def tick(self, now: float, moved: bool, phase: str) -> str:
        """Return the state after this round. `phase` is that of the last lines. Time between two rounds in which
        this process was stopped, or had much to read, is not counted."""
        absent = now - self._ticked
        if self._ticked and absent > ABSENT:
            self.last = min(now, self.last + absent)
        self._ticked = now
        if moved:
            self.rhythm.learn(now - self.last, self._phase_before)
            self.last, self._seen, self._active_at, self._pause = now, None, float("-inf"), 0.0
            self.state, self.phase, self._phase_before, self.activity = "moving", phase, phase, None
        elif self.state != "still":
            quiet = now - self.last
            self.state = "quiet" if quiet >= self.patience() else "moving"
            if self.state == "quiet":
                self._examine(now, quiet)
        return self.state

    def _examine(self, now: float, quiet: float) -> None:
        """Look at a run that has been quiet for longer than it may, and look again later."""
        if self._seen is None:
            self._take(now, self.look())
            return
        at, before = self._seen
        if now - at < self.rhythm.settings.again + self._pause:
            return
        seen = self.look()
        self.activity = self.compare(before, seen, now - at)
        self._take(now, seen)
        limit = self.patience() * (STRONG if self.activity and self.activity.strong else WEAK)
        if self.activity and quiet < limit:
            self._active_at = now
            self._pause = min(BACK_OFF, 2 * self._pause + 1)
            self.state = "alive"
        elif quiet < self.patience():  # the code is in a phase that may be silent
            self.state = "quiet"
        elif not self.activity and now - self._active_at < self.patience() / 2:
            self._pause = 0.0  # it worked a moment ago, and may be idle for a while
            self.state = "quiet"
        else:
            self.state = "still"

    def _take(self, now: float, seen: S) -> None:
        self._seen = (now, seen)
        if not self.phase and (phase := self.phase_of(seen)):
            self.phase = self._phase_before = phase


# ── phases of a job that may print nothing for long (see phases.yaml) ───────────────────────────────────────

PHASE_LIMIT = 300  # characters of a line
_PHASES = forms.regexes("live/watch/phases")


def _of_kind(kind: str) -> dict[str, re.Pattern[str]]:
    return {name.removeprefix(kind): regex for name, regex in _PHASES.items() if name.startswith(kind)}


_LINES, _FILES, _FUNCTIONS = _of_kind("line-"), _of_kind("file-"), _of_kind("function-")


def phase_of_line(line: str) -> str:
    """Return the phase that a line announces; empty if it announces none, or the end of one."""
    text = line[-PHASE_LIMIT:] if "\r" in line else line[:PHASE_LIMIT]
    if _PHASES["over"].search(text):
        return ""
    return next((name for name, regex in _LINES.items() if regex.search(text)), "")


def phase_of_frames(frames: Iterable[tuple[str, int, str]]) -> str:
    """Return the phase of a stack."""
    rows = list(frames)
    for name, regex in _FILES.items():
        if any(regex.search(file.replace("\\", "/")) for file, _, _ in rows):
            return name
    for name, regex in _FUNCTIONS.items():
        if any(regex.match(function.rsplit(".", 1)[-1]) for _, _, function in rows):
            return name
    return ""
