"""Runs one scenario on real processes and returns its logs.

In: a `Plan` (a scenario, how it is launched, its parameters).
Out: inside the context, a `Ran` with the folder of raw logs as a launcher left them, for example

    logs/agent.err  logs/agent.out  logs/torchelastic/none_x1/attempt_0/2/stderr.log  (torchrun, a log folder)
    logs/rank0.out  logs/rank0.err  logs/start.log                                    (one process per rank)

All processes, cgroups, namespaces and mounts end with the context.
"""

from __future__ import annotations

import contextlib
import json
import os
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

from postmortem.replay import kernel, script
from postmortem.replay.isolate import CannotIsolate, Place, free_port, is_free, place, tagged
from postmortem.replay.plan import Plan
from postmortem.system import core_files

MASTER_PORT = 29500
# torch maps some GiB that it never touches; a job without a GPU that wants more than this is running away
ADDRESS_SPACE = 48 << 30
CORE = 8 << 30  # of a core file at most
SIGNALS = {
    "kill-rank": signal.SIGKILL,
    "stop-rank": signal.SIGSTOP,
    "term-launcher": signal.SIGTERM,
    "interrupt-launcher": signal.SIGINT,
    "hang-up-launcher": signal.SIGHUP,
}
Progress = Callable[[float, int], None]  # seconds since the start, step of the rank at fault


@dataclass(frozen=True, slots=True)
class Process:
    """A process to start: an agent or, without a launcher, a rank."""

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
    exits: dict[str, int] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)  # rank -> pid, the first process that claimed the rank
    seen: set[int] = field(default_factory=set)  # every pid of the job
    kernel: list[str] = field(default_factory=list)  # raw kernel records since the start, of this job's processes
    ended_from_outside: str = ""


Starts = Callable[[Plan, Place, int], list[Process]]  # the processes of a plan, with the port of the store


def processes(plan: Plan, made: Place, port: int) -> list[Process]:
    """Return the processes of this plan, in the order in which they start."""
    if plan.launcher == "spawn":
        env = _environment(plan, made, 0) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [sys.executable, *_job_argv(plan), "--spawn", str(plan.nproc)]
        console = made.logs / "console.log"
        return [Process("parent", words, env | {"OMP_NUM_THREADS": "1"}, console, console)]
    return _plain(plan, made, port) if plan.launcher in ("plain", "two-hosts") else _torchrun(plan, made, port)


def _environment(plan: Plan, made: Place, host: int) -> dict[str, str]:
    """Return a small, known environment: the user's shell must not decide the contents of the logs."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    env |= {"LANG": "C.UTF-8", "TZ": plan.zone(host), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"REPLAY_TAG": made.tag, "REPLAY_CONTROL": str(made.folder / "control"), "TMPDIR": str(made.folder / "tmp")}
    if "gpu" not in plan.scenario.needs and plan.arguments.get("backend") != "nccl":
        env["REPLAY_DEVICE"] = "cpu"
    return env | dict(plan.env)


def _with_clock(plan: Plan, host: int, argv: list[str]) -> list[str]:
    """A kernel has one wall clock for all its namespaces, so a host's own is made in user space."""
    skew = plan.skews[host] if host < len(plan.skews) else 0.0
    return ["faketime", "-f", f"{skew:+g}s", *argv] if skew else argv


def _job_argv(plan: Plan) -> list[str]:
    return [plan.script, "--config", "config.json", *(["--record"] if plan.record else [])]


def _logs(plan: Plan, made: Place, host: int) -> Path:
    """Make and return the log folder of a host."""
    logs = made.logs / plan.hosts[host] if plan.two_hosts else made.logs
    logs.mkdir(exist_ok=True)
    return logs


def _torchrun(plan: Plan, made: Place, port: int) -> list[Process]:
    exe = Path(sys.executable).with_name("torchrun")
    launch = [str(exe)] if exe.exists() else [sys.executable, "-m", "torch.distributed.run"]
    hosts = 2 if plan.launcher == "two-hosts-torchrun" else 1
    found = []
    for host in range(hosts):
        logs = _logs(plan, made, host) if hosts > 1 else made.logs
        words = [f"--nproc-per-node={plan.nproc // hosts}", f"--max-restarts={plan.restarts}"]
        words += [f"--nnodes={hosts + plan.waits_for_node}"]
        if plan.rendezvous == "c10d" or plan.waits_for_node:
            address = made.address(0) if hosts > 1 else "localhost"
            words += ["--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}", "--rdzv-id=job17"]
            words += ["--rdzv-conf=join_timeout=8,timeout=8"] if plan.waits_for_node else []
        else:
            words += [f"--node-rank={host}", f"--master-addr={made.address(0)}", f"--master-port={port}"]
        if plan.save != "console":
            words += [f"--log-dir={logs / 'torchelastic'}", "--redirects=3"]
            words += ["--tee=3"] if plan.save == "tree" else []
        out, err = (logs / "console.log",) * 2 if plan.save == "console" else (logs / "agent.out", logs / "agent.err")
        argv = _with_clock(plan, host, [*launch, *words, *_job_argv(plan)])
        found.append(Process(f"agent{host}", argv, _environment(plan, made, host), out, err, host))
    return found


def _plain(plan: Plan, made: Place, port: int) -> list[Process]:
    found = []
    for rank in range(plan.nproc):
        host = plan.host_of(rank)
        env = plan.rank_env(rank, made.address(0), port)
        if env is None:
            continue
        logs = _logs(plan, made, host)
        out, err = (logs / plan.save.format(rank=rank, stream=stream) for stream in ("out", "err"))
        argv = _with_clock(plan, host, [sys.executable, "-u", *_job_argv(plan)])
        delay = plan.scenario.start.delay_s if rank == plan.rank else 0.0
        found.append(Process(f"rank{rank}", argv, _environment(plan, made, host) | env, out, err, host, delay))
    return found


@contextlib.contextmanager
def run(plan: Plan, progress: Progress | None = None, started: Starts = processes) -> Iterator[Ran]:
    """Run the plan to its end; the folder exists as long as the context."""
    with place(replace(plan.wants, hosts=plan.hosts)) as made, contextlib.ExitStack() as stack:
        (made.job / plan.script).write_text(script.write(plan, plan.script))
        (made.job / "config.json").write_text(json.dumps(dict(plan.arguments)))
        port = MASTER_PORT if plan.two_hosts else _port(plan)
        if plan.scenario.start.port_taken:  # by another job of the same host
            taken = stack.enter_context(contextlib.closing(socket.socket()))
            taken.bind(("", port))
            taken.listen()
        ran = Ran(plan, made)
        before, began = kernel.read() or [], time.time() - 1
        _watch(ran, started(plan, made, port), progress)
        time.sleep(0.3)  # the kernel log is written a moment after the process is gone
        if plan.kernel_log:
            ran.kernel = kernel.of_processes(kernel.since(before, kernel.read() or []), ran.seen)
        elif made.cgroup:
            # save the cgroup's own count of kills, all there is where the kernel's log cannot be read
            for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
                if (made.cgroup / name).exists():
                    (made.logs / name).write_text((made.cgroup / name).read_text())
        if plan.core:
            _save_cores(ran, began)
        yield ran


def _save_cores(ran: Ran, since: float) -> None:
    """Save what the cores of the ranks state, as `postmortem collect` does; of one that systemd has, its record."""
    for pid in sorted(ran.pids.values()):
        if path := core_files.find(pid, str(ran.place.job), since):
            text = core_files.head(path)
        elif shutil.which("coredumpctl"):
            done = subprocess.run(["coredumpctl", "info", "--no-pager", str(pid)], capture_output=True, text=True)
            text = done.stdout
        else:
            text = ""
        if text:
            (ran.place.logs / f"core.{pid}.txt").write_text(text)
    if not any(ran.place.logs.glob("core.*.txt")):
        raise CannotIsolate("no core of a rank is found: see /proc/sys/kernel/core_pattern")


def _port(plan: Plan) -> int:
    """Return the port that was asked for, if it is free; otherwise another one."""
    wanted = int(plan.arguments.get("port", 0))
    return wanted if wanted and is_free(wanted) else free_port()


def _start(process: Process, made: Place, core: bool) -> subprocess.Popen[bytes]:
    """Start it in its own session, in the place's namespaces and cgroup."""
    group, on_cpu = made.cgroup, process.env.get("REPLAY_DEVICE") == "cpu"

    def enter() -> None:
        if core:
            hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
            most = CORE if hard == resource.RLIM_INFINITY else min(hard, CORE)
            resource.setrlimit(resource.RLIMIT_CORE, (most, hard))
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))  # with all its descendants
        if on_cpu:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    with process.stdout.open("ab") as out, process.stderr.open("ab") as err:
        return subprocess.Popen(
            made.argv(process.argv, process.host), cwd=made.job, env=process.env, stdin=subprocess.DEVNULL,
            stdout=out, stderr=err, start_new_session=True, preexec_fn=enter,
        )  # fmt: skip


