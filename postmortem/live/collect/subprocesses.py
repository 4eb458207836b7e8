"""One command, or one of our readers, in a process of its own: its output, its end, and its time limit.

A child that does not end when it is killed hangs in the kernel (state D, as nvidia-smi does where a GPU is
lost): it is left behind. Nor is the end of its output waited for, which a grandchild may hold open.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from postmortem.live.collect import readers

if TYPE_CHECKING:
    from postmortem.model.collected import Way

MOST_BYTES = 16 << 20  # bytes of one item
ERROR = 300  # characters of a message on standard error
DRAIN = 0.5  # seconds for the rest of the output of a child that has ended
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A running command. At most `most` bytes of its output are saved: the beginning, or the end."""

    def __init__(self, way: Way, limit: float, most: int = MOST_BYTES, end: bool = False) -> None:
        self.limit, self._most, self._end = limit, most, end
        self._pieces: deque[bytes] = deque()
        self.size, self.cut, self._errors = 0, False, b""
        self.code: int | None = None
        self.timed_out = False
        self.started, self._begun = time.time(), time.monotonic()
        self._stdout, out = os.pipe()
        self._stderr, err = os.pipe()
        self.pipes = [self._stdout, self._stderr]
        try:
            self._process = None if way[0].startswith("read:") else _command(way, out, err)
            self.pid = self._process.pid if self._process else forked(lambda: _read(way, out, err))
        except OSError:
            self._close()
            raise
        finally:
            os.close(out)
            os.close(err)
        for pipe in self.pipes:
            os.set_blocking(pipe, False)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def output(self) -> bytes:
        return b"".join(self._pieces)

    @property
    def error(self) -> str:
        """The last line on standard error."""
        lines = [" ".join(line.split()) for line in self._errors.decode("utf-8", "replace").split("\n")]
        last = next((line for line in reversed(lines) if line), "")
        return "".join(c for c in last if c.isprintable())[:ERROR]

    def take(self, pipe: int) -> None:
        """Take the output in a pipe, and close it at its end."""
        try:
            piece = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self.pipes.remove(pipe)
            os.close(pipe)
        elif pipe == self._stderr:
            self._errors = (self._errors + piece)[-4 * ERROR :]
        else:
            if self.size + len(piece) > self._most and not self._end:
                piece, self.cut = piece[: self._most - self.size], True
            self._pieces.append(piece)
            self.size += len(piece)
            while self.size > self._most:
                self.size -= len(self._pieces.popleft())
                self.cut = True

    def over(self) -> bool:
        """Return whether it has ended, or its time has."""
        if self.code is None and self._process:
            self.code = self._process.poll()
        elif self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.timed_out = self.code is None and self.seconds > self.limit
        return self.timed_out or self.code is not None

    def finish(self) -> None:
        """Take the rest of the output, and kill the processes that are left."""
        until = time.monotonic() + (DRAIN if self.code is not None else 0)
        while self.pipes:
            before = self.size
            for pipe in list(self.pipes):
                self.take(pipe)
            if self.size == before:
                if time.monotonic() > until or self.timed_out:
                    break
                time.sleep(0.005)
        with suppress(OSError):  # it ended long ago, or belongs to another user
            os.killpg(self.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        for pipe in self.pipes:
            os.close(pipe)
        self.pipes = []


def forked(work: Callable[[], None]) -> int:
    """Call `work` in a copy of this process, which exits with 0 if that returns; return the copy's pid."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # an exception of a handler during a fork is lost
    try:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                for number in STOPS:
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
                work()
                code = 0
            finally:
                os._exit(code)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def program(name: str) -> str | None:
    """Return the path of a command: on PATH, in the administrator's folders, or beside this Python. Not on the
    PATH of a rank, where any user may have a program."""
    folders = (os.environ.get("PATH", ""), "/usr/sbin", "/sbin", os.path.dirname(sys.executable))
    return shutil.which(name, path=os.pathsep.join(filter(None, folders)))


def _command(way: Way, out: int, err: int) -> subprocess.Popen[bytes]:
    path = program(way[0])
    if path is None:
        raise FileNotFoundError(2, "not installed", way[0])
    words, env = (path, *way[1:]), {**os.environ, "LC_ALL": "C"}
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, env=env)


def _read(way: Way, out: int, err: int) -> None:
    """In a child: run one of our readers. Raise its error, after its message."""
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    name = way[0][len("read:") :]
    try:
        readers.READERS[name](*way[1:])
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            text = f"{error.filename or name}: {os.strerror(error.errno or 0)}"
        os.write(2, text.encode("utf-8", "replace"))
        raise
