"""What a path tells of a log: host, rank, local rank, attempt, run, stream.
Says nothing where it is not sure.

    node-a/torchelastic/none_zwxwqhe4/attempt_0/2/stderr.log
      -> host node-a, run none_zwxwqhe4, attempt 0, local rank 2, stream stderr

A wrong rank or host is worse than none, because the lines inside mostly name their own.
So `proc3.err`, `worker-3.log` and `r12.out` say nothing: a process, a pod or a run is not a rank.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from postmortem.model import Source
from postmortem.model.digits import whole as as_number

SUFFIX = re.compile(r"\.(?:gz|xz|bz2|zst|zstd)$", re.IGNORECASE)
ARCHIVE = re.compile(r"\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz|tzst|zip)!?$", re.IGNORECASE)

# torch/distributed/elastic/multiprocessing/api.py:
# <log_dir>/<run_id>_<8 random>/attempt_<n>/<local rank>/stdout.log
TORCHRUN = re.compile(r"(?:^|/)([^/]+_[a-z0-9_]{8})/attempt_(\d{1,6})/(\d{1,6})/(?:(stdout|stderr)\.log|error\.json)$")
ATTEMPT = re.compile(r"(?:^|/)attempt[_-](\d{1,6})(?:/|$)")
RANK = re.compile(
    r"(?:^|[/._-])(?:(?P<local>local[._-]?)|global[._-]?)?rank[._-]?(?P<n>\d{1,6})(?=[/._-]|$)", re.IGNORECASE
)
# srun's %t; the task is the rank where each task is one process of the job, which the content has to show
TASK = re.compile(r"(?:^|[/._-])task[._-]?(\d{1,6})(?=[._-]|$)", re.IGNORECASE)
STREAM = re.compile(r"(?:^|[/._-])(?:(stdout|out)|(stderr|err))(?:[._-]|$)", re.IGNORECASE)

EXPLICIT = re.compile(r"^(?:host|hostname|node|nodename)=([A-Za-z0-9][\w.-]{0,252})$")
ADDRESS = re.compile(r"^(?:\d{1,3}\.){3}\d{1,3}$")
# node-a, node_07, host12, gpu-h100-node3, nid001291, ip-10-0-143-177
STEMS = (
    r"(?:node|host|nid|dgx|hgx|compute|server|machine|vm|ip|login|head|cn|slurm-node|gpu-?(?:node|host|vm)"
    r"|p[3-6]d?e?n?)"
)
STEMMED = re.compile(rf"^(?:[a-z0-9]+[._-])*{STEMS}(?:[_-]?\d+|[_-][a-z])(?:[._-][a-z0-9]+)*$", re.IGNORECASE)
CLOUD = re.compile(r"^[a-z0-9-]+-(?:st|dy)-[a-z0-9-]+-\d+$")  # AWS ParallelCluster: queue1-st-gpu-4
POD = re.compile(r"^(?=.*[a-z])[a-z0-9][a-z0-9.-]*-(?:worker|master|launcher|chief)-(?:[a-z0-9]+-)?\d+$")
DOMAIN = re.compile(r"^[a-z][a-z0-9-]*\d[a-z0-9-]*(?:\.[a-z][a-z0-9-]+)+$")
NUMBERED = re.compile(r"^(?P<stem>[a-z]{1,8})-?\d{2,6}$")  # lrdn2296, gpu003, cn-4417
# `step100`, `gpu7`, `h100`, `llama70` have a host's shape and are none
WORDS = frozenset(
    re.findall(
        r"\w+",
        "rank step epoch run job pid tid attempt proc task iter exp experiment seed ckpt checkpoint part log "
        "logs out err test trial py cu cuda torch nccl fp bf int sha utf md world w np n lr bs tp pp dp ep "
        "cp layer layers block shard version v r s e i b h a g l t gb size batch fold worker gpu device dev "
        "core cpu thread stage day week jan feb mar apr may jun jul aug sep oct nov dec llama gpt opt bert "
        "vit resnet qwen bloom train eval slurm console stdout stderr restart retry sample dump trace round "
        "phase group split chunk file data set ver rev build issue case incident bug ticket pr sweep config "
        "cfg model",
    )
)
# what stands beside the host in a file's name
KERNELISH = (
    r"(?:dmesg|journalctl?|journal|kernel|kern|kmsg|syslog|messages|nvidia-smi|nvsmi|smi|ps|agent|torchrun"
    r"|nccl|nccl_debug|slurmd"
    r"|console|stdout|stderr|log|out|err)"
)
BESIDE = re.compile(
    (
        rf"^(?:{KERNELISH}[._-](?P<after>.+?)|(?P<before>.+?)[._-]{KERNELISH})"
        rf"(?:[._-](?:iso|raw|x|T|k|json|short)|\.\d+)*$"
    ),
    re.IGNORECASE,
)
# Version control, caches and installed packages: large, full of words like "error", and never a log.
PASSED_BY = frozenset(
    (".git", ".hg", ".svn", "__pycache__", ".venv", "site-packages", "node_modules", ".cache", ".mypy_cache",
     ".pytest_cache", ".ruff_cache", ".tox", ".ipynb_checkpoints", ".Trash")
)  # fmt: skip
PASSED_BY_REASON = "version control, cache or packages: skipped"
# What lies beside the logs of a job and is full of their words: its program, notes on it, settings.
# A name on the command line is meant.
WRITTEN = re.compile(
    (
        r"\.(?:py|pyi|ipynb|md|rst|tex|sh|c|cc|cpp|cxx|cu|cuh|h|hpp|js|ts|css|go|rs|java|jl|toml|ini|cfg"
        r"|lock|patch|diff)$"
    ),
    re.IGNORECASE,
)

JOB = re.compile(
    # run_0931, job-48211, exp12_lr3e-4
    r"^(?:(?:run|job|exp|experiment|trial|slurm|launch|sweep|jobid|job_id)[._=-]?\w*\d[\w.-]*"
    r"|\d{3,12}"  # a scheduler's job id
    # 2026-11-20_21-03-39
    r"|(?:\w+[_-])?\d{4}[-_]?\d\d[-_]?\d\d(?:[-_T ]\d\d[-_:.]?\d\d(?:[-_:.]?\d\d)?)?(?:[-_.]\w+)?)$",
    re.IGNORECASE,
)


class Identity(NamedTuple):
    """What a path tells."""

    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    run: str | None = None
    stream: str | None = None


def source(label: str, kind: str, size: int, path: Path, head: bytes = b"") -> Source:
    """Make a Source of what its label, its path and its kind tell."""
    told = identify(label, path)
    rank = told.rank
    if (
        rank is None
        and kind == "console"
        and b"torch/distributed/" not in head
        and (task := TASK.search(_plain(label).rpartition("/")[2]))
    ):
        rank = as_number(task[1])
    return Source(label, kind, size, told.host, rank, told.local_rank, told.attempt, told.run, told.stream)


def identify(label: str, path: Path | None = None) -> Identity:
    """Read a label. `path` is the file's whole path,
    of which only torchrun's own folders and the given folder's name count."""
    plain = _plain(label)
    host = _host(plain) or _outer_host(label, path)
    whole = printable(os.fsencode(path)) if path is not None and "!/" not in label else ""
    tree = TORCHRUN.search(plain) or TORCHRUN.search(_plain(whole))
    if tree:
        return Identity(host, None, as_number(tree[3]), as_number(tree[2]), tree[1], tree[4])
    attempt = ATTEMPT.search(plain)
    rank, local = _rank(plain)
    return Identity(host, rank, local, as_number(attempt[1]) if attempt else None, None, _stream(plain))


def job_folder(label: str) -> str | None:
    """Return the top folder of a label that names a whole job:
    a run, a scheduler's job id, a date. None where none does."""
    for part in label.split("/")[:-1]:
        if JOB.match(part) and not ADDRESS.match(part):
            return part
        if TORCHRUN_RUN.match(part):
            return None
    return None


