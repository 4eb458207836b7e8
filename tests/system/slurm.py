"""A real Slurm on this machine for one test session: munged, slurmctld and slurmd in a folder of their own, without
a port, socket, key or setting of another Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HOST = socket.gethostname().split(".")[0]
SETTINGS = Path(__file__).with_suffix(".conf").read_text()


class Slurm:
    """One controller and one node, both this machine."""

    kill_wait = 20  # the analysis starts 5 s after SIGTERM, and this machine may be busy
    epilog_timeout = 5

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="postmortem-slurm-"))  # pytest's own is closed to other users
        self.folder.chmod(0o755)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Return when the node is idle; raise with the daemons' output if it never is."""
        (self.folder / "state").mkdir()
        (self.folder / "spool").mkdir()
        self.epilog("exit 0")
        here = {"host": HOST, "address": "127.0.0.1", "folder": self.folder, "ports": _free_ports(2)}
        times = {"kill_wait": self.kill_wait, "epilog_timeout": self.epilog_timeout}
        (self.folder / "slurm.conf").write_text(SETTINGS.format(**here, **times))
        self._munge()
        self._daemon("slurmctld", "-D", "-c")
        self._daemon("slurmd", "-D")
        self.until(lambda: self.node() == "idle", 30, "the node is idle")

    def _munge(self) -> None:
        folder = self.folder / "munge"  # munged trusts no folder that others may write
        folder.mkdir(mode=0o755)
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = [f"--{name}-file={folder}/{name}" for name in ("key", "pid", "log", "seed")]
        self._daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files)
        self.until((self.folder / "munge.socket").exists, 10, "munged listens")

    def _daemon(self, name: str, *words: str) -> None:
        command = shutil.which(name) or f"/usr/sbin/{name}"
        with (self.folder / f"{name}.out").open("wb") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "start_new_session": True}
            self.daemons.append(subprocess.Popen([command, *words], env=self.env, cwd=self.folder, **streams))

    def stop(self) -> None:
        """End the jobs, then the daemons, last started first, and remove the folder."""
        for words in (("--full", "--signal=KILL"), ()):  # without KillWait, then those that never started
            self.run("scancel", "--partition=all", *words, check=False)
        with contextlib.suppress(AssertionError):  # the controller may have died
            self.until(lambda: not self.run("squeue", "--noheader", check=False), 20, "all jobs are over")
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: str | Path, check: bool = True, **env: str) -> str:
        """Run a command of Slurm and return its output."""
        done = subprocess.run([*map(str, words)], env={**self.env, **env}, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise AssertionError(f"{words[0]} exited with {done.returncode}: {done.stderr}\n{self.output_of_daemons()}")
        return done.stdout.strip()

    def submit(self, *words: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Submit a batch job and return its id."""
        return self.run("sbatch", "--parsable", *words, **(env or {}))

    def job(self, job: str) -> dict[str, str]:
        """Return the controller's record of a job: {"JobState": "FAILED", "ExitCode": "3:0", …}."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(\w[\w:/]*)=(\S*)", shown))

    def ended(self, job: str, within: float = 60) -> dict[str, str]:
        """Wait until a job is over, its epilog included."""
        over = re.compile("COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY")
        self.until(lambda: bool(over.fullmatch(self.job(job)["JobState"])), within, f"job {job} is over")
        return self.job(job)

    def node(self) -> str:
        """Return the state of the node: idle, allocated, drained …"""
        return self.run("sinfo", "--noheader", "--format=%T", check=False)

    def epilog(self, text: str) -> None:
        """Replace the epilog by this shell text."""
        new = self.folder / "epilog.new"
        new.write_text(f"#!/bin/bash\n{text}\n")
        new.chmod(0o755)
        new.rename(self.folder / "epilog")

    def until(self, true: Callable[[], bool], seconds: float, description: str) -> None:
        """Wait until something is true."""
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                raise AssertionError(f"waited for: {description}\n{self.output_of_daemons()}")
            time.sleep(0.1)

    def output_of_daemons(self) -> str:
        """Return the end of each daemon's output."""
        return "\n".join(
            f"== {out.name}\n{out.read_text(errors='replace')[-3000:]}" for out in self.folder.glob("*.out")
        )


def _free_ports(count: int) -> list[int]:
    taken = [socket.socket() for _ in range(count)]
    for one in taken:
        one.bind(("127.0.0.1", 0))
    ports: list[int] = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports
