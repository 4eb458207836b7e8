"""The needs of a scenario that this machine lacks, and the backend with which the ranks communicate.

In: a scenario and the user's wishes. Out: sentences about missing needs, each with the way to it (none: it can
run), and a `Transport` with a sentence on the loss where gloo on the CPU replaces NCCL.
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
from postmortem.system import core_files

LOST = "NCCL's watchdog, flight recorder and messages are not exercised"
NO_GPU = "it needs an NVIDIA GPU and a torch built for it: torch.cuda.device_count() is 0 here"
INSTALL = "torch is not installed: pip install torch"


@dataclass(frozen=True, slots=True)
class Transport:
    """The backend, the number of ranks, and a sentence about both."""

    backend: str
    nproc: int
    why: str


def missing(row: Scenario) -> list[str]:
    """Return the needs of the scenario that this machine lacks, as sentences."""
    if importlib.util.find_spec("torch") is None:
        return [INSTALL]
    return [text for need in row.needs if (text := lacks(need))]


def lacks(need: str) -> str:
    """Return why this machine does not have it; empty if it has."""
    match need:
        case "root" if os.geteuid():
            return "it needs root, for cgroups, namespaces or mounts: run it with sudo"
        case "cgroup":
            try:
                writable = os.access(memory_hierarchy(), os.W_OK)
            except (CannotIsolate, OSError):
                return "it needs a memory cgroup, and no hierarchy with the memory controller is mounted"
            return "" if writable else "it needs a memory cgroup, and the hierarchy is not writable here"
        case "netns":
            return _no_namespaces()
        case "kernel-log" if kernel.read() is None:
            return "it needs the kernel's log, and dmesg cannot be read here: run it as root, or allow it"
        case "core" if reason := core_files.lacking():
            return f"it needs a core file: {reason}"
        case "gpu" if not gpus():
            return NO_GPU
    return ""


@cache
def _no_namespaces() -> str:
    absent = [name for name in ("ip", "unshare") if not shutil.which(name)]
    if absent:
        return f"it needs two network namespaces, and {' and '.join(absent)} (iproute2, util-linux) is not installed"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        return "it needs two network namespaces, and none can be made here (needs root, or the container forbids it)"
    return ""


@cache
def gpus() -> int:
    """Return the number of GPUs torch sees; without a driver, 0 without the import of torch."""
    if not (Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi")):
        return 0
    words = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


def check_backend(row: Scenario, asked: str) -> None:
    """Raise UsageError if the scenario cannot run with that backend on any machine."""
    if row.backend != "gloo" and asked not in ("auto", row.backend):
        raise UsageError(f"{row.id} is about backend {row.backend}", "omit --backend")
    if row.gloo_only and asked == "nccl":
        raise UsageError(f"{row.id} is a failure of gloo's own and cannot run with nccl", "omit --backend")


def transport(row: Scenario, asked: str, nproc: int) -> Transport:
    """Return the backend and the number of ranks: as asked, else NCCL if every rank has a GPU, else gloo."""
    ranks = nproc or row.nproc
    seen = {0: "no GPU is visible", 1: "one GPU is visible"}.get(gpus(), f"{gpus()} GPUs are visible")
    if row.backend != "gloo":
        return Transport(row.backend, ranks, f"backend {row.backend}, which this scenario is about")
    if asked == "gloo":
        return Transport("gloo", ranks, f"backend gloo, as requested; {LOST}")
    if asked == "nccl":
        shared = f"{seen} for {ranks} ranks, so the ranks share them: each reports a host of its own to NCCL"
        how = f"on {ranks} GPUs, as requested" if gpus() >= ranks else f"as requested; {shared}, over loopback sockets"
        return Transport("nccl", ranks, f"backend nccl, {how}")
    if row.gloo_only:
        return Transport("gloo", ranks, "backend gloo on the CPU: the failure is gloo's own")
    fitting = nproc or min(row.nproc, max(2, gpus()))
    if gpus() >= max(2, fitting) and fitting > int(row.arguments.get("rank", 1)):
        return Transport("nccl", fitting, f"backend nccl on {fitting} GPUs")
    if "gpu" in row.needs:
        return Transport("gloo", ranks, f"{ranks} ranks compute on one GPU and communicate with gloo; {LOST}")
    return Transport("gloo", ranks, f"backend gloo on the CPU, because {seen}; {LOST}")