TORCHRUN_RUN = re.compile(r"^(?:torchelastic|attempt_\d+)")


def printable(name: bytes) -> str:
    """Write a file name so that a terminal and a report can show it:
    odd bytes and controls as backslash escapes."""
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _plain(label: str) -> str:
    return SUFFIX.sub("", label)


def _rank(plain: str) -> tuple[int | None, int | None]:
    """Return rank and local rank, each from the innermost part that has one."""
    rank = local = None
    for found in RANK.finditer(plain):
        if found["local"]:
            local = as_number(found["n"])
        else:
            rank = as_number(found["n"])
    return rank, local


def _stream(plain: str) -> str | None:
    name = plain.rpartition("/")[2]
    found = list(STREAM.finditer(name))
    if not found or (found[-1][1] and name.startswith("slurm")):  # sbatch puts both streams into slurm-N.out
        return None
    return "stdout" if found[-1][1] else "stderr"


def _host(plain: str) -> str | None:
    folder, _, name = plain.rpartition("/")
    inside = _folder_host(folder)
    return inside or _file_host(name)


@lru_cache(maxsize=4096)
def _folder_host(folder: str) -> str | None:
    """Return the innermost folder that reads as a host. Cached, because a folder holds many files."""
    for part in reversed(folder.split("/")):
        if host := _host_name(ARCHIVE.sub("", part)):
            return host
    return None


def _outer_host(label: str, path: Path | None) -> str | None:
    """Read the given folder's own name: `analyze node-a` has labels without it."""
    if path is None or "!/" in label:
        return None
    outer = path.parts[: -len(PurePosixPath(label).parts)][-1:]
    return next((part for part in outer if EXPLICIT.match(part) or STEMMED.match(part)), None)


def _file_host(name: str) -> str | None:
    if len(name) > 253:
        return None
    stem = re.sub(r"(?:\.(?:log|txt|out|err|json|jsonl|ndjson))+(?:\.\d{1,3})?$", "", name, flags=re.IGNORECASE)
    for part in stem.split("."):
        if explicit := EXPLICIT.match(part):
            return explicit[1]
    if beside := BESIDE.match(stem):
        return _host_name(beside["after"] or beside["before"])
    if RANK.search(stem):
        return None
    return stem if STEMMED.match(stem) or POD.match(stem) or ADDRESS.match(stem) else None


def _host_name(part: str) -> str | None:
    """Return the host that a folder, or a part of a file's name, reads as."""
    if len(part) > 253:  # no host's name is longer (RFC 1035)
        return None
    if explicit := EXPLICIT.match(part):
        return explicit[1]
    if RANK.search(part) or JOB.match(part) and not ADDRESS.match(part):
        return None
    if ADDRESS.match(part) or STEMMED.match(part) or POD.match(part) or CLOUD.match(part) or DOMAIN.match(part):
        return part
    numbered = NUMBERED.match(part)
    if numbered and (
        numbered["stem"] not in WORDS or (numbered["stem"] == "gpu" and re.search(r"0\d", part) is not None)
    ):
        return part
    return None
