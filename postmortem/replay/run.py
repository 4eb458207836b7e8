"""Runs one scenario on real processes and keeps what it wrote.

In: a `Plan` (a scenario, how it is launched, its parameters).
Out: inside the context, a `Ran` with the folder of raw logs as a launcher left them, for example

    logs/agent.err  logs/agent.out  logs/torchelastic/none_x1/attempt_0/2/stderr.log  (torchrun, a log folder)
    logs/rank0.out  logs/rank0.err  logs/start.log                                    (one process a rank)

Nothing here reads a verdict. All processes, cgroups, namespaces and mounts end with the context.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from postmortem.replay import kernel, live
from postmortem.replay.catalogue import JOBS
from postmortem.replay.isolate import Place, enter_cgroup, free_port, is_free, place, tagged
from postmortem.replay.plan import Plan

MASTER_PORT = 29500
# torch maps some GiB that it never touches; a job without a GPU that wants more than this is running away
ADDRESS_SPACE = 48 << 30
Progress = Callable[[float, int], None]  # seconds since the start, step of the rank at fault


@dataclass(frozen=True, slots=True)
class Process:
    """One thing to start: an agent or, without a launcher, a rank."""

    name: str
    argv: list[str]
    env: dict[str, str]
    stdout: Path
    stderr: Path  # the same file where a console holds both
    host: int = 0
    delay_s: float = 0.0


@dataclass(slots=True)
class Ran:
    """A finished run, while its folder is still there."""

    plan: Plan
    place: Place
    started: float
    exits: dict[str, int] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)  # rank -> pid, the first process that claimed the rank
    seen: set[int] = field(default_factory=set)  # every pid of the job
    kernel: list[str] = field(default_factory=list)  # raw kernel records since the start
    ended_from_outside: str = ""


Starts = Callable[[Plan, Place, int], list[Process]]  # what a plan starts, with the port of the store


# ── what is started ─────────────────────────────────────────────────────────────────────────────────────────


def _environment(plan: Plan, made: Place, host: int) -> dict[str, str]:
    """A small, known environment: what the user's shell holds must not decide what the logs say."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    zone = plan.zones[min(host, len(plan.zones) - 1)]
    ours = {"REPLAY_TAG": made.tag, "REPLAY_CONTROL": str(made.control), "TMPDIR": str(made.temporary)}
    if "gpu" not in plan.scenario.needs and plan.arguments.get("backend") != "nccl":
        ours["REPLAY_DEVICE"] = "cpu"
    return keep | {"LANG": "C.UTF-8", "TZ": zone, "PYTHONDONTWRITEBYTECODE": "1"} | ours | dict(plan.env)


def _on_its_clock(plan: Plan, host: int, argv: list[str]) -> list[str]:
    """A kernel has one wall clock for all its namespaces, so a host's own is made in user space."""
    skew = plan.skews[host] if host < len(plan.skews) else 0.0
    return ["faketime", "-f", f"{skew:+g}s", *argv] if skew else argv


def _job_argv(plan: Plan) -> list[str]:
    return [plan.script, "--config", "config.json", *(["--record"] if plan.record else [])]


def _torchrun(plan: Plan, made: Place) -> list[Process]:
    exe = Path(sys.executable).with_name("torchrun")
    launch = [str(exe)] if exe.exists() else [sys.executable, "-m", "torch.distributed.run"]
    two = plan.launcher == "two-hosts-torchrun"
    nodes = 2 if two or plan.scenario.id == "agent-node-missing" else 1
    port = MASTER_PORT if two else free_port()
    processes = []
    for host in range(2 if two else 1):
        logs = made.logs / plan.hosts[host] if two else made.logs
        logs.mkdir(exist_ok=True)
        words = [
            *launch,
            f"--nproc-per-node={plan.nproc // (2 if two else 1)}",
            f"--max-restarts={plan.restarts}",
            f"--nnodes={nodes}",
        ]
        if plan.rendezvous == "c10d" or nodes > 1 and not two:
            conf = ["--rdzv-conf=join_timeout=8,timeout=8"] if nodes > 1 and not two else []
            words += [
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={made.address(0) if two else 'localhost'}:{port}",
                "--rdzv-id=job17",
                *conf,
            ]
        else:
            words += [f"--node-rank={host}", f"--master-addr={made.address(0)}", f"--master-port={port}"]
        if plan.save != "console":
            words += [
                f"--log-dir={logs / 'torchelastic'}",
                "--redirects=3",
                *(["--tee=3"] if plan.save == "tree" else []),
            ]
        out, err = (logs / "console.log",) * 2 if plan.save == "console" else (logs / "agent.out", logs / "agent.err")
        argv = _on_its_clock(plan, host, [*words, *_job_argv(plan)])
        processes.append(Process(f"agent{host}", argv, _environment(plan, made, host), out, err, host))
    return processes


