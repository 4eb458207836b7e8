"""The process between the child and the terminal: it copies each stream to its place and into a file.

    child ── pipe, or pty ──▶ tee ──▶ standard output        as it comes
                                 └──▶ stdout.log             each line behind the time at which it came

It is a process of its own, so that a wrapper that is killed takes nothing with it: a pipe without a
reader would end the job by SIGPIPE. It ends when nobody holds the streams any more, be it hours later:
who is left behind may go on printing, as it might without us. Should it be killed itself, the wrapper,
which holds the same ends, starts another.

It hears every signal that is sent to all processes of the group or of the cgroup, and does nothing but
tell: what it has heard, the child has heard too, and need not be told again (see child.py).

Where our own stream is a terminal the child gets a pty, so that it still sees a terminal of the same
size: colours and bars stay. The pty is not its controlling terminal. Ctrl-C, Ctrl-Z and the keyboard are
the real terminal's, which the child still has: nothing is to be put back when the wrapper is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from postmortem.live.run.record import say, stamp

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
DRAINED, CLOSED = 0, 100  # in the pipe to the wrapper, beside numbers of signals; CLOSED + n: stream n
PIECE = 1 << 16
ROOM = 1 << 20  # asked of a pipe
NAP_S = 0.01  # between two small pieces: a job that prints 10,000 lines a second wakes us 100 times, not 10,000
SMALL = 1 << 14
PIECES = 4096  # copied before the wrapper goes on


@dataclass(slots=True)
class Stream:
    """One stream of the child: what it writes into (`inner`), where we read it, and where it goes."""

    name: str
    outer: int  # our own standard output or error
    inner: int
    source: int
    tty: bool
    closed: bool = False


def stream(name: str, outer: int) -> Stream:
    """A pty where our own stream is a terminal, else a pipe."""
    if os.isatty(outer):
        try:
            source, inner = os.openpty()
            _plain(inner)
            made = Stream(name, outer, inner, source, True)
            resize(made)
            return made
        except OSError as error:  # no ptys here
            say(f"{name} of the command is no terminal: {error.strerror}")
    source, inner = os.pipe()
    try:
        fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, ROOM)
    except OSError:  # more than this user may have
        pass
    return Stream(name, outer, inner, source, False)


def _plain(inner: int) -> None:
    """Bytes pass as they are: the real terminal makes `\\r\\n` of a line's end, and once is enough."""
    settings = termios.tcgetattr(inner)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(inner, termios.TCSANOW, settings)


