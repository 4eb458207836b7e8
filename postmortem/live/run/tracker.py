"""The processes of a job: which is which rank, and how each ended.

    tracker.look(4700); tracker.read_ends()  ->  "rank 1 (pid 6940) killed by SIGKILL" in the journal, and why

A pidfd reports that a process has ended, mostly before its parent reaps it: until then the kernel shows the exit
status of the zombie. At the same moment the memory cgroup shows whether the OOM killer was the cause.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from postmortem.live import proc
from postmortem.live.run import processes
from postmortem.live.run.journal import Journal
from postmortem.live.run.kernel_state import Memory
from postmortem.live.run.processes import Process
from postmortem.system import core_files

OOM_S = 10.0  # a large process takes this long to end at most
FIRST_LOOKS = 20  # a process that was just forked still shows its parent's environment
RECENT_S = 3600.0  # to write a core may take minutes
MOST_PROCESSES = 1024  # processes that are watched to their end


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(code: int) -> str:
    """Return how a process ended; less than zero is a signal."""
    return f"killed by {name_of(-code)}" if code < 0 else f"exited with code {code}"


class Tracker:
    """The living processes of the job that have been seen, each with a descriptor that reports its end."""

    def __init__(self, journal: Journal, memory: Memory, folder: Path | None) -> None:
        self.known: dict[int, Process] = {}
        self.killed: set[int] = set()  # by us
        self.command = 0
        self.asked_to_stop = False
        self._looks: dict[int, int] = {}
        self._ranks: set[tuple[int, int | None]] = set()  # with their attempts
        self._world = 0
        self._journal, self._memory, self._folder = journal, memory, folder
        self._pidfds: dict[int, int] = {}  # pidfd -> pid
        self._poll = select.epoll()
        self._counted = memory.oom_kills()
        self._rose = 0.0  # when the cgroup counted a kill that belongs to no process yet
        self._dead: set[int] = set()  # zombies, and those that ended since the last look
        self._elsewhere: set[int] = set()  # in another cgroup
        self._over: set[int | None] = set()  # attempts in which a rank has ended

    def descriptor(self) -> int:
        """Return a descriptor that is readable when a process has ended."""
        return self._poll.fileno()

    def look(self, root: int) -> None:
        """Look at this process and those below it."""
        found = {root: os.getpid(), **dict(processes.below(root))}
        self._dead &= found.keys()
        for pid in self.known.keys() - found.keys() - set(self._pidfds.values()):
            if not proc.state(pid):
                self._forget(pid)
        for pid, parent in found.items():
            if pid not in self._dead:
                self._see(pid, parent, self.known.get(parent))
        kills = self._memory.oom_kills()
        if kills > self._counted and not self._rose:
            self._rose = time.monotonic()
        elif self._rose and time.monotonic() - self._rose > OOM_S:
            # it ended unseen, or is no process of the job: no later SIGKILL may be attributed to it
            more = f"{kills - self._counted} OOM kills of processes that were not watched"
            self._journal.write("oom-of-others", f"{self._cgroup()} counted {more}", {"oom_kill": kills})
            self._counted, self._rose = kills, 0.0

    def _see(self, pid: int, parent: int, above: Process | None) -> None:
        seen = self._looks.get(pid, 0)
        self._looks[pid] = seen + 1
        known = self.known.get(pid)
        if known is not None and (known.rank is not None or seen >= FIRST_LOOKS):
            return
        found = self.known[pid] = processes.look(pid, parent, above)
        if not seen and len(self._pidfds) < MOST_PROCESSES:
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:  # it has ended; or the kernel is older than 5.3
                pass
            else:
                self._pidfds[pidfd] = pid
                self._poll.register(pidfd, select.EPOLLIN)
        if self._memory.holds(pid):
            self._elsewhere.discard(pid)
        elif not seen:  # later it may be in none because it ends
            self._elsewhere.add(pid)
        if found.rank is not None:
            self._ranks.add((found.rank, found.attempt))
            self._world = max(self._world, found.world or 0)
            self._journal.write("start", f"rank {found.rank} pid {pid} runs", _facts(found))

    def read_ends(self) -> None:
        """Record the ends that the descriptors report, before the parents reap."""
        for pidfd, _ in self._poll.poll(0):
            pid = self._pidfds.pop(pidfd)
            self._poll.unregister(pidfd)
            status, parent = processes.zombie_status(pid)
            status = processes.reaped_status(pidfd) if status is None else status
            os.close(pidfd)
            if parent != os.getpid():  # else `wait4` returns more, in a moment
                self.end(pid, status)

    def end(self, pid: int, status: int | None, rusage: Mapping[str, float] | None = None) -> None:
        """Record the end of one process. `status` is None if it is unknown; only our own children have `rusage`."""
        here = pid not in self._elsewhere
        process = self._forget(pid)
        if process is None:
            return
        self._dead.add(pid)
        facts = _facts(process) | ({"rusage": rusage} if rusage else {})
        is_rank, subject = process.rank is not None, self._subject(process)
        if status is None:
            if is_rank:
                self._journal.write("end", f"{subject} has gone; only its parent saw how", facts)
            return
        code = os.waitstatus_to_exitcode(status)
        end = describe(code)
        if is_rank and (code > 0 or code == -signal.SIGABRT) and self._is_first(process):
            processes.request_stacks(self.ranks(), f"{subject} {end}", self._journal)
        facts |= {"signal": name_of(-code), "core": os.WCOREDUMP(status)} if code < 0 else {"code": code}
        if pid in self.killed:
            facts["by"] = "postmortem run"
        if is_rank or code < 0 or pid == self.command:
            self._journal.write("end", f"{subject} {end}", facts)
        if facts.get("core"):
            self._journal.write("core", f"a core of {subject} was written: {self._save_core(pid)}", {"pid": pid})
        if code == -signal.SIGKILL and pid not in self.killed and self._memory and here:
            self._explain_kill(process)
        if is_rank:
            self._over.add(process.attempt)

    def _forget(self, pid: int) -> Process | None:
        """Forget a process: a job may start any number of them, and the system uses their numbers again."""
        self._looks.pop(pid, None)
        self._elsewhere.discard(pid)
        return self.known.pop(pid, None)

    def _subject(self, process: Process) -> str:
        """Return the subject of a sentence. `analyze` takes ranks and `process 17` for the job's, a helper not."""
        pid = process.pid
        if process.rank is not None:
            return f"rank {process.rank} (pid {pid})"
        return f"process {pid}" if pid == self.command else f"helper {pid} ({process.name})"

    def _explain_kill(self, process: Process) -> None:
        """Record whether the OOM killer did it: the kernel counts the kill before the process is dead. A launcher
        kills a disobedient rank only after another end, or after a request to stop."""
        kills = self._memory.oom_kills()
        facts = _facts(process) | {"oom_kill": kills, "memory": self._memory.gauges()}
        own = f", rank {process.rank}" if process.rank is not None else ""
        parent = f", a child of rank {process.of_rank}" if process.of_rank is not None else ""
        killed = f"when pid {process.pid} ({process.name}{own or parent}) ended by SIGKILL"
        if kills > self._counted:
            self._counted += 1
            self._rose = 0.0 if kills == self._counted else time.monotonic()
            self._journal.write("oom", f"{self._cgroup()} counted an OOM kill {killed}", facts)
        elif self._is_first(process):
            self._journal.write("kill", f"{self._cgroup()} counted no OOM kill {killed}", facts)

    def _cgroup(self) -> str:
        return f"memory cgroup {self._memory.path}"

    def _is_first(self, process: Process) -> bool:
        """Return whether no rank had ended before, and no stop was requested."""
        if self.asked_to_stop or (process.rank is None and process.pid != self.command):
            return False
        return process.attempt not in self._over if process.rank is not None else not self._over

    def _save_core(self, pid: int) -> str:
        """Save what the core of a process states; return where it is, or where the kernel writes cores."""
        with suppress(OSError):
            if path := core_files.find(pid, str(Path.cwd()), time.time() - RECENT_S):
                if self._folder is not None:
                    (self._folder / f"core.{pid}.json").write_text(core_files.head(path))
                return f"{path} ({Path(path).stat().st_size >> 20} MiB)"
        pattern = core_files.pattern()
        if pattern.startswith("|"):
            return f"the kernel gives it to `{pattern[1:].split(' ')[0]}`; see `coredumpctl info`"
        where = "" if pattern.startswith("/") else ", in the folder in which the process ran"
        return f"core_pattern is `{pattern}`{where}"

    def ranks(self) -> list[Process]:
        return [p for p in self.known.values() if p.rank is not None]

    def counted(self) -> dict[str, int]:
        """Return how many ranks were seen here, the size of the world, and the number of attempts."""
        ranks, attempts = ({seen[part] for seen in self._ranks} for part in (0, 1))
        return {"here": len(ranks), "world": self._world, "lives": len(attempts)} if ranks else {}

    def close(self) -> None:
        for pidfd in self._pidfds:
            os.close(pidfd)
        self._poll.close()


def _facts(process: Process) -> dict[str, object]:
    names = ("pid", "parent", "name", "local_rank", "attempt")
    return {name: value for name in names if (value := getattr(process, name)) is not None}
