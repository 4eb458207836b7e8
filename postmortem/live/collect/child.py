"""One command, or one of our readers, in a process of its own: what it printed, how it ended, and when to
give up.

A child that does not end when it is killed hangs in the kernel (state D, as nvidia-smi does where a GPU is
lost): it is left behind, not waited for. Nor is the end of its output waited for, which a grandchild may hold
open.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from postmortem.live.collect import readers

if TYPE_CHECKING:
    from postmortem.model.collected import Way

MOST = 16 << 20  # bytes of one item
SAID = 300  # characters of what a command said on standard error
DRAIN = 0.5  # seconds for the rest of the output of a child that has ended
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A running command. `most` bytes of its output are kept, the beginning, or the end."""

    def __init__(self, way: Way, limit: float, most: int = MOST, end: bool = False) -> None:
        self.limit, self.most, self.end = limit, most, end
        self.pieces: deque[bytes] = deque()
        self.size, self.cut, self._errors = 0, False, b""
        self.code: int | None = None
        self.left = False  # running when its time was over, and perhaps still
        self.started, self._begun = time.time(), time.monotonic()
        out, give = os.pipe()
        err, moan = os.pipe()
        try:
            self._process = _command(way, give, moan) if not way[0].startswith("read:") else None
            self.pid = self._process.pid if self._process else _reader(way, give, moan)
        except OSError:
            os.close(out)
            os.close(err)
            raise
        finally:
            os.close(give)
            os.close(moan)
        self.pipes = [out, err]
        self._errors_from = err
        for pipe in self.pipes:
            os.set_blocking(pipe, False)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def output(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def said(self) -> str:
        """The last line on standard error."""
        lines = self._errors.decode("utf-8", "replace").split("\n")
        told = [" ".join(line.split()) for line in lines if line.strip()]
        return "".join(c for c in told[-1] if c.isprintable())[:SAID] if told else ""

    def take(self, pipe: int) -> None:
        """Take what a pipe has, and close it at its end."""
        try:
            piece = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self.pipes.remove(pipe)
            os.close(pipe)
        elif pipe == self._errors_from:
            self._errors = (self._errors + piece)[-4 * SAID :]
        else:
            self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        if self.size + len(piece) > self.most and not self.end:
            piece, self.cut = piece[: self.most - self.size], True
        self.pieces.append(piece)
        self.size += len(piece)
        while self.size > self.most:
            self.size -= len(self.pieces.popleft())
            self.cut = True

    def over(self) -> bool:
        """Whether it has ended, or its time has."""
        if self.code is None:
            self.code = self._reaped()
        if self.code is not None:
            return True
        self.left = self.seconds > self.limit
        return self.left

    def _reaped(self) -> int | None:
        if self._process:
            return self._process.poll()
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def finish(self) -> None:
        """Take the rest of the output, kill what runs on, and let go of it."""
        until = time.monotonic() + (DRAIN if self.code is not None else 0)
        while self.pipes:
            before = self.size
            for pipe in list(self.pipes):
                self.take(pipe)
            if self.size == before:
                if time.monotonic() > until or self.left:
                    break
                time.sleep(0.005)
        with suppress(OSError):  # ended long ago, or not ours to kill
            os.killpg(self.pid, signal.SIGKILL)
        for pipe in self.pipes:
            os.close(pipe)
        self.pipes = []


def program(name: str) -> str | None:
    """Where a command is: on PATH, in the administrator's folders, or beside this Python. Never where a
    rank's environment leads, which may be anybody's."""
    folders = (os.environ.get("PATH", ""), "/usr/sbin", "/sbin", os.path.dirname(sys.executable))
    return shutil.which(name, path=os.pathsep.join(filter(None, folders)))


def _command(way: Way, out: int, err: int) -> subprocess.Popen[bytes]:
    path = program(way[0])
    if path is None:
        raise FileNotFoundError(2, "not installed", way[0])
    env = {**os.environ, "LC_ALL": "C"}
    return subprocess.Popen(
        (path, *way[1:]), stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, env=env
    )


def _reader(way: Way, out: int, err: int) -> int:
    # what a signal raises in the middle of a fork is lost
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        pid = os.fork()
        if not pid:
            _become(way[0][len("read:") :], way[1:], out, err)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _become(name: str, arguments: Sequence[str], out: int, err: int) -> None:
    """In the child: be the reader, and nothing else."""
    code = 1
    try:
        os.setsid()
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        os.dup2(out, 1)
        os.dup2(err, 2)
        readers.READERS[name](*arguments)
        code = 0
    except OSError as error:
        os.write(2, f"{error.filename or name}: {os.strerror(error.errno or 0)}".encode("utf-8", "replace"))
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(code)
