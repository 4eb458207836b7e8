"""`torchrun --logs-specs postmortem`: what `postmortem run` keeps, for who cannot put it in front.

torchrun loads this by the entry point `torchrun.logs_specs` into its own process, the launcher's. It gives
each rank a log of its own, switches on what costs nothing, notes how each rank ended, and analyzes a failure
when torchrun leaves. What only a parent sees (the kernel's log, the launcher's own end) it does not.

The one module that imports torch: whoever loads it has done so already.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

from postmortem.live.run import counters, switches
from postmortem.live.run.command import analyze
from postmortem.live.run.ends import name_of
from postmortem.live.run.record import RUNS, Journal, make

EVENTS = "torchelastic-events-null"  # where torch logs what happens to its workers, for nobody by default
ENDS = ("SUCCEEDED", "FAILED", "TERMINATED")


class _End(NamedTuple):
    rank: int
    pid: int
    code: int | None  # less than zero: the signal


class LogsSpecs(DefaultLogsSpecs):  # type: ignore[misc]
    """Where the output of each rank goes. What torchrun's own options say stays."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Any = Std.NONE,
        tee: Any = Std.NONE,
        local_ranks_filter: Any = None,
        **later: Any,
    ) -> None:
        self._folder = make(Path(os.environ.get("POSTMORTEM_RUNS", RUNS)))
        if self._folder is not None and log_dir is None and redirects == Std.NONE and tee == Std.NONE:
            log_dir, tee = str(self._folder / "torchelastic"), Std.ALL
        super().__init__(log_dir, redirects, tee, local_ranks_filter, **later)
        if self._folder is not None:
            note = _Notes(self._folder)
            logger = logging.getLogger(EVENTS)
            logger.addHandler(note)
            logger.setLevel(logging.INFO)
            atexit.register(note.over, self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> Any:
        """The environment of each rank of an attempt."""
        if self._folder is not None:
            off = ("rank-logs", "error-file")
            added = switches.environment(os.environ, self._folder, [sys.executable], off, tty=False)
            for env in envs.values():
                env.update({name: value for name, value in added.items() if name not in env})
        return super().reify(envs)


class _Notes(logging.Handler):
    """Takes torch's events on its workers into the journal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        host = socket.gethostname()
        self._folder = folder
        self._journal, self._memory = Journal(folder, host), counters.Memory()
        self._counted = self._memory.oom_kills()
        self._ends: list[_End] = []
        facts = {"command": sys.argv, "pid": os.getpid()} | counters.state(self._memory)
        self._journal.write("run", f"postmortem run on {host}: torchrun --logs-specs postmortem", facts)

    def emit(self, record: logging.LogRecord) -> None:
        """One event, as JSON in the record's message. What is no such thing is passed over."""
        try:
            event = json.loads(record.getMessage())
            said, what = event["metadata"], str(event["name"]).rpartition(".")[2]
            if said["global_rank"] is None:
                return self._write_ends()
            rank, pid = int(said["global_rank"]), int(said["worker_id"])
            if what == "START":
                self._journal.write("start", f"rank {rank} pid {pid} runs", {"pid": pid})
            elif what in ENDS:
                self._ends.append(_End(rank, pid, json.loads(said["metadata"])["exit_code"][0]))
        except (ValueError, KeyError, TypeError, IndexError):
            pass
        return None

    def _write_ends(self) -> None:
        """torch tells the ends of one life together, by rank: whom torchrun stopped comes last."""
        ends = sorted(self._ends, key=lambda end: end.code == -signal.SIGTERM)
        self._ends = []
        for end in ends:
            if end.code is not None:
                how = f"killed by {name_of(-end.code)}" if end.code < 0 else f"exited with code {end.code}"
                self._journal.write("end", f"rank {end.rank} (pid {end.pid}) {how}", {"pid": end.pid})
        killed = [end for end in ends if end.code == -signal.SIGKILL]
        kills = self._memory.oom_kills()
        if len(killed) == 1 and kills > self._counted:
            who = f"pid {killed[0].pid} (python, rank {killed[0].rank}) ended by SIGKILL"
            said = f"memory cgroup {self._memory.path} counted an OOM kill when {who}"
            self._journal.write("oom", said, {"oom_kill": kills, "memory": self._memory.gauges()})
        self._counted = kills

    def over(self, logs: str) -> None:
        """torchrun leaves."""
        self._write_ends()
        self._journal.write("done", "torchrun leaves", counters.state(self._memory))
        self._journal.close()
        if hasattr(sys, "last_type"):  # an exception ends it: ChildFailedError, or a signal's
            own = Path(logs).is_relative_to(self._folder) or logs == os.devnull
            analyze(self._folder, *([] if own else [Path(logs)]))
