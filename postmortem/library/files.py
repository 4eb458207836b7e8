"""The pattern files of a folder, which is hostile input where users pass their own.

    found(Path("patterns"))  ->  (Path("patterns/cuda/cuda-out-of-memory.yaml"), b"id: cuda-out-of-..."), ...

Links may lead around inside of the folder, as Kubernetes mounts them, and not out of it: an error message
quotes lines of the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from postmortem.errors import PatternError

MAX_FILE = 1 << 20
MOST = 5000  # files of a folder
SETTLED = 2.0  # seconds: a file that was changed within the clock's tick may change again and look the same
HINT = "a folder of patterns has files `NAME.yaml` of at most 1 MiB; see patterns/README.md"


def found(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each pattern file under a folder with its content, in the order of names. Raise PatternError."""
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


def stamp(root: Path) -> str | None:
    """Return a hash of the files' names, sizes, inodes and times of change. None where that is not enough to
    detect a change: with links, and where a file may change again within the same tick of the clock."""
    seen, newest = hashlib.sha256(os.fsencode(root.absolute())), 0
    folders = [os.fspath(root)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in sorted(entries, key=lambda e: e.name):
                    if entry.is_symlink():
                        return None
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif entry.name.endswith(".yaml"):
                        i = entry.stat()
                        newest = max(newest, i.st_ctime_ns, i.st_mtime_ns)
                        identity = f"{entry.path}\0{i.st_size}\0{i.st_ino}\0{i.st_mtime_ns}\0{i.st_ctime_ns}\0"
                        seen.update(os.fsencode(identity))
    except OSError:
        return None
    return seen.hexdigest() if newest / 1e9 < time.time() - SETTLED else None


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


def _wrong(path: Path, reason: str) -> PatternError:
    return PatternError(f"{path}:1: {reason}", HINT)


# ── YAML, each file once: seven hundred of them take half of a first start ──────────────────────────────────

_MAY_REFER = re.compile(rb"(?m)(?:^|[\s\[{,:-])[&*]|\A(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)")  # UTF-16 is YAML too


def refers(data: bytes) -> bool:
    """Return whether a file has an anchor or an alias, which may expand to gigabytes. Raise YAMLError."""
    import yaml

    found = yaml.scan(data, Loader=_loader()) if _MAY_REFER.search(data) else ()
    return any(isinstance(token, yaml.AliasToken | yaml.AnchorToken) for token in found)


def composed(data: bytes) -> tuple[Any, dict[str, int]]:
    """Return the one document of a file, and the line of each of its keys. Raise YAMLError, ValueError."""
    loader = _loader()(data)
    try:
        node = loader.get_single_node()
        document = None if node is None else loader.construct_document(node)
        pairs = node.value if isinstance(document, dict) else ()
        return document, {key.value: key.start_mark.line + 1 for key, _ in pairs}
    finally:
        loader.dispose()


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