def _watch(ran: Ran, waiting: list[Process], progress: Progress | None) -> None:
    """Start the processes when they are due, act on and look at the job when the fault is there,
    and wait until all have ended or patience has."""
    scenario, running = ran.plan.scenario, dict[str, subprocess.Popen[bytes]]()
    began, acted, looked_at = time.monotonic(), not scenario.act, 0.0
    while waiting or running:
        elapsed = time.monotonic() - began
        for process in [p for p in waiting if p.delay_s <= elapsed]:
            waiting.remove(process)
            running[process.name] = _start(process, ran.place, ran.plan.core)
            _log_start(ran, f"started {process.name} pid {running[process.name].pid}")
        for name, popen in list(running.items()):
            if popen.poll() is not None:
                ran.exits[name] = running.pop(name).returncode
                _log_start(ran, f"{name} pid {popen.pid} ended: {_status(popen.returncode)}")
        step = _observe(ran)
        if progress:
            progress(elapsed, step)
        if not acted and step >= ran.plan.step:
            acted = True
            victim = ran.pids[ran.plan.rank] if scenario.act.endswith("-rank") else next(iter(running.values())).pid
            os.kill(victim, SIGNALS[scenario.act])
        looked_at = looked_at or (elapsed if scenario.look and step >= ran.plan.step else 0.0)
        if 0 < looked_at < elapsed - 3.0:
            looked_at = float("inf")
            _look(ran.place, ran.pids)
        if elapsed > scenario.patience_s and not ran.ended_from_outside:
            ran.ended_from_outside = f"ended from outside after {scenario.patience_s:.0f} s"
            for popen in running.values():
                popen.terminate()
        if elapsed > scenario.patience_s + 12:
            return  # the rest ends with the place
        time.sleep(0.05)


def _look(made: Place, pids: dict[int, int]) -> None:
    """Write the output of `ps` and of `py-spy dump` of each rank, as an engineer on call would take them, where
    they are installed."""
    if not shutil.which("ps"):
        return
    alive = ",".join(map(str, tagged(made.tag)))
    done = subprocess.run(
        ["ps", "-o", "pid,ppid,stat,wchan:24,pcpu,rss,etime,args", "-p", alive], capture_output=True, text=True
    )
    (made.logs / "ps.txt").write_text(done.stdout)
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    for rank, pid in sorted(pids.items()) if spy else ():
        if Path(f"/proc/{pid}").exists():
            done = subprocess.run([str(spy), "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=30)
            if done.stdout:
                (made.logs / "pyspy").mkdir(exist_ok=True)
                (made.logs / "pyspy" / f"rank{rank}_pid{pid}.txt").write_text(done.stdout)


def _observe(ran: Ran) -> int:
    """Read the notes of the ranks; return the step the rank at fault has reached."""
    step = -1
    ran.seen.update(tagged(ran.place.tag))
    for path in (ran.place.folder / "control").iterdir():
        if (words := path.read_text().split()) and len(words) == 2:
            ran.pids.setdefault(int(words[0]), int(path.name))
            if int(words[0]) == ran.plan.rank:
                step = max(step, int(words[1]))
    return step


def _log_start(ran: Ran, text: str) -> None:
    """Log as a start script does that starts one process for each rank."""
    if ran.plan.launcher == "plain" and ran.plan.start_log:
        with (ran.place.logs / "start.log").open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} start.sh: {text}\n")


def _status(code: int) -> str:
    """Return an exit status as a shell shows it."""
    if code >= 0:
        return f"exit status {code}"
    return f"exit status {128 - code} ({signal.Signals(-code).name.removeprefix('SIG')})"


def save(ran: Ran, logs: Path, forms: tuple[str, ...]) -> None:
    """Copy the logs under the names they have, and write the kernel log in these forms."""
    made, plan = ran.place, ran.plan
    found = [(path, made.logs) for path in sorted(made.logs.rglob("*"))]
    found += [(path, made.job) for path in sorted((made.job / "flight_recorder").glob("*"))]
    for path, base in found:
        if path.is_file():
            target = logs / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    folder = (logs / plan.hosts[plan.host] if plan.two_hosts else logs) / "kernel"
    for form in forms if ran.kernel else ():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{form}.txt").write_text(kernel.render(ran.kernel, form, plan.zone(plan.host)))
