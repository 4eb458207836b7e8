"""`torchrun --logs-specs postmortem`: the evidence of `postmortem run` where no command can precede torchrun.

torchrun loads this by the entry point `torchrun.logs_specs` into the launcher's process. It gives each rank a log,
switches on inexpensive diagnostics, records how each rank ended, and analyzes a failure when torchrun ends. The
kernel's log and the launcher's own end need a parent process. The one module that imports torch, which is loaded.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

from postmortem.live.run import kernel_state, rank_logs, switches
from postmortem.live.run.journal import RUNS, Journal, make_folder
from postmortem.live.run.tracker import describe
from postmortem.live.run.wrapper import analyze

EVENTS = "torchelastic-events-null"  # where torch logs events of its workers, by default without a handler
LOOK_S = 0.5
ENDS = ("SUCCEEDED", "FAILED", "TERMINATED")


class LogsSpecs(DefaultLogsSpecs):  # type: ignore[misc]
    """Where the output of each rank goes. torchrun's own options have priority."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Any = Std.NONE,
        tee: Any = Std.NONE,
        local_ranks_filter: Any = None,
        **later: Any,
    ) -> None:
        self._folder = make_folder(Path(os.environ.get("POSTMORTEM_RUNS", RUNS)))
        self._own = log_dir is None and redirects == Std.NONE and tee == Std.NONE and not any(map(os.isatty, (1, 2)))
        if self._own and self._folder is not None and switches.holds_logs(self._folder):
            log_dir, tee = str(self._folder / rank_logs.FOLDER), Std.ALL
            threading.Thread(target=_watch, args=(rank_logs.RankLogs(self._folder),), daemon=True).start()
        super().__init__(log_dir, redirects, tee, local_ranks_filter, **later)
        if self._folder is not None:
            recorder = _Recorder(self._folder)
            logger = logging.getLogger(EVENTS)
            logger.addHandler(recorder)
            logger.setLevel(logging.INFO)
            atexit.register(recorder.finish, self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> Any:
        """Add the variables of the switches to the environment of each rank of an attempt."""
        if self._folder is not None:
            off = ("rank-logs", "error-file")
            added = switches.environment(os.environ, self._folder, [sys.executable], off, tty=False)
            for env in envs.values():
                env.update({name: value for name, value in added.items() if name not in env})
        try:
            return super().reify(envs)
        except OSError:  # our folder is full, or has gone
            if not self._own:
                raise
            self._root_log_dir, self._run_log_dir, self._tee = tempfile.mkdtemp(prefix="torchelastic_"), None, Std.NONE
            return super().reify(envs)


def _watch(logs: rank_logs.RankLogs) -> None:
    while True:
        time.sleep(LOOK_S)
        logs.look()


class _Recorder(logging.Handler):
    """Writes torch's events of its workers into the journal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        host = socket.gethostname()
        self._folder = folder
        self._journal, self._memory = Journal(folder, host), kernel_state.Memory()
        self._counted = self._memory.oom_kills()
        self._ends: list[tuple[int, int, int | None]] = []  # rank, pid, exit code or minus the signal
        facts = {"command": sys.argv, "pid": os.getpid()} | kernel_state.state(self._memory)
        self._journal.write("run", f"postmortem run on {host}: torchrun --logs-specs postmortem", facts)

    def emit(self, record: logging.LogRecord) -> None:
        """Take one event, JSON in the record's message; anything else is ignored."""
        try:
            event = json.loads(record.getMessage())
            facts, name = event["metadata"], str(event["name"]).rpartition(".")[2]
            if facts["global_rank"] is None:
                return self._write_ends()
            rank, pid = int(facts["global_rank"]), int(facts["worker_id"])
            if name == "START":
                self._journal.write("start", f"rank {rank} pid {pid} runs", {"pid": pid})
            elif name in ENDS:
                self._ends.append((rank, pid, json.loads(facts["metadata"])["exit_code"][0]))
        except (ValueError, KeyError, TypeError, IndexError):
            pass
        return None

    def _write_ends(self) -> None:
        """Write the ends of one attempt, which torch reports together, by rank: those that torchrun stopped last."""
        ends = sorted(self._ends, key=lambda end: end[2] == -signal.SIGTERM)
        self._ends = []
        for rank, pid, code in ends:
            if code is not None:
                self._journal.write("end", f"rank {rank} (pid {pid}) {describe(code)}", {"pid": pid})
        killed = [f"pid {pid} (python, rank {rank})" for rank, pid, code in ends if code == -signal.SIGKILL]
        kills = self._memory.oom_kills()
        if len(killed) == 1 and kills > self._counted:
            who = f"{killed[0]} ended by SIGKILL"
            message = f"memory cgroup {self._memory.path} counted an OOM kill when {who}"
            self._journal.write("oom", message, {"oom_kill": kills, "memory": self._memory.gauges()})
        self._counted = kills

    def finish(self, logs: str) -> None:
        """Analyze a failure when torchrun ends."""
        self._write_ends()
        self._journal.write("done", "torchrun leaves", kernel_state.state(self._memory))
        self._journal.close()
        if hasattr(sys, "last_type"):  # an exception ends it: ChildFailedError, or a signal's
            own = Path(logs).is_relative_to(self._folder) or logs == os.devnull
            analyze(self._folder, *([] if own else [Path(logs)]))
