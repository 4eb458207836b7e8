"""The content of a pipe -> a temporary file, for as long as the analysis takes.

kubectl logs job/train | postmortem analyze -
postmortem analyze <(ssh node-b cat /var/log/train.log) logs/

A log is read from several places and by several processes, and a pipe can be read once.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from postmortem.errors import PostmortemError, UsageError

STANDARD = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
CHUNK = 1 << 20
Progress = Callable[[int, int, str], None]


@contextmanager
def held(paths: Sequence[str], progress: Progress | None = None) -> Iterator[list[str]]:
    """Yield the paths, with a file in place of standard input and of each pipe among them. Pipes inside a folder
    are left alone: they may have no writer. Raise PostmortemError where there is no room."""
    piped = [path for path in dict.fromkeys(paths) if _is_pipe(path)]
    if not piped:
        yield list(paths)
        return
    # in a folder without a meaning: hosts and ranks are read from names
    folder = Path(tempfile.mkdtemp(prefix="postmortem-")) / "given"
    try:
        folder.mkdir()
        files = {path: str(_spooled(path, folder, progress)) for path in piped}
        yield [files.get(path, path) for path in dict.fromkeys(paths)]
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)


def _is_pipe(path: str) -> bool:
    if path in STANDARD:
        return True
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):  # reported where it is read
        return False


def is_typed(paths: Sequence[str]) -> bool:
    """Return whether one of the inputs is a terminal."""
    return any(path in STANDARD for path in paths) and sys.stdin is not None and sys.stdin.isatty()


def named(path: str) -> str:
    """Return the name of an input for messages."""
    return "standard input" if path in STANDARD else path


def _spooled(path: str, folder: Path, progress: Progress | None) -> Path:
    label = "stdin" if path in STANDARD else f"pipe-{name}" if (name := Path(path).name).isdecimal() else name
    while (target := folder / label).exists():
        label += "~"
    try:
        with _opened(path) as stream, target.open("xb") as file:
            read = 0
            while chunk := stream.read(CHUNK):
                file.write(chunk)
                read += len(chunk)
                if progress:
                    progress(read, 0, label)
    except OSError as error:
        hint = "name a folder with room for it: TMPDIR=/path postmortem analyze …"
        raise PostmortemError(f"could not store the input from {label}: {error.strerror}", hint) from None
    return target


def _opened(path: str) -> BinaryIO:
    if path not in STANDARD:
        return Path(path).open("rb")
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", "name the folder that holds the job's logs")
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
