"""How a process ended: an exit code or a signal's name -> the kind of its end.

-9, 137   kill       sent from outside, cannot be caught            -11, 139  crash   a fault of the program
-15, 143  stop       asked to stop, by the launcher or a person      3         own     left by itself with this code
-24, 152  limit      a limit of CPU time or file size                0         clean
"""

from __future__ import annotations

from dataclasses import dataclass

from postmortem.model import Event
from postmortem.model.digits import number

SHELL = 128  # a shell, a container and srun report a signal as 128 + its number
CRASHES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
BYTE = 256  # a launcher that exits with the code of its worker, -9, leaves 247
LIMITS = {24: "SIGXCPU", 25: "SIGXFSZ"}
KINDS = {**dict.fromkeys(CRASHES, "crash"), **dict.fromkeys(LIMITS, "limit"), 9: "kill"}
OTHERS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 10: "SIGUSR1", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM"}
SHOWN = CRASHES | LIMITS | OTHERS | {9: "SIGKILL", 15: "SIGTERM"}
WORDS = {  # as launchers, shells and schedulers call signals, and the C library in other languages
    9: "kill/killed/已杀死/強制結束/強制終了/getötet/processus arrêté/terminado (killed)/убито/ucciso",
    11: "segv/segmentation fault/段错误/程式記憶體區段錯誤/speicherzugriffsfehler/erreur de segmentation/violación de segmento"
    "/ошибка сегментирования/falha de segmentação/errore di segmentazione",
    7: "bus/bus error",
    6: "abrt/abort/aborted",
    8: "fpe/floating point exception",
    4: "ill/illegal instruction/illegal hardware instruction",
    1: "hup/hangup",
    15: "term/terminated",
    24: "xcpu",
    25: "xfsz",
}
_SIGNAL_OF = {word: signal for signal, words in WORDS.items() for word in words.split("/")}


@dataclass(frozen=True, slots=True)
class Ending:
    """One process's end: `kind` is clean, own, crash, kill, stop or limit; `stated_by` is the line that reports it."""

    kind: str
    code: int
    stated_by: Event | None = None

    @property
    def signal(self) -> str:
        """`SIGTERM`; empty where it left with a code of its own."""
        return SHOWN.get(_signal(self.code) or 0, "")

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


def of(code: int, stated_by: Event | None = None) -> Ending:
    """The end with an exit code, negative as Python reports signals or above 128 as shells do."""
    signal = _signal(code)
    if signal is not None:
        return Ending(KINDS.get(signal, "stop"), code, stated_by)
    return Ending("own" if code else "clean", code, stated_by)


def _signal(code: int) -> int | None:
    """The signal behind a code; 128 + 3 and the like are codes that programs choose themselves."""
    if code < 0:
        return -code
    above, below = code - SHELL, BYTE - code
    if below in (6, 7, 9, 11, 15):
        return below
    return above if above in KINDS or above in (1, 2, 15) else None


def reported(event: Event) -> Ending | None:
    """The end that a line reports, by the signal or the code that it names."""
    named = event.fields.get("signal", "").lower().removeprefix("sig")
    if named:
        signal = _SIGNAL_OF.get(named) or (number(named) if number(named) in (*KINDS, 15) else None)
        return of(-signal, event) if signal else None
    code = event.fields.get("exitcode")
    return None if code is None else of(code, event)