def resize(made: Stream) -> None:
    """Give the pty the size of the terminal that it stands for."""
    if made.tty and not made.closed:
        try:
            size = fcntl.ioctl(made.outer, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(made.source, termios.TIOCSWINSZ, size)
        except OSError:
            pass


class Tee:
    """The wrapper's end of it."""

    def __init__(self, streams: list[Stream], folder: Path | None) -> None:
        self.streams = streams
        self.pid = 0
        self._folder = folder
        self._drained = False
        self._heard: set[int] = set()
        self._ask = self._told = -1
        self.start()

    def start(self) -> None:
        """Fork it. A second time, where the first was killed, it goes on where that one stood."""
        self._close()
        orders, self._ask = os.pipe()
        self._told, tells = os.pipe()
        os.set_blocking(self._told, False)
        os.set_blocking(tells, False)
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._ask)
                os.close(self._told)
                _Copier(self.streams, self._folder, orders, tells).work()
            finally:
                os._exit(0)
        os.close(orders)
        os.close(tells)

    def handles(self) -> list[int]:
        """A descriptor that is readable when it tells something; none when it has ended."""
        return [self._told] if self._told >= 0 else []

    def listen(self) -> bool:
        """Take in what it has told; False where it has ended."""
        try:
            told = os.read(self._told, 4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not told:
            os.close(self._told)
            self._told = -1
        for code in told:
            if code == DRAINED:
                self._drained = True
            elif code >= CLOSED:
                self.leave(self.streams[code - CLOSED])
            else:
                self._heard.add(code)
        return bool(told)

    def heard(self, number: int) -> bool:
        """Whether a signal came to it as well since the last question."""
        self.listen()
        found = number in self._heard
        self._heard.discard(number)
        return found

    def drain(self, patience: float) -> None:
        """Wait until all that is in the streams now has gone where it goes."""
        self._drained = False
        until = time.monotonic() + patience
        try:
            os.write(self._ask, b"d")
        except OSError:
            return
        while not self._drained and time.monotonic() < until:
            select.select(self.handles(), [], [], 0.1)
            if not self.listen():
                return

    def leave(self, one: Stream) -> None:
        """Let go of a stream that nobody wants to have any more; the child learns of it as it would alone."""
        if not one.closed:
            one.closed = True
            os.close(one.source)

    def let_go(self) -> None:
        """The command has its ends; a stream is over when nobody else holds one."""
        for one in self.streams:
            os.close(one.inner)
            one.inner = -1

    def close(self) -> None:
        for one in self.streams:
            self.leave(one)
        self._close()

    def _close(self) -> None:
        for end in (self._ask, self._told):
            if end >= 0:
                os.close(end)
        self._ask = self._told = -1


class _Copier:
    """What runs in the process itself."""

    def __init__(self, streams: list[Stream], folder: Path | None, orders: int, tells: int) -> None:
        self._orders, self._tells = orders, tells
        self._open = {one.source: (number, one) for number, one in enumerate(streams) if not one.closed}
        self._files = {source: _file(folder, one.name) for source, (_, one) in self._open.items()}
        self._begins = dict.fromkeys(self._open, True)
        for one in streams:
            if one.inner >= 0:
                os.close(one.inner)
        for source in self._open:
            os.set_blocking(source, False)

    def work(self) -> None:
        """Copy until nobody holds the streams any more."""
        for number in FORWARDED:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._tells, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        while self._open:
            asked = [self._orders] if self._orders >= 0 else []
            ready = select.select([*self._open, *asked], [], [])[0]
            size = sum(self._copy(source) for source in ready if source in self._open)
            if self._orders in ready:
                self._obey()
            elif size < SMALL:
                time.sleep(NAP_S)

    def _obey(self) -> None:
        if not os.read(self._orders, 16):  # the wrapper has gone
            os.close(self._orders)
            self._orders = -1
            return
        for _ in range(PIECES):  # who goes on printing is not waited for
            if not any(self._copy(source) for source in list(self._open)):
                break
        self._tell(DRAINED)

    def _tell(self, code: int) -> None:
        try:
            os.write(self._tells, bytes((code,)))
        except OSError:  # nobody listens
            pass

    def _copy(self, source: int) -> int:
        """Take one piece from a stream; how long it was."""
        number, one = self._open[source]
        try:
            piece = os.read(source, PIECE)
        except BlockingIOError:
            return 0
        except OSError:  # of a pty: its last holder has closed it
            piece = b""
        if not piece:
            self._leave(source)
            return 0
        self._keep(source, one.name, piece)
        if not _passed_on(one.outer, piece):
            self._leave(source)
            self._tell(CLOSED + number)
        return len(piece)

    def _keep(self, source: int, name: str, piece: bytes) -> None:
        """Into the file first: our own output may wait for somebody who reads slowly."""
        file = self._files[source]
        if file < 0:
            return
        came = stamp(time.time()).encode("ascii") + b" "
        text = piece.replace(b"\n", b"\n" + came)
        if self._begins[source]:
            text = came + text
        self._begins[source] = piece.endswith(b"\n")
        if self._begins[source]:
            text = text[: -len(came)]
        try:
            while text:
                text = text[os.write(file, text) :]
        except OSError as error:
            os.close(file)
            self._files[source] = -1
            say(f"{name}.log ends here, and the command goes on: {error.strerror}")

    def _leave(self, source: int) -> None:
        del self._open[source]
        os.close(source)


def _file(folder: Path | None, name: str) -> int:
    if folder is None:
        return -1
    try:
        return os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        say(f"no {name}.log in {folder}: {error.strerror}")
        return -1


def _passed_on(outer: int, piece: bytes) -> bool:
    """Write where the child meant to. False where nobody is there to read: then the child is to learn it."""
    while piece:
        try:
            piece = piece[os.write(outer, piece) :]
        except BlockingIOError:  # somebody else made it so
            select.select([], [outer], [], 1.0)
        except OSError as error:
            return error.errno not in (
                errno.EPIPE,
                errno.EIO,
                errno.EBADF,
            )  # a full disk there loses this piece
    return True
