"""The pattern files of a folder, read so that nothing in it can hold up or hurt: a folder of others is input.

    found(Path("patterns"))  ->  (Path("patterns/cuda/cuda-out-of-memory.yaml"), b"id: cuda-out-of-..."), ...

Links may lead around inside of the folder, as Kubernetes mounts them, and not out of it: an error message
quotes what it could not read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from postmortem.errors import PatternError

MAX_FILE = 1 << 20
MOST = 5000  # files of a folder
HINT = "a folder of patterns has files `NAME.yaml` of at most 1 MiB; see patterns/README.md"


def found(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Each pattern file under a folder with its content, in the order of their names. Raise PatternError."""
    inside = root.resolve()
    for number, path in enumerate(sorted(root.rglob("*.yaml"))):
        if number == MOST:
            raise PatternError(f"{root}: more than {MOST:,} pattern files", HINT)
        try:
            target = path.resolve(strict=True)
            if not target.is_relative_to(inside):
                raise _wrong(path, "a link out of its folder, which is not followed")
            yield path, _content(path, target)
        except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError
            raise _wrong(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _content(path: Path, target: Path) -> bytes:
    descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise _wrong(path, "no regular file")
        data = file.read(MAX_FILE + 1) if info.st_size <= MAX_FILE else b""
    if info.st_size > MAX_FILE or len(data) > MAX_FILE:
        raise _wrong(path, "larger than 1 MiB")
    return data


def _wrong(path: Path, what: str) -> PatternError:
    return PatternError(f"{path}:1: {what}", HINT)