def _spawn(plan: Plan, made: Place) -> list[Process]:
    env = _environment(plan, made, 0) | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    argv = [sys.executable, *_job_argv(plan), "--spawn", str(plan.nproc)]
    return [Process("parent", argv, env, made.logs / "console.log", made.logs / "console.log")]


def _plain(plan: Plan, made: Place, port: int) -> list[Process]:
    start, processes = plan.scenario.start, []
    for rank in range(plan.nproc):
        host = rank * len(plan.hosts) // plan.nproc if len(plan.hosts) > 1 else 0
        env = _environment(plan, made, host) | {
            "MASTER_ADDR": made.address(0),
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        env |= {"RANK": str(rank), "WORLD_SIZE": str(plan.nproc), "LOCAL_RANK": str(rank), **start.all_env}
        odd = rank == plan.rank
        if odd and start.absent:
            continue
        for name, value in start.env.items() if odd else ():
            fields = {
                "world_size_plus_1": plan.nproc + 1,
                "other_rank": (rank - 1) % plan.nproc,
                "closed_port": port + 1,
            }
            env[name] = value.format(**fields)
        for name in start.unset if odd else ():
            del env[name]
        logs = made.logs / plan.hosts[host] if len(plan.hosts) > 1 else made.logs
        logs.mkdir(exist_ok=True)
        out, err = (logs / plan.save.format(rank=rank, stream=stream) for stream in ("out", "err"))
        argv = _on_its_clock(plan, host, [sys.executable, "-u", *_job_argv(plan)])
        processes.append(Process(f"rank{rank}", argv, env, out, err, host, start.delay_s if odd else 0.0))
    return processes


def processes(plan: Plan, made: Place, port: int) -> list[Process]:
    """What this plan starts, in order."""
    if plan.launcher == "spawn":
        return _spawn(plan, made)
    return _plain(plan, made, port) if plan.launcher in ("plain", "two-hosts") else _torchrun(plan, made)


# ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def run(plan: Plan, progress: Progress | None = None, started: Starts | None = None) -> Iterator[Ran]:
    """Run the plan to its end; the folder lives as long as the context."""
    wants = replace(plan.wants or plan.scenario.wants, hosts=plan.hosts)
    if wants.memory_mb and plan.memory_mb:
        wants = replace(wants, memory_mb=plan.memory_mb)
    with place(wants) as made, contextlib.ExitStack() as stack:
        shutil.copy(plan.scenario.path, made.job / plan.script)
        shutil.copy(JOBS / "trainer.py", made.job)
        (made.job / "flight_recorder").mkdir()
        (made.job / "config.json").write_text(json.dumps(dict(plan.arguments)))
        port = MASTER_PORT if len(plan.hosts) > 1 else _port(plan)
        if plan.scenario.start.port_taken:
            _occupy(stack, port)
        ran = Ran(plan, made, time.time())
        before = kernel.read()
        _watch(ran, (started or processes)(plan, made, port), progress)
        time.sleep(0.3)  # the kernel log is written a moment after the process is gone
        ran.kernel = kernel.since(before, kernel.read()) if plan.kernel_log else []
        if made.cgroup and not plan.kernel_log:
            _save_counters(made.cgroup, made.logs)
        yield ran


def _save_counters(cgroup: Path, logs: Path) -> None:
    """What is left to look at where nobody may read the kernel's log: the cgroup's own count of kills."""
    for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
        if (cgroup / name).exists():
            (logs / name).write_text((cgroup / name).read_text())


def _port(plan: Plan) -> int:
    """The port that was asked for, where nobody has it yet; else a free one."""
    wanted = int(plan.arguments.get("port", 0))
    return wanted if wanted and is_free(wanted) else free_port()


def _occupy(stack: contextlib.ExitStack, port: int) -> None:
    """Another job of the same host listens on our master port."""
    taken = stack.enter_context(contextlib.closing(socket.socket()))
    taken.bind(("", port))
    taken.listen()


def _start(process: Process, made: Place) -> subprocess.Popen[bytes]:
    """Start it in its own session, in the place's namespaces and cgroup."""
    group, on_cpu = made.cgroup, process.env.get("REPLAY_DEVICE") == "cpu"

    def enter() -> None:
        if group:
            enter_cgroup(group)
        if on_cpu:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    with process.stdout.open("ab") as out, process.stderr.open("ab") as err:
        return subprocess.Popen(
            made.argv(process.argv, process.host), cwd=made.job, env=process.env, stdin=subprocess.DEVNULL,
            stdout=out, stderr=err, start_new_session=True, preexec_fn=enter,
        )  # fmt: skip


def _watch(ran: Ran, waiting: list[Process], progress: Progress | None) -> None:
    """Start what is due, act and look when the fault is there,
    and wait until all have ended or patience has."""
    began, running, acted, looked_at = time.monotonic(), dict[str, subprocess.Popen[bytes]](), False, 0.0
    start_log = Journal(ran.place.logs / "start.log" if ran.plan.launcher == "plain" and ran.plan.start_log else None)
    while waiting or running:
        elapsed = time.monotonic() - began
        for process in [p for p in waiting if p.delay_s <= elapsed]:
            waiting.remove(process)
            running[process.name] = _start(process, ran.place)
            start_log.line(f"started {process.name} pid {running[process.name].pid}")
        for name, popen in list(running.items()):
            if popen.poll() is not None:
                ran.exits[name] = running.pop(name).returncode
                start_log.line(f"{name} pid {popen.pid} ended: {_words(popen.returncode)}")
        step = _observe(ran)
        if progress:
            progress(elapsed, step)
        if not acted and ran.plan.scenario.act and step >= ran.plan.step:
            acted = True
            _act(ran, list(running.values()))
        looked_at = looked_at or (elapsed if ran.plan.scenario.look and step >= ran.plan.step else 0.0)
        if 0 < looked_at < elapsed - 3.0:
            looked_at = float("inf")
            live.look(ran.place, ran.pids)
        if elapsed > ran.plan.scenario.patience_s and not ran.ended_from_outside:
            ran.ended_from_outside = f"ended from outside after {ran.plan.scenario.patience_s:.0f} s"
            for popen in running.values():
                popen.terminate()
        if elapsed > ran.plan.scenario.patience_s + 12:
            return  # what is left ends with the place
        time.sleep(0.05)


def _observe(ran: Ran) -> int:
    """Read what the ranks noted; returns the step the rank at fault has reached."""
    step = -1
    ran.seen.update(tagged(ran.place.tag))
    for path in ran.place.control.iterdir():
        if (words := path.read_text().split()) and len(words) == 2:
            ran.pids.setdefault(int(words[0]), int(path.name))
            if int(words[0]) == ran.plan.rank:
                step = max(step, int(words[1]))
    return step


def _act(ran: Ran, launchers: list[subprocess.Popen[bytes]]) -> None:
    """What somebody outside does to the job."""
    match ran.plan.scenario.act:
        case "kill-rank":
            os.kill(ran.pids[ran.plan.rank], signal.SIGKILL)
        case "stop-rank":
            os.kill(ran.pids[ran.plan.rank], signal.SIGSTOP)
        case "term-launcher":
            launchers[0].terminate()
        case "interrupt-launcher":
            launchers[0].send_signal(signal.SIGINT)
        case "hang-up-launcher":
            launchers[0].send_signal(signal.SIGHUP)
        case "kill-launcher":
            launchers[ran.plan.host].kill()


class Journal:
    """The log of the start script that starts one process for each rank; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def line(self, text: str) -> None:
        if self.path:
            with self.path.open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} start.sh: {text}\n")


def _words(code: int) -> str:
    """An exit status as a shell shows it."""
    return (
        f"exit status {code}"
        if code >= 0
        else f"exit status {128 - code} ({re.sub('^SIG', '', signal.Signals(-code).name)})"
    )
