"""Starts the command, passes signals on, and waits for it and for the ranks that it leaves behind.

    Job(["torchrun", ...]).wait()  ->  End(code=1, signal=0)

**A signal goes to the child once.** What a terminal, `timeout`, `kill -- -GROUP` or a scheduler sends to
all processes has reached the child already, and reached our tee as well: so what the tee has heard is not
passed on. torchrun gives up its ranks at the third SIGTERM, and starts its 30 s anew at the second.

**SIGUSR1 and SIGUSR2 go to who has a handler.** torchrun has none: it would die at once, and leave its
ranks behind.

**We wait for the process, not for the end of its output**, which an orphan may hold for hours. As
subreaper we become the parent of what the child leaves behind: ranks are asked to stop and then killed,
anything else (wandb, ray) is left alone.

**The job survives us.** No PR_SET_PDEATHSIG: a wrapper that is killed leaves the job running, and its tee.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from postmortem.live.run import asking, processes
from postmortem.live.run.counters import Memory
from postmortem.live.run.ends import Watch, name_of
from postmortem.live.run.quiet import Quiet
from postmortem.live.run.record import Journal, say
from postmortem.live.run.tee import FORWARDED, Tee, resize

WATCHED = (*FORWARDED, signal.SIGCHLD, signal.SIGWINCH)
TO_ALL_S = 0.05  # a scheduler signals one process after the other
SAME_S = 1.0  # the same signal within this time is the same wish
LOOK_S = (0.5, 5.0)  # between two looks at the processes
SHARE = 200  # a look takes at most this part of a processor's time
GRACE_S = 10.0  # for orphaned ranks, after SIGTERM
PR_SET_CHILD_SUBREAPER = 36
SFD_CLOEXEC = 0o2000000


@dataclass(frozen=True, slots=True)
class End:
    """How the command ended: with a code of its own, or by a signal."""

    code: int
    signal: int = 0

    def __str__(self) -> str:
        return name_of(self.signal) if self.signal else f"exit code {self.code}"


class Job:
    """The command, from its start to its end."""

    def __init__(self, journal: Journal, memory: Memory, folder: Path | None = None) -> None:
        self.journal = journal
        self.quiet = Quiet(folder, time.monotonic())
        self.watch = Watch(journal, memory)
        self.end: End | None = None
        self.pid = 0
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self._signals = _signalfd(WATCHED)
        self._came: dict[int, float] = {}
        self._tee: Tee | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, command: Sequence[str], env: Mapping[str, str], tee: Tee) -> None:
        """Start it. Raise OSError where there is no such command."""
        self._tee = tee
        inner = [one.inner for one in tee.streams]

        def as_we_were_started() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

        popen = subprocess.Popen(
            list(command), stdout=inner[0], stderr=inner[1], env=dict(env), preexec_fn=as_we_were_started
        )
        popen.returncode = 0  # we wait for it ourselves
        self.pid = self.watch.command = popen.pid
        tee.let_go()

    def wait(self) -> End:
        """Until the command has ended, and every rank that it left behind."""
        pause = LOOK_S[0]
        self.watch.look(self.pid)
        due = time.monotonic() + pause
        while self.end is None:
            self._turn(max(0.0, due - time.monotonic()))
            if time.monotonic() >= due and self.end is None:
                began = time.thread_time()  # on a busy host a look takes long, and costs no more
                self.watch.look(self.pid)
                self.quiet.look(time.monotonic())
                pause = min(max(LOOK_S[0], SHARE * (time.thread_time() - began)), LOOK_S[1])
                due = time.monotonic() + pause
        self._end_orphans()
        return self.end

    def wait_only(self) -> End:
        """Until the command has ended, and nothing else."""
        if self.end is None:
            _, status = os.waitpid(self.pid, 0)
            self.end = _end(status)
        return self.end

    def _turn(self, patience: float) -> None:
        """One event, or none in that time."""
        tells = self._tee.handles() if self._tee else []
        ready = select.select([self._signals, self.watch.handle(), *tells], [], [], patience)[0]
        if self._tee and tells and tells[0] in ready:
            self._tee.listen()
        if self.watch.handle() in ready:
            self.watch.gone()
        if self._signals in ready:
            number, sender = _read(self._signals)
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGWINCH and self._tee:
                for one in self._tee.streams:
                    resize(one)
                _send(self.pid, number)  # it may have asked before the size was there
            elif number:
                self._heard(number, sender)

    def _heard(self, number: int, sender: int) -> None:
        """A signal came to us."""
        name, now = name_of(number), time.monotonic()
        if not self.watch.asked_to_stop:  # while they still stand where they stood
            still = self.quiet.told(now)
            asking.ask(self.watch.ranks(), f"{name} came{'; ' if still else ''}{still}", self.journal)
        self.watch.asked_to_stop = True
        facts: dict[str, object] = {"signal": name}
        if sender:
            facts |= {
                "from": sender,
                "from_name": processes.read(f"/proc/{sender}/comm").decode("utf-8", "replace").strip(),
            }
        time.sleep(TO_ALL_S)
        if self._tee and (processes.pending(self._tee.pid, number) or self._tee.heard(number)):
            return self.journal.write("signal", f"{name} came to all processes", facts)
        if now - self._came.get(number, -SAME_S) < SAME_S:
            return None
        self._came[number] = now
        told = self._pass_on(number)
        where = f"passed on to {', '.join(map(str, told))}" if told else "passed on to nobody: no process has a handler"
        if not told:
            say(f"{name} was not passed on: nobody handles it, and it would have ended the launcher alone")
        return self.journal.write("signal", f"{name} came to the wrapper, {where}", facts)

    def _pass_on(self, number: int) -> list[int]:
        to = [self.pid]
        if number in (signal.SIGUSR1, signal.SIGUSR2) and not processes.catches(self.pid, number):
            self.watch.look(self.pid)
            if ranks := self.watch.ranks():
                to = [p.pid for p in ranks if processes.catches(p.pid, number)]
        return [pid for pid in to if _send(pid, number)]

    def _reap(self) -> None:
        """All that have ended: the command, its orphans, our tee."""
        self.watch.gone()
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._tee and pid == self._tee.pid:
                self._tee.listen()
                if self.end is None and os.WIFSIGNALED(status):  # somebody killed it: its streams are still ours
                    self.journal.write("tee", f"the copying process was killed by {name_of(os.WTERMSIG(status))}")
                    self._tee.start()
                continue
            rusage = {"user_s": used.ru_utime, "system_s": used.ru_stime, "peak_kb": used.ru_maxrss}
            self.watch.end(pid, status, rusage)
            if pid == self.pid:
                self.end = _end(status)

    def _end_orphans(self) -> None:
        """Ranks without a launcher hold their GPUs, and wait for each other for ever."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = self._orphans()
            if not left:
                return
            names = ", ".join(f"pid {pid}" for pid in left)
            self.journal.write("orphans", f"the command left ranks behind: {name_of(number)} to {names}")
            self.watch.ours.update(left)
            for pid in left:
                _send(pid, number)
                _send(pid, signal.SIGCONT)
            until = time.monotonic() + GRACE_S
            while self._orphans() and time.monotonic() < until:
                self._turn(0.1)

    def _orphans(self) -> list[int]:
        """Ranks and their workers among our own children."""
        tee = self._tee.pid if self._tee else 0
        found = []
        for pid in processes.children(os.getpid()):
            if pid in (tee, self.pid):
                continue
            who = self.watch.known.get(pid) or processes.look(pid, os.getpid(), None)
            if who.rank is not None or who.of_rank is not None:
                found.append(pid)
        return found

    def close(self) -> None:
        """Let go of everything; signals are ours again."""
        self.watch.close()
        os.close(self._signals)
        while signal.sigtimedwait(WATCHED, 0) is not None:  # what came meanwhile has been answered
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _end(status: int) -> End:
    return End(0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else End(os.WEXITSTATUS(status))


def _send(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
        return True
    return False


def _signalfd(numbers: Sequence[int]) -> int:
    """A descriptor from which blocked signals are read, with their senders."""
    mask = sum(1 << (number - 1) for number in numbers)
    made: int = ctypes.CDLL(None, use_errno=True).signalfd(-1, struct.pack("Q", mask) + b"\0" * 120, SFD_CLOEXEC)
    if made < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno() or errno.ENOSYS))
    return made


def _read(signals: int) -> tuple[int, int]:
    """The next signal and the pid of its sender, 0 for the kernel's own."""
    said = os.read(signals, 128)
    number, _, _, sender = struct.unpack_from("IiiI", said)
    return number, sender
