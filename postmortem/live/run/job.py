"""Starts the command, passes signals on, and waits for it and for the ranks that it leaves behind.

    job.start(["torchrun", ...], os.environ, tee); job.wait()  ->  1, or -9 for SIGKILL

Each signal reaches the child as often as it was sent: one that a terminal, `timeout` or a scheduler sends to all
processes has reached our tee too, and is not passed on, since torchrun abandons its ranks at the third SIGTERM.
SIGUSR1 and SIGUSR2 go to processes that have a handler, of which torchrun would die at once. The end of the process
counts, not the end of its output, which an orphan may hold open for hours; as subreaper we become the parent of
orphans.

`Quiet` knows whether the job had stopped making progress when it was ended, by its silence against its own rhythm.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from postmortem.live import proc
from postmortem.live.run import processes
from postmortem.live.run.journal import Journal, print_line
from postmortem.live.run.kernel_state import Memory
from postmortem.live.run.rank_logs import RankLogs
from postmortem.live.run.tee import FORWARDED, Tee, resize
from postmortem.live.run.tracker import Tracker, name_of

WATCHED = (*FORWARDED, signal.SIGCHLD, signal.SIGWINCH)
TO_ALL_S = 0.05  # a scheduler signals one process after the other
BUSY_S = 2.0  # a process that waits for a processor receives it later
LOOK_S = (0.5, 5.0)  # between two looks at the processes
SHARE = 200  # a look takes at most this part of a processor's time
GRACE_S = 10.0  # for orphaned ranks, after SIGTERM
PR_SET_CHILD_SUBREAPER = 36
SFD_CLOEXEC = 0o2000000


class Job:
    """The command, from its start to its end."""

    def __init__(self, journal: Journal, memory: Memory, folder: Path | None) -> None:
        self.journal = journal
        self.quiet = Quiet(folder, time.monotonic())
        self._rank_logs = RankLogs(folder)
        self.tracker = Tracker(journal, memory, folder)
        self.code: int | None = None  # of the command; less than zero for a signal
        self.pid = 0
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        # a descriptor from which blocked signals are read, with their senders
        mask = sum(1 << (number - 1) for number in WATCHED)
        made: int = ctypes.CDLL(None, use_errno=True).signalfd(-1, struct.pack("Q", mask) + b"\0" * 120, SFD_CLOEXEC)
        if made < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno() or errno.ENOSYS))
        self._signals = made
        self._undecided: list[tuple[float, int, int]] = []  # signals: when they came, number, sender
        self._tee: Tee
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, command: Sequence[str], env: Mapping[str, str], tee: Tee) -> None:
        """Start it. Raise OSError where there is no such command."""
        self._tee = tee
        out, err = (stream.inner for stream in tee.streams)

        def restore_signals() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

        def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
            return subprocess.Popen(words, stdout=out, stderr=err, env=dict(env), preexec_fn=restore_signals)

        try:
            popen = start(command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            popen = start(for_shell(command))
        popen.returncode = 0  # we wait for it ourselves
        self.pid = self.tracker.command = popen.pid
        tee.close_inner()

    def wait(self) -> int:
        """Wait until the command has ended, and every rank that it left behind."""
        pause = LOOK_S[0]
        self.tracker.look(self.pid)
        due = time.monotonic() + pause
        while self.code is None:
            self._handle_event(max(0.0, due - time.monotonic()))
            if time.monotonic() >= due and self.code is None:
                began = time.thread_time()  # on a busy host a look takes long, and costs no more
                self.tracker.look(self.pid)
                self.quiet.look(time.monotonic())
                self._rank_logs.look()
                pause = min(max(LOOK_S[0], SHARE * (time.thread_time() - began)), LOOK_S[1])
                due = time.monotonic() + pause
        self._end_orphans()
        return self.code

    def wait_only(self) -> int:
        """Wait until the command has ended, and do nothing else."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def _handle_event(self, timeout: float) -> None:
        if self._undecided:
            timeout = min(timeout, max(0.0, self._undecided[0][0] + TO_ALL_S - time.monotonic()))
        messages = self._tee.descriptors()
        ready = select.select([self._signals, self.tracker.descriptor(), *messages], [], [], timeout)[0]
        if messages and messages[0] in ready:
            self._tee.read_messages()
        if self.tracker.descriptor() in ready:
            self.tracker.read_ends()
        if self._signals in ready:
            number, _, _, sender = struct.unpack_from("IiiI", os.read(self._signals, 128))
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGWINCH:
                for stream in self._tee.streams:
                    resize(stream)
                _send(self.pid, number)  # it may have read the size before
            else:
                self._receive(number, sender)
        while self._undecided and time.monotonic() >= self._undecided[0][0] + TO_ALL_S:
            self._decide(*self._undecided.pop(0))

    def _receive(self, number: int, sender: int) -> None:
        """Request the stacks before the ranks react to a signal; what to do about it is decided in a moment."""
        now = time.monotonic()
        if not self.tracker.asked_to_stop:
            quiet = self.quiet.report(now)
            why = f"{name_of(number)} came{'; ' if quiet else ''}{quiet}"
            processes.request_stacks(self.tracker.ranks(), why, self.journal)
        self.tracker.asked_to_stop = True
        self._undecided.append((now, number, sender))

    def _decide(self, came: float, number: int, sender: int) -> None:
        """Pass a signal on, unless it came to all processes."""
        name = name_of(number)
        facts: dict[str, object] = {"signal": name}
        if sender:
            facts |= {"from": sender, "from_name": proc.text(f"/proc/{sender}/comm")}
        until = came + BUSY_S
        while processes.pending(self._tee.pid, number) and time.monotonic() < until:
            time.sleep(TO_ALL_S)
        if self._tee.received(number, came - BUSY_S):
            return self.journal.write("signal", f"{name} came to all processes", facts)
        to = [self.pid]
        if number in (signal.SIGUSR1, signal.SIGUSR2) and not processes.catches(self.pid, number):
            self.tracker.look(self.pid)
            if ranks := self.tracker.ranks():
                to = [p.pid for p in ranks if processes.catches(p.pid, number)]
        reached = [str(pid) for pid in to if _send(pid, number)]
        if not reached:
            print_line(f"{name} was not passed on: no process handles it, and it would have ended the launcher alone")
        where = f"passed on to {', '.join(reached)}" if reached else "not passed on: no process has a handler"
        return self.journal.write("signal", f"{name} came to the wrapper, {where}", facts)

    def _reap(self) -> None:
        """Reap all children that have ended: the command, its orphans, our tee."""
        self.tracker.read_ends()
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._tee.pid:
                self._tee.read_messages()
                if self.code is None and os.WIFSIGNALED(status):  # it was killed: its streams are still open here
                    self.journal.write("tee", f"the copying process was killed by {name_of(os.WTERMSIG(status))}")
                    self._tee.start()
                continue
            rusage = {"user_s": used.ru_utime, "system_s": used.ru_stime, "peak_kb": used.ru_maxrss}
            self.tracker.end(pid, status, rusage)
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)

    def _end_orphans(self) -> None:
        """Stop ranks without a launcher, which hold their GPUs and wait for each other without end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = self._orphans()
            if not left:
                return
            names = ", ".join(f"pid {pid}" for pid in left)
            self.journal.write("orphans", f"the command left ranks behind: {name_of(number)} to {names}")
            self.tracker.killed.update(left)
            for pid in left:
                _send(pid, number)
                _send(pid, signal.SIGCONT)
            until = time.monotonic() + GRACE_S
            while self._orphans() and time.monotonic() < until:
                self._handle_event(0.1)

    def _orphans(self) -> list[int]:
        """Return the ranks among our own children. A process of a rank (an upload that goes on) is none, and where the
        command is a rank itself it starts none. One that was not seen below its parent has a rank's variables in
        either case: it is taken for a rank only if a signal killed the launcher, which had no time to stop its own."""
        if processes.look(os.getpid(), 0, None).rank is not None:
            return []
        known, ours = self.tracker.known, (self._tee.pid, self.pid)
        left = [pid for pid in processes.children(os.getpid()) if pid not in ours]
        if self.code is not None and self.code >= 0:
            left = [pid for pid in left if pid in known]
        return [pid for pid in left if (known.get(pid) or processes.look(pid, os.getpid(), None)).rank is not None]

    def close(self) -> None:
        """Close all descriptors. Signals stay blocked: none may replace the exit code of the command."""
        self.tracker.close()
        os.close(self._signals)


def for_shell(command: Sequence[str]) -> list[str]:
    """Return the command with which a shell runs a script without `#!`."""
    return ["/bin/sh", shutil.which(command[0]) or command[0], *command[1:]]


def _send(pid: int, number: int) -> bool:
    with suppress(OSError):
        os.kill(pid, number)
        return True
    return False


LEAST_S = 60.0
FACTOR = 10  # times its longest earlier silence
GROWN = 5  # growths of the output from which on its rhythm is known


class Quiet:
    """When the job's output last grew, at each look."""

    def __init__(self, folder: Path | None, now: float) -> None:
        self._files = [folder / "stdout.log", folder / "stderr.log"] if folder else []
        self._grew = 0
        self._since = now
        self._longest = 0.0
        self._grown = 0

    def look(self, now: float) -> None:
        grew = 0
        for file in self._files:
            with suppress(OSError):
                grew += file.stat().st_mtime_ns
        if grew != self._grew:
            if self._grown:  # before its first line a job may take any time
                self._longest = max(self._longest, now - self._since)
            self._grew, self._since, self._grown = grew, now, self._grown + 1

    def report(self, now: float) -> str:
        """Return a sentence if it has been silent for much longer than ever before; else empty."""
        self.look(now)
        silence = now - self._since
        if self._grown < GROWN or silence < max(LEAST_S, FACTOR * self._longest):
            return ""
        before = f"and before that never for more than {self._longest:.0f} s"
        return f"the job had printed nothing for {silence:.0f} s, {before}"
