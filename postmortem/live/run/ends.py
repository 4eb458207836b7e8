"""The processes of a job: which is which rank, and how each ended.

    watch.look(4700); watch.gone()  ->  "rank 1 (pid 6940) killed by SIGKILL" in the journal, and why

A pidfd says that a process has ended, mostly before its parent asks how: until then the kernel shows the
exit status of the zombie. In the same moment the memory cgroup is asked whether the OOM killer did it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping

from postmortem.live.run import asking, processes
from postmortem.live.run.counters import Memory
from postmortem.live.run.processes import Process
from postmortem.live.run.record import Journal

OOM_S = 10.0  # a large process takes this long to end at most
FIRST_LOOKS = 20  # a process that was just forked still shows its parent's environment
MOST = 1024  # processes that are watched to their end


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
        if self._memory.holds(pid):
            self._elsewhere.discard(pid)
        elif not seen:  # later it may be in none because it ends
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
            status, parent = processes.ended(pid)
            status = processes.reaped(handle) if status is None else status
            os.close(handle)
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
                self._journal.write("end", f"rank {who.rank} (pid {pid}) has gone; only its parent saw how", facts)
            return
        number, code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, os.WEXITSTATUS(status)
        how = f"killed by {name_of(number)}" if number else f"exited with code {code}"
        if who.rank is not None and (code if not number else number == signal.SIGABRT) and self._first(who):
            asking.ask(self.ranks(), f"{self._who(who)} {how}", self._journal)
        facts |= {"signal": name_of(number), "core": os.WCOREDUMP(status)} if number else {"code": code}
        if pid in self.ours:
            facts["by"] = "postmortem run"
        if who.rank is not None or number or rusage:
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
            self._journal.write("oom", f"memory cgroup {self._memory.path} counted an OOM kill {killed}", facts)
        elif self._first(who):
            self._journal.write("kill", f"memory cgroup {self._memory.path} counted no OOM kill {killed}", facts)

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

    def counted(self) -> dict[str, int]:
        """How many ranks were seen here, in how many lives of the job, and of how many in all they are."""
        ranks = [p for p in self.known.values() if p.rank is not None]
        world = max((p.world for p in ranks if p.world), default=0)
        lives = {p.attempt for p in ranks}
        return {"here": len({p.rank for p in ranks}), "world": world, "lives": len(lives)} if ranks else {}

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
