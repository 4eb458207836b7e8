"""How long a run may be silent, by its own earlier quiet; and when it stands still.

    Rhythm: steps every 2 s, once 40 s of evaluation   ->   60 s between steps, 300 s in an evaluation
    Judge:  quiet for longer, and two looks without a sign of life   ->   still

Pure: it is told the time, whether anything moved, and what a look at the processes sees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from postmortem.live.watch import phases

S = TypeVar("S")
GAPS = 256  # of the latest, by which the usual one is known
NAMED = 5.0  # a phase that may be silent, and the time before the first step, have so many times the patience
LONGER = 1.5  # than the longest earlier quiet of the kind
STRONG, WEAK = 10.0, 5.0  # for so many times the patience signs of life are believed
ABSENT = 10.0  # seconds from one round to the next
BACK_OFF = 30.0  # seconds between two looks, at most


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user may choose."""

    patience: float = 60.0  # seconds of quiet that never count
    factor: float = 4.0  # times the usual time from one sign of progress to the next
    again: float = 5.0  # seconds from the first look to the second


class Rhythm:
    """The times between signs of progress, and the longest of each phase."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.begun = False  # a step was seen
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self.usual = 0.0  # nine of ten gaps are shorter
        self.longest: dict[str, float] = {}

    def learn(self, gap: float, phase: str) -> None:
        if gap < 0:
            return
        self._gaps.append(gap)
        self.usual = sorted(self._gaps)[int(0.9 * (len(self._gaps) - 1))]
        self.longest[phase] = max(gap, self.longest.get(phase, 0.0))

    def patience(self, phase: str) -> float:
        """How long the run may be silent in this phase."""
        least = self.settings.patience
        ordinary = max(least, self.settings.factor * self.usual, LONGER * self.longest.get("", 0.0))
        if not phase and self.begun:
            return ordinary
        known = max(self.longest.values(), default=0.0)
        return max(ordinary, NAMED * least, LONGER * known)


@dataclass(frozen=True, slots=True)
class Sign:
    """Why a run that prints nothing is not taken to stand still."""

    why: str
    strong: bool = True


@dataclass
class Judge(Generic[S]):
    """Moving, quiet, alive or still. `look` sees the processes, `compare` two looks."""

    rhythm: Rhythm
    look: Callable[[], S]
    compare: Callable[[S, S, float], Sign | None]
    phase_of: Callable[[S], str] = lambda _: ""
    last: float = 0.0  # when anything moved
    state: str = "moving"
    sign: Sign | None = None
    phase: str = phases.START
    _before: str = phases.START  # the phase in which it was quiet
    _seen: tuple[float, S] | None = None
    _alive: float = float("-inf")
    _pause: float = 0.0
    _ticked: float = 0.0

    def begin(self, last: float, phase: str) -> None:
        """Say when anything moved before the first round."""
        self.last, self.phase, self._before = last, phase, phase

    def patience(self) -> float:
        return self.rhythm.patience(self.phase)

    def tick(self, now: float, moved: bool, phase: str) -> str:
        """The state after this round. `phase` is what the last lines name. Time in which nobody looked (this
        process was stopped, or had much to read) counts for nothing."""
        absent = now - self._ticked
        if self._ticked and absent > ABSENT:
            self.last = min(now, self.last + absent)
        self._ticked = now
        if moved:
            self.rhythm.learn(now - self.last, self._before)
            self.last, self._seen, self._alive, self._pause = now, None, float("-inf"), 0.0
            self.state, self.phase, self._before, self.sign = "moving", phase, phase, None
            return self.state
        quiet = now - self.last
        if self.state != "still":
            self.state = "quiet" if quiet >= self.patience() else "moving"
            if self.state == "quiet":
                self._suspect(now, quiet)
        return self.state

    def _suspect(self, now: float, quiet: float) -> None:
        """It has been silent for longer than it may: look, and look again."""
        if self._seen is None:
            self._take(now, self.look())
            return
        at, before = self._seen
        if now - at < self.rhythm.settings.again + self._pause:
            return
        seen = self.look()
        self.sign = self.compare(before, seen, now - at)
        self._take(now, seen)
        limit = self.patience() * (STRONG if self.sign and self.sign.strong else WEAK)
        if self.sign and quiet < limit:
            self._alive = now
            self._pause = min(BACK_OFF, 2 * self._pause + 1)
            self.state = "alive"
        elif quiet < self.patience():  # the code tells of a phase that may be silent
            self.state = "quiet"
        elif not self.sign and now - self._alive < self.patience() / 2:
            self._pause = 0.0  # it worked a moment ago, and has the same right to be silent for a while
            self.state = "quiet"
        else:
            self.state = "still"

    def _take(self, now: float, seen: S) -> None:
        self._seen = (now, seen)
        if not self.phase and (named := self.phase_of(seen)):
            self.phase = self._before = named
