"""How a process ended: an exit code or a signal's name -> what kind of end it was.

-9, 137   kill       sent from outside, nobody can catch it          -11, 139  crash   a fault of the program
-15, 143  stop       asked to stop, by the launcher or a person      3         own     left by itself with this code
-24, 152  limit      a limit of CPU time or file size                0         clean
"""

from __future__ import annotations

from dataclasses import dataclass

from postmortem.model import Event
from postmortem.model.digits import number

SHELL = 128  # a shell, a container and srun report a signal as 128 + its number
CRASHES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
LIMITS = {24: "SIGXCPU", 25: "SIGXFSZ"}
KILL = {9: "SIGKILL"}
KINDS = {**dict.fromkeys(CRASHES, "crash"), **dict.fromkeys(LIMITS, "limit"), **dict.fromkeys(KILL, "kill")}
OTHERS = {3: "SIGQUIT", 10: "SIGUSR1", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM"}
SHOWN = CRASHES | LIMITS | KILL | OTHERS | {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}
WORDS = {  # as launchers, shells and schedulers call signals
    "kill": 9, "killed": 9, "segv": 11, "segmentation fault": 11, "bus": 7, "bus error": 7, "abrt": 6,
    "abort": 6, "aborted": 6, "fpe": 8, "floating point exception": 8, "ill": 4, "illegal instruction": 4,
    "illegal hardware instruction": 4, "term": 15, "terminated": 15,
    # the C library's names in other languages
    "已杀死": 9, "強制結束": 9, "強制終了": 9, "getötet": 9, "processus arrêté": 9, "terminado (killed)": 9, "убито": 9,
    "ucciso": 9, "段错误": 11, "程式記憶體區段錯誤": 11, "speicherzugriffsfehler": 11, "erreur de segmentation": 11,
    "violación de segmento": 11, "ошибка сегментирования": 11, "falha de segmentação": 11,
    "errore di segmentazione": 11,
} | {name.removeprefix("SIG").lower(): signal for signal, name in LIMITS.items()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ending:
    """One process's end: `kind` is clean, own, crash, kill, stop or limit; `told_by` is the line that tells
    it."""

    kind: str
    code: int
    told_by: Event | None = None

    @property
    def signal(self) -> str:
        """`SIGTERM`; empty where it left with a code of its own."""
        return SHOWN.get(_signal(self.code) or 0, "")

    @property
    def short(self) -> str:
        """`SIGKILL`, `3`."""
        return self.signal or str(self.code)

    def __str__(self) -> str:
        """`SIGSEGV`, `exit code 3`."""
        return self.signal or f"exit code {self.code}"


def of(code: int, told_by: Event | None = None) -> Ending:
    """What an exit code says, negative as Python reports signals or above 128 as shells do."""
    signal = _signal(code)
    if code == 0:
        kind = "clean"
    elif signal is None:
        kind = "own"
    else:
        kind = KINDS.get(signal, "stop")
    return Ending(kind, code, told_by)


def _signal(code: int) -> int | None:
    """The signal behind a code; 128 + 3 and the like are codes that programs choose themselves."""
    if code < 0:
        return -code
    above = code - SHELL
    return above if above in KINDS or above in (1, 2, 15) else None


def told(event: Event) -> Ending | None:
    """What a line tells of an end, by the signal or the code that it names."""
    named = str(event.fields.get("signal") or "").lower().removeprefix("sig")
    if named:
        signal = WORDS.get(named) or (number(named) if number(named) in (*KINDS, 15) else None)
        return of(-signal, event) if signal else None
    code = number(event.fields.get("exitcode"))
    return None if code is None else of(code, event)
