"""Shared by the tests of recipes/: a small real job, and the containers of a manifest run as processes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from conftest import ROOT

RECIPES = ROOT / "recipes"
KUBERNETES = RECIPES / "kubernetes"
TRAIN = """\
import os
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    if step == 2 and str(rank) == os.environ.get("BAD_RANK"):
        raise ValueError(f"bad sample in shard {rank}")
    if step == 2 and str(rank) == os.environ.get("LATE_RANK"):
        time.sleep(600)
    dist.all_reduce(torch.ones(1))
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
dist.destroy_process_group()
"""


def environment(**more: str | Path) -> dict[str, str]:
    """Return a bare environment in which `postmortem`, `torchrun` and `python` are this suite's."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "LANG") if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with socket.socket() as probe:  # torchrun's own default is one port for all jobs of a machine
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    alone = {"PET_MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": path, **alone, **kept, **{name: str(value) for name, value in more.items()}}


def manifests() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every object of recipes/kubernetes."""
    for path in sorted(KUBERNETES.glob("*.yaml")):
        yield from ((path, document) for document in yaml.safe_load_all(path.read_text()))


def pod(name: str) -> dict[str, Any]:
    """Return the pod that the job of this manifest makes."""
    (job,) = (document for path, document in manifests() if path.name == name and document["kind"] == "Job")
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


@dataclass(frozen=True)
class Container:
    """A container of a manifest as a process of this machine: its volumes are folders under `root`."""

    file: str
    name: str
    root: Path
    index: int = 0  # of the pod within its job

    def start(self, **more: str) -> subprocess.Popen[str]:
        """Start its command as the kubelet would; `more` is environment that the manifest does not have."""
        (own,) = (c for c in containers(pod(self.file)) if c["name"] == self.name)
        values = {"JOB_COMPLETION_INDEX": str(self.index)}  # which the Job controller sets
        for entry in own.get("env", []):
            field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            given = entry["value"] if not field else {"metadata.name": f"train-1-{self.index}-x7k2p"}[field]
            values[entry["name"]] = expanded(given, values)
        words = [self._here(expanded(w, values), own) for w in (*own["command"], *own.get("args", []))]
        local = {name: self._here(value, own) for name, value in values.items()}
        self.message.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            words,
            cwd=self.root,
            env=environment(**{**local, "MESSAGE": str(self.message), **more}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def message(self) -> Path:
        """The file in place of /dev/termination-log."""
        return self.root / f"{self.name}-{self.index}.message"

    def _here(self, word: str, own: Mapping[str, Any]) -> str:
        """Return the word with paths and master of this machine."""
        folders = {
            mount["mountPath"]: KUBERNETES if mount["name"] == "recipe" else self.root / mount["name"]
            for mount in own["volumeMounts"]
        }
        paths = "|".join(map(re.escape, folders))
        word = re.sub(rf"(?<![\w./])({paths})(?![\w-])", lambda found: str(folders[found[1]]), word)
        return word.replace("train-1-0.train", "127.0.0.1")


def expanded(word: str, values: Mapping[str, str]) -> str:
    """Return the word with `$(NAME)` expanded as by the kubelet, which leaves unknown names."""
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), word)
