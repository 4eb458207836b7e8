"""The path of a log -> host, rank, local rank, attempt, run, stream, each None where it is not certain.

    node-a/torchelastic/none_zwxwqhe4/attempt_0/2/stderr.log
      -> host node-a, run none_zwxwqhe4, attempt 0, local rank 2, stream stderr

A wrong rank or host is worse than none, because the lines inside mostly name their own. So `proc3.err`,
`worker-3.log` and `r12.out` have none: a process, a pod or a run is not a rank.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from postmortem.model import Source
from postmortem.model.digits import whole
from postmortem.system import forms

LONGEST_HOST = 253  # RFC 1035
_ROWS, _REGEXES = forms.rows("input/paths"), forms.regexes("input/paths")
_NOT_A_HOST = frozenset(_ROWS["not-a-host"]["words"].split())
PASSED_BY = frozenset(_ROWS["passed-by"]["words"].split())
PASSED_BY_REASON = "version control, cache or packages: skipped"
WRITTEN = _REGEXES["no-log"]


class Identity(NamedTuple):
    """The facts in a path."""

    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    run: str | None = None
    stream: str | None = None


def source(label: str, kind: str, size: int, path: Path, head: bytes = b"") -> Source:
    found = identify(label, path)
    if (
        found.rank is None
        and kind == "console"
        and b"torch/distributed/" not in head
        and (task := _REGEXES["task"].search(_uncompressed(label).rpartition("/")[2]))
    ):
        found = found._replace(rank=whole(task[1]))
    return Source(label, kind, size, *found)


def identify(label: str, path: Path | None = None) -> Identity:
    """Read a label. Of `path`, the file's whole path, only torchrun's own folders and the name of the given
    folder count."""
    name = _uncompressed(label)
    host = _folder_host(name.rpartition("/")[0]) or _file_host(name.rpartition("/")[2]) or _outer_host(label, path)
    full = printable(os.fsencode(path)) if path is not None and "!/" not in label else ""
    tree = _REGEXES["torchrun"].search(name) or _REGEXES["torchrun"].search(_uncompressed(full))
    if tree:
        return Identity(host, None, whole(tree[3]), whole(tree[2]), tree[1], tree[4])
    attempt = _REGEXES["attempt"].search(name)
    rank, local = _ranks(name)
    return Identity(host, rank, local, whole(attempt[1]) if attempt else None, None, _stream(name))


def printable(name: bytes) -> str:
    """Return a file name as a terminal and a report can show it: odd bytes and controls as backslash escapes."""
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _uncompressed(label: str) -> str:
    return _REGEXES["compressed"].sub("", label)


def _ranks(name: str) -> tuple[int | None, int | None]:
    """Return rank and local rank, each from the innermost part that has one."""
    rank = local = None
    for found in _REGEXES["rank"].finditer(name):
        if found["local"]:
            local = whole(found["n"])
        else:
            rank = whole(found["n"])
    return rank, local


def _stream(path: str) -> str | None:
    name = path.rpartition("/")[2]
    found = list(_REGEXES["stream"].finditer(name))
    if not found or (found[-1][1] and name.startswith("slurm")):  # sbatch puts both streams into slurm-N.out
        return None
    return "stdout" if found[-1][1] else "stderr"


def _is_job(part: str) -> bool:
    return len(part) < 256 and _REGEXES["job"].match(part) is not None and not _REGEXES["address"].match(part)


@lru_cache(maxsize=4096)
def _folder_host(folder: str) -> str | None:
    """Return the innermost folder that names a host. Cached, because a folder holds many files."""
    return next((h for part in reversed(folder.split("/")) if (h := _host(_REGEXES["archive"].sub("", part)))), None)


def _outer_host(label: str, path: Path | None) -> str | None:
    """Return the given folder's own name where it is a host: `analyze node-a` has labels without it."""
    if path is None or "!/" in label:
        return None
    return _above(label.rpartition("/")[0], os.fspath(path).rpartition("/")[0])


@lru_cache(maxsize=4096)
def _above(folder: str, whole: str) -> str | None:
    """Return the folder above `folder` in the path `whole` where it is a host."""
    above = PurePosixPath(whole, "-").parts[: -1 - len(PurePosixPath(folder).parts)][-1:]
    return next((part for part in above if _matches(part, "explicit", "stemmed")), None)


def _file_host(name: str) -> str | None:
    if len(name) > LONGEST_HOST:
        return None
    stem = _REGEXES["text-suffix"].sub("", name)
    for part in stem.split("."):
        if explicit := _REGEXES["explicit"].match(part):
            return explicit[1]
    if beside := _REGEXES["beside-host"].match(stem):
        return _host(beside["after"] or beside["before"])
    if _REGEXES["rank"].search(stem):
        return None
    return stem if _matches(stem, "stemmed", "pod", "address") else None


def _host(part: str) -> str | None:
    """Return the host that a folder, or a part of a file's name, is named after."""
    if len(part) > LONGEST_HOST:
        return None
    if explicit := _REGEXES["explicit"].match(part):
        return explicit[1]
    if _REGEXES["rank"].search(part) or _is_job(part):
        return None
    if _matches(part, "address", "stemmed", "pod", "cloud", "domain"):
        return part
    stem = numbered["stem"] if (numbered := _REGEXES["numbered"].match(part)) else None
    if stem == "gpu":
        return part if _REGEXES["zero-padded"].search(part) else None
    return part if stem and stem not in _NOT_A_HOST else None


def _matches(part: str, *forms_: str) -> bool:
    return any(_REGEXES[form].match(part) for form in forms_)
