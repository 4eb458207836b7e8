"""How a process ended: an exit code or a signal's name -> the kind of its end.

-9, 137   kill       sent from outside, cannot be caught            -11, 139  crash   a fault of the program
-15, 143  stop       asked to stop, by the launcher or a person      3         own     left by itself with this code
-24, 152  limit      a limit of CPU time or file size                0         clean
"""

from __future__ import annotations

from dataclasses import dataclass

from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.system import forms

SHELL = 128  # a shell, a container and srun report a signal as 128 + its number
BYTE = 256  # a launcher that exits with the code of its worker, -9, leaves 247
TEXT = "<string>"  # the file of code that was executed from a text
OUTERMOST = ("<module>", "_run_module_as_main", "_bootstrap")  # of a script, of python -m, of multiprocessing's process
THREADS = ("_bootstrap_inner", "_feed")  # an exception from here on ends a helper thread, and no process
_SIGNALS = forms.rows("formats/signals")
_NAMES = {row["number"]: name for name, row in _SIGNALS.items()}
_KINDS = {row["number"]: row["kind"] for row in _SIGNALS.values() if "kind" in row}
_WORDS = {word: row["number"] for row in _SIGNALS.values() for word in row.get("words", ())}
FAULTS = [name for name, row in _SIGNALS.items() if "fault" in row]


@dataclass(frozen=True, slots=True)
class Ending:
    """One process's end: `kind` is clean, own, crash, kill, stop or limit; `reported_by` is the line that reports it."""

    kind: str
    code: int
    reported_by: Event | None = None

    @property
    def signal(self) -> str:
        """`SIGTERM`; empty where it left with a code of its own."""
        return _NAMES.get(_signal(self.code) or 0, "")

    @property
    def short(self) -> str:
        """`SIGKILL`, `3`."""
        return self.signal or str(self.code)

    @property
    def failed(self) -> bool:
        """Whether it left by itself with a bad code, or by a signal that a shell or container reports."""
        return self.kind in ("own", "crash", "kill") and self.code > 0

    def __str__(self) -> str:
        """`SIGSEGV`, `exit code 3`."""
        return self.signal or f"exit code {self.code}"


def of(code: int, reported_by: Event | None = None) -> Ending:
    """The end with an exit code, negative as Python reports signals or above 128 as shells do."""
    signal = _signal(code)
    if signal is not None:
        return Ending(_KINDS.get(signal, "stop"), code, reported_by)
    return Ending("own" if code else "clean", code, reported_by)


def _signal(code: int) -> int | None:
    """The signal behind a code; 128 + 3 and the like are codes that programs choose themselves."""
    if code < 0:
        return -code
    above, below = code - SHELL, BYTE - code
    if below in (6, 7, 9, 11, 15):
        return below
    return above if above in _KINDS or above in (1, 2, 15) else None


def reported(event: Event) -> Ending | None:
    """The end that a line reports, by the signal or the code that it names."""
    named = event.fields.get("signal", "").lower().removeprefix("sig")
    if named:
        signal = _WORDS.get(named) or (number(named) if number(named) in (*_KINDS, 15) else None)
        return of(-signal, event) if signal else None
    code = event.fields.get("exitcode")
    return None if code is None else of(code, event)


def of_a_thread(e: Event) -> bool:
    """Whether it is an exception that ended a helper thread, and no process."""
    return "type" in e.fields and any(function in THREADS for _, _, function in e.fields.get("frames", ())[:1])


def uncaught(e: Event) -> bool:
    """Whether an exception surely ended its process: torch's hook printed it, or Python's, which starts at the script's
    own lines. Code that catches and prints one starts where it is caught, mostly in a function, or at the lines of a
    text that it had executed; a logger writes a line of its own above it."""
    if e.fields.get("excepthook") or e.fields.get("logged"):
        return e.fields.get("excepthook", False)
    frames = e.fields.get("frames", ())
    return any(frame[2] in OUTERMOST for frame in frames[:1]) and any(frame[0] != TEXT for frame in frames)


def surely_finished(e: Event) -> bool:
    """Whether it reports a finish in words that no failing script prints."""
    return e.kind == "finished" and e.fields.get("last_word", False)
