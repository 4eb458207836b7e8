"""What this machine has of what a scenario needs, and which backend the ranks talk by.

In: a scenario and the user's wishes.
Out: sentences that say what is missing, each with the way to it (none: it can run), and a
`Transport` that says what is lost where gloo on the CPU stands in for NCCL.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postmortem.errors import UsageError
from postmortem.replay import kernel
from postmortem.replay.catalogue import Scenario
from postmortem.replay.isolate import CannotIsolate, memory_hierarchy

LOST = "NCCL's watchdog, flight recorder and messages are not exercised"
NO_GPU = "it needs an NVIDIA GPU and a torch built for it: torch.cuda.device_count() is 0 here"
INSTALL = "torch is not installed: pip install torch"


@dataclass(frozen=True, slots=True)
class Transport:
    """How the ranks talk, how many there are, and a sentence about both."""

    backend: str
    nproc: int
    why: str


def missing(row: Scenario) -> list[str]:
    """What the scenario needs and this machine lacks, in words."""
    if importlib.util.find_spec("torch") is None:
        return [INSTALL]
    found = {need: _lacks(need) for need in row.needs}
    return [text for text in found.values() if text]


def _lacks(need: str) -> str:
    match need:
        case "root":
            return "" if os.geteuid() == 0 else "it needs root, for cgroups, namespaces or mounts: run it with sudo"
        case "cgroup":
            return _no_cgroup()
        case "netns":
            return _no_namespaces()
        case "kernel-log":
            return (
                ""
                if kernel.readable()
                else "it needs the kernel's log, and dmesg cannot be read here: run it as root, or allow it"
            )
        case "gpu":
            return "" if gpus() else NO_GPU
    return f"it needs {need}"


def _no_cgroup() -> str:
    try:
        writable = os.access(memory_hierarchy(), os.W_OK)
    except (CannotIsolate, OSError):
        return "it needs a memory cgroup, and no hierarchy with the memory controller is mounted"
    return "" if writable else "it needs a memory cgroup, and the hierarchy is not writable here"


@cache
def _no_namespaces() -> str:
    absent = [name for name in ("ip", "unshare") if not shutil.which(name)]
    if absent:
        return f"it needs two network namespaces, and {' and '.join(absent)} (iproute2, util-linux) is not installed"
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    return (
        ""
        if made
        else ("it needs two network namespaces, and none can be made here (needs root, or the container forbids it)")
    )


@cache
def gpus() -> int:
    """How many GPUs torch sees; asked only where a driver is there,
    because the question costs an import of torch."""
    if not (Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi")):
        return 0
    words = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


def check_backend(row: Scenario, asked: str) -> None:
    """UsageError where the scenario cannot be had with that backend on any machine."""
    if row.backend != "gloo" and asked not in ("auto", row.backend):
        raise UsageError(f"{row.id} is about backend {row.backend}", "leave out --backend")
    if row.gloo_only and asked == "nccl":
        raise UsageError(f"{row.id} is a failure of gloo's own and cannot run with nccl", "leave out --backend")


def transport(row: Scenario, asked: str, nproc: int) -> Transport:
    """The backend and the number of ranks:
    as asked, else NCCL where every rank has a GPU of its own, else gloo."""
    if row.backend != "gloo":
        return Transport(row.backend, nproc or row.nproc, f"backend {row.backend}, which this scenario is about")
    if asked == "gloo":
        return Transport("gloo", nproc or row.nproc, f"backend gloo, as asked; {LOST}")
    if asked == "nccl":
        return _nccl(row, nproc or row.nproc)
    if row.gloo_only:
        return Transport("gloo", nproc or row.nproc, "backend gloo on the CPU: the failure is gloo's own")
    ranks = nproc or min(row.nproc, max(2, gpus()))
    if gpus() >= 2 and gpus() >= ranks and ranks > int(row.arguments.get("rank", 1)):
        return Transport("nccl", ranks, f"backend nccl on {ranks} GPUs")
    ranks = nproc or row.nproc
    if "gpu" in row.needs:
        return Transport("gloo", ranks, f"{ranks} ranks compute on one GPU and communicate with gloo; {LOST}")
    return Transport("gloo", ranks, f"backend gloo on the CPU, because {_seen(gpus())}; {LOST}")


def _nccl(row: Scenario, nproc: int) -> Transport:
    if gpus() < nproc:
        how = (
            "the ranks share what is there: each says that it is a host of its own, and NCCL talks over "
            "loopback sockets"
        )
        return Transport("nccl", nproc, f"backend nccl, as asked; {_seen(gpus())} for {nproc} ranks, so {how}")
    return Transport("nccl", nproc, f"backend nccl on {nproc} GPUs, as asked")


def _seen(count: int) -> str:
    return {0: "no GPU is visible", 1: "one GPU is visible"}.get(count, f"{count} GPUs are visible")
