"""Output: whole files or nothing, data on standard output, messages on standard error.

An output file is the old one or a complete new one: written beside its target, synced, then renamed over it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from postmortem.errors import PostmortemError, UsageError

Progress = Callable[[int, int, str], None]
BAR = 14  # columns of the progress bar
REPORTS = (".html", ".json", ".md", ".ndjson", ".jsonl", ".csv", ".parquet", ".xml")  # a later report replaces them
FIXED = 62  # columns of all but a file's name: `reading ━━━ 122.1/655.8 MiB 104.3 MiB/s 0:00:05`


def check_target(target: Path, inputs: Sequence[str | Path] = (), option: str = "--output") -> None:
    """Raise UsageError if `target` cannot be written, or is one of the inputs; for use before minutes of reading."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder", f"name a file in it: {option} {target / 'NAME'}")
    folder = target.parent
    if not folder.is_dir():
        raise UsageError(f"the folder of {target} does not exist", f"create it: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"the folder of {target} is not writable", f"name a file in another folder: {option} FILE")
    if any(_overwrites(target, Path(path)) for path in inputs):
        raise UsageError(f"{option} {target} would overwrite an input", "name another file")


def _overwrites(target: Path, given: Path) -> bool:
    """Whether writing `target` would replace an input, or a file of a folder of them that is no report."""
    if given == target:
        return True
    if not target.is_file() or not given.exists():
        return False
    if given.is_dir():
        return target.suffix.lower() not in REPORTS and target.resolve().is_relative_to(given.resolve())
    return target.samefile(given)


def write_file(target: Path, made: str | bytes, private: bool = False) -> None:
    """Write `target` completely, or leave the old file. A private one is readable by its owner only."""
    data = _bytes(made)
    check_target(target)
    try:
        if target.exists() and not target.is_file():  # /dev/null, a FIFO: nothing to replace
            target.write_bytes(data)
        else:
            _replace(target.resolve(), data, 0o600 if private else 0o666)
    except OSError as e:
        hint = "free space there, or name another file with --output FILE"
        raise PostmortemError(f"could not write {target}: {e.strerror}", hint) from None


def _bytes(made: str | bytes) -> bytes:
    return made if isinstance(made, bytes) else made.encode("utf-8", "backslashreplace")


def append_file(target: Path, text: str) -> None:
    """Append to a file that others write too, such as $GITHUB_STEP_SUMMARY."""
    try:
        with target.open("ab") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as e:
        raise PostmortemError(
            f"could not write {target}: {e.strerror}", "unset GITHUB_STEP_SUMMARY, or free space there"
        ) from None


def _replace(target: Path, data: bytes, mode: int) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        if not _written_unnamed(temporary, target, data, mode):
            # os.open with 0666 leaves the umask to the kernel; mkstemp's 0600 would hide the report from colleagues
            _fill(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), target, data, mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _written_unnamed(temporary: Path, target: Path, data: bytes, mode: int) -> bool:
    """Write a file without a name, and name it when it is whole, so that a killed process leaves nothing behind.
    Return False where the file system has no such files (NFS)."""
    try:
        descriptor = os.open(temporary.parent, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError:
        return False
    held = os.dup(descriptor)
    try:
        _fill(descriptor, target, data, mode)
        # with a folder's descriptor, because Python calls link() without, which does not follow
        os.link(f"/proc/self/fd/{held}", temporary, src_dir_fd=held, follow_symlinks=True)
    except (FileNotFoundError, PermissionError):  # no /proc here, or a sandbox that allows no such link
        return False
    finally:
        os.close(held)
    return True


def _fill(descriptor: int, target: Path, data: bytes, mode: int) -> None:
    with open(descriptor, "wb") as file:
        if target.exists() and mode & 0o077:
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def data(made: str | bytes) -> None:
    """Write to standard output, a text with a line end. A closed pipe (`| head`) is no error."""
    if sys.stdout is None:
        raise PostmortemError("standard output is closed", "name a file with --output FILE")
    try:
        sys.stdout.buffer.write(_bytes(made))
        if isinstance(made, str) and not made.endswith("\n"):
            sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _plug(sys.stdout.fileno())
    except OSError as e:
        _plug(sys.stdout.fileno())
        raise PostmortemError(
            f"could not write to standard output: {e.strerror}", "free space there, or use --output FILE"
        ) from None


def say(text: str) -> None:
    """Write a message to standard error, in its encoding. A closed one is no error."""
    if sys.stderr is None:
        return
    if os.environ.get("GITHUB_ACTIONS"):
        # the runner obeys lines that begin with :: or ##[ (ActionCommand.cs), and some of our lines quote logs
        text = re.sub(r"(?m)^(\s*)(::|##\[)", r"\1\\\2", text)
    try:
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(text.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # closed, full, or its reader has gone
        with suppress(OSError, ValueError):
            _plug(sys.stderr.fileno())


def width() -> int:
    """Return how many columns standard error has; 80 where it is no terminal."""
    return shutil.get_terminal_size().columns if _is_terminal() or "COLUMNS" in os.environ else 80


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False


def colour() -> bool:
    """Return whether standard error is a terminal with colors whose user wants them (no-color.org)."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _plug(descriptor: int) -> None:
    # otherwise the interpreter's own flush at exit fails once more, with a message
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress | None]:
    """Yield a callable that draws progress on standard error; None where that is no terminal, or `quiet`."""
    if quiet or not _is_terminal() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(BAR), TextColumn("{task.fields[size]}"), TimeRemainingColumn())
    room = max(width() - FIXED, 8)
    with Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, visible=False, size="")  # until something is read

        began = time.monotonic()

        def show(done: int, total: int, label: str) -> None:
            # a path's end matters more than its start
            end = label if len(label) <= room else f"…{label[1 - room :]}"
            rate = _size(int(done / max(time.monotonic() - began, 0.1)), 0)
            shown = f"{_size(done, total)} {rate}/s"
            bar.update(task, completed=done, total=total or None, description=end, visible=True, size=shown)

        yield show


def _size(done: int, total: int) -> str:
    """Return `122.0/655.0 MiB`, and `12.0 MiB` where the total is unknown, as of a pipe."""
    power = max(0, min(4, ((total or done).bit_length() - 1) // 10))
    shown = f"{done / 1024**power:.1f}" + (f"/{total / 1024**power:.1f}" if total else "")
    return f"{shown} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def browse(target: Path) -> None:
    """Open a report in the user's browser."""
    import webbrowser

    webbrowser.open(target.resolve().as_uri())
