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

from postmortem.run import processes
from postmortem.run.counters import Memory
from postmortem.run.processes import Process
from postmortem.run.record import Journal, say
from postmortem.run.tee import FORWARDED, Tee, resize

WATCHED = (*FORWARDED, signal.SIGCHLD, signal.SIGWINCH)
TO_ALL_S = 0.05  # a scheduler signals one process after the other
SAME_S = 1.0  # the same signal within this time is the same wish
LOOK_S = (0.5, 5.0)  # between two looks at the processes
SHARE = 200  # a look takes at most this part of the time
GRACE_S = 10.0  # for orphaned ranks, after SIGTERM
OOM_S = 10.0  # a large process takes this long to end at most
FIRST_LOOKS = 5  # a process that was just forked still shows its parent's environment
MOST = 1024  # processes that are watched to their end
PR_SET_CHILD_SUBREAPER = 36
SFD_CLOEXEC = 0o2000000


@dataclass(frozen=True, slots=True)
class End:
    """How the command ended: with a code of its own, or by a signal."""

    code: int
    signal: int = 0

    def __str__(self) -> str:
        return name_of(self.signal) if self.signal else f"exit code {self.code}"


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Watch:
    """The processes of the job that have been seen, each with a handle that says when it ends."""

    def __init__(self, journal: Journal, memory: Memory) -> None:
        self.known: dict[int, Process] = {}
        self.ours: set[int] = set()  # whom we ended ourselves
        self.command = 0
        self._looks: dict[int, int] = {}
        self._journal, self._memory = journal, memory
        self._handles: dict[int, int] = {}  # pidfd -> pid
        self._poll = select.epoll()
        self._counted = memory.oom_kills()
        self._rose = 0.0
        self._dead: set[int] = set()
        self._elsewhere: set[int] = set()  # whose memory another cgroup counts
        self._over: set[int | None] = set()  # lives of the job in which a rank has ended
        self.asked_to_stop = False

    def handle(self) -> int:
        """A descriptor that is readable when one of them has ended."""
        return self._poll.fileno()

    def look(self, *roots: int) -> None:
        """See who is there now, below these processes and with them."""
        above = {root: self.known.get(root) for root in roots}
        for root in roots:
            self._see(root, os.getpid(), None)
            for pid, parent in processes.below(root):
                above[pid] = self._see(pid, parent, self.known.get(parent))
        kills = self._memory.oom_kills()
        if kills > self._counted and not self._rose:
            self._rose = time.monotonic()
        elif self._rose and time.monotonic() - self._rose > OOM_S:
            self._unclaimed(kills)

    def _see(self, pid: int, parent: int, above: Process | None) -> Process:
        seen = self._looks.get(pid, 0)
        self._looks[pid] = seen + 1
        known = self.known.get(pid)
        if known is not None and (known.rank is not None or seen >= FIRST_LOOKS):
            return known
        found = self.known[pid] = processes.look(pid, parent, above)
        if not seen and len(self._handles) < MOST:
            self._hold(pid)
        if not self._memory.holds(pid):
            self._elsewhere.add(pid)
        if found.rank is not None:
            self._journal.write("start", f"rank {found.rank} pid {pid} runs", _facts(found))
        return found

    def _hold(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except OSError:  # it has ended; or the kernel is older than 5.3
            return
        self._handles[handle] = pid
        self._poll.register(handle, select.EPOLLIN)

    def gone(self) -> None:
        """Note the ends of those whose handles say so, before their parents ask."""
        for handle, _ in self._poll.poll(0):
            pid = self._handles.pop(handle)
            self._poll.unregister(handle)
            os.close(handle)
            status, parent = processes.ended(pid)
            if parent != os.getpid():  # else `wait` tells more, in a moment
                self.end(pid, status)

    def end(self, pid: int, status: int | None, rusage: Mapping[str, float] | None = None) -> None:
        """Note how one ended. `status` is None where nobody could tell; our own children have an `rusage`."""
        who = self.known.get(pid)
        if who is None or pid in self._dead:
            return
        self._dead.add(pid)
        facts = _facts(who) | ({"rusage": rusage} if rusage else {})
        if status is None:
            if who.rank is not None:
                self._journal.write(
                    "end", f"rank {who.rank} (pid {pid}) has gone; only its parent saw how", facts
                )
            return
        number, code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, os.WEXITSTATUS(status)
        facts |= {"signal": name_of(number), "core": os.WCOREDUMP(status)} if number else {"code": code}
        if pid in self.ours:
            facts["by"] = "postmortem run"
        if who.rank is not None or number or rusage:
            how = f"killed by {name_of(number)}" if number else f"exited with code {code}"
            self._journal.write("end", f"{self._who(who)} {how}", facts)
        if number == signal.SIGKILL and pid not in self.ours and self._memory and pid not in self._elsewhere:
            self._killed(who)
        if who.rank is not None:
            self._over.add(who.attempt)

    def _who(self, who: Process) -> str:
        """The subject of the sentence. `analyze` takes ranks and `process 17` for the job's, a helper not."""
        if who.rank is not None:
            return f"rank {who.rank} (pid {who.pid})"
        return f"process {who.pid}" if who.pid == self.command else f"helper {who.pid} ({who.name})"

    def _killed(self, who: Process) -> None:
        """By the OOM killer? The kernel counts the kill before the process is dead. Whom a launcher kills
        because it did not obey ends after another, or after somebody asked the job to stop."""
        kills = self._memory.oom_kills()
        facts = _facts(who) | {"oom_kill": kills, "memory": self._memory.gauges()}
        of = who.rank if who.rank is not None else who.of_rank
        whose = "" if of is None else f", rank {of}" if who.rank is not None else f", a child of rank {of}"
        killed = f"when pid {who.pid} ({who.name}{whose}) ended by SIGKILL"
        if kills > self._counted:
            self._counted += 1
            self._rose = 0.0 if kills == self._counted else time.monotonic()
            self._journal.write(
                "oom", f"memory cgroup {self._memory.path} counted an OOM kill {killed}", facts
            )
        elif self._first(who):
            self._journal.write(
                "kill", f"memory cgroup {self._memory.path} counted no OOM kill {killed}", facts
            )

    def _first(self, who: Process) -> bool:
        if self.asked_to_stop or (who.rank is None and who.pid != self.command):
            return False
        return who.attempt not in self._over if who.rank is not None else not self._over

    def _unclaimed(self, kills: int) -> None:
        """One that ended unseen, or no process of the job: no later SIGKILL is to be taken for it."""
        more = f"{kills - self._counted} OOM kills of processes that were not watched"
        said = f"memory cgroup {self._memory.path} counted {more}"
        self._journal.write("oom-of-others", said, {"oom_kill": kills})
        self._counted, self._rose = kills, 0.0

    def ranks(self) -> list[Process]:
        """The ranks that live."""
        return [p for p in self.known.values() if p.rank is not None and p.pid not in self._dead]

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._poll.close()


def _facts(who: Process) -> dict[str, object]:
    facts = {
        "pid": who.pid,
        "parent": who.parent,
        "name": who.name,
        "local_rank": who.local_rank,
        "attempt": who.attempt,
    }
    return {name: value for name, value in facts.items() if value is not None}


class Job:
    """The command, from its start to its end."""

    def __init__(self, journal: Journal, memory: Memory) -> None:
        self.journal = journal
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
        began, pause = time.monotonic(), LOOK_S[0]
        self.watch.look(self.pid)
        due = time.monotonic() + pause
        while self.end is None:
            self._turn(max(0.0, due - time.monotonic()))
            if time.monotonic() >= due and self.end is None:
                began = time.monotonic()
                self.watch.look(self.pid)
                pause = min(max(LOOK_S[0], SHARE * (time.monotonic() - began)), LOOK_S[1])
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
        where = (
            f"passed on to {', '.join(map(str, told))}"
            if told
            else "passed on to nobody: no process has a handler"
        )
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
                if self.end is None and os.WIFSIGNALED(
                    status
                ):  # somebody killed it: its streams are still ours
                    self.journal.write(
                        "tee", f"the copying process was killed by {name_of(os.WTERMSIG(status))}"
                    )
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
    made: int = ctypes.CDLL(None, use_errno=True).signalfd(
        -1, struct.pack("Q", mask) + b"\0" * 120, SFD_CLOEXEC
    )
    if made < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno() or errno.ENOSYS))
    return made


def _read(signals: int) -> tuple[int, int]:
    """The next signal and the pid of its sender, 0 for the kernel's own."""
    said = os.read(signals, 128)
    number, _, _, sender = struct.unpack_from("IiiI", said)
    return number, sender
