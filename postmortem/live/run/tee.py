"""The process between the child and the terminal: it copies each stream to its place and into a file.

    child ── pipe, or pty ──▶ tee ──▶ standard output        unchanged
                                 └──▶ stdout.log             see `StreamLog`

It is a process of its own, since a pipe without a reader would end the job by SIGPIPE when the wrapper is killed.
It ends when no process holds the streams any more, perhaps hours later: an orphan may go on printing. It reports
each signal that it receives, which has reached the child too (see job.py).

Where our own stream is a terminal the child gets a pty of the same size: colors and bars remain. Its controlling
terminal is still the real one, with Ctrl-C, Ctrl-Z and the keyboard, so that nothing must be restored at the end.

    stdout.log.2    the first 42 MiB of an output that is larger
    stdout.log.1    what came before stdout.log; anything between it and the beginning is not kept

The job needs its disk more than we do: nothing is kept while less than RESERVE is free.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from postmortem.live.run.journal import has_room, print_line, stamp

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
DRAINED, CLOSED = 0, 100  # messages to the wrapper, beside signal numbers; CLOSED + n: stream n
PIECE = 1 << 16
ROOM = 1 << 20  # of a pipe
NAP_S = 0.01  # between two small pieces: a job that prints 10,000 lines a second wakes us 100 times, not 10,000
SMALL = 1 << 14
ATOMIC = 1 << 12  # bytes that a pipe takes at once
HELD = struct.Struct("II")  # where the bytes of a piece that are not passed on yet begin and end
PIECES = 4096  # copied before the wrapper goes on


@dataclass(slots=True)
class Stream:
    """One stream of the child: `inner` is its end, `source` ours; `outer` is our standard output or error."""

    name: str
    outer: int
    inner: int
    source: int
    tty: bool
    closed: bool = False
    # shared with the copying process, so that its successor passes on what it had read
    held: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, HELD.size + PIECE))

    def close(self) -> None:
        """Close our end; the child notices it as it would alone."""
        if not self.closed:
            self.closed = True
            os.close(self.source)


def open_stream(name: str, outer: int) -> Stream:
    """Return a pty where our own stream is a terminal, else a pipe."""
    if os.isatty(outer):
        try:
            source, inner = os.openpty()
            # bytes pass unchanged: the real terminal makes `\\r\\n` of a line's end
            settings = termios.tcgetattr(inner)
            settings[1] &= ~termios.OPOST
            settings[3] &= ~termios.ECHO
            termios.tcsetattr(inner, termios.TCSANOW, settings)
            stream = Stream(name, outer, inner, source, True)
            resize(stream)
            return stream
        except OSError as error:  # no ptys here
            print_line(f"{name} of the command is not a terminal: {error.strerror}")
    source, inner = os.pipe()
    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, ROOM)
    return Stream(name, outer, inner, source, False)


def resize(stream: Stream) -> None:
    """Give the pty the size of the real terminal."""
    if stream.tty and not stream.closed:
        with suppress(OSError):
            size = fcntl.ioctl(stream.outer, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(stream.source, termios.TIOCSWINSZ, size)


class Tee:
    """The wrapper's side: starts the copying process, and reads its messages."""

    def __init__(self, streams: list[Stream], folder: Path | None) -> None:
        self.streams = streams
        self.pid = 0
        self._folder = folder
        self._drained = False
        self._received: list[tuple[int, float]] = []  # signals, and when they were reported
        self._orders = self._messages = -1
        self.start()

    def start(self) -> None:
        """Fork it; a second time, where the first was killed, it continues there."""
        self._close_pipes()
        orders, self._orders = os.pipe()
        self._messages, messages = os.pipe()
        os.set_blocking(self._messages, False)
        os.set_blocking(messages, False)
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._orders)
                os.close(self._messages)
                _Copier(self.streams, self._folder, orders, messages).work()
            finally:
                os._exit(0)
        os.close(orders)
        os.close(messages)

    def descriptors(self) -> list[int]:
        """Return a descriptor that is readable when there is a message; none when the process has ended."""
        return [self._messages] if self._messages >= 0 else []

    def read_messages(self) -> bool:
        """Return False if the process has ended."""
        try:
            codes = os.read(self._messages, 4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not codes:
            os.close(self._messages)
            self._messages = -1
        for code in codes:
            if code == DRAINED:
                self._drained = True
            elif code >= CLOSED:
                self.streams[code - CLOSED].close()
            else:
                self._received.append((code, time.monotonic()))
        return bool(codes)

    def received(self, number: int, since: float) -> bool:
        """Return whether it too received a signal, which counts for one of ours."""
        self.read_messages()
        for one in self._received:
            if one[0] == number and one[1] >= since:
                self._received.remove(one)
                return True
        return False

    def drain(self, timeout: float) -> None:
        """Wait until everything in the streams has been copied."""
        self._drained = False
        until = time.monotonic() + timeout
        try:
            os.write(self._orders, b"d")
        except OSError:
            return
        while not self._drained and time.monotonic() < until:
            select.select(self.descriptors(), [], [], 0.1)
            if not self.read_messages():
                return

    def close_inner(self) -> None:
        """Close the command's ends here, so that a stream ends with its last other holder."""
        for stream in self.streams:
            os.close(stream.inner)
            stream.inner = -1

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for end in self._orders, self._messages:
            if end >= 0:
                os.close(end)
        self._orders = self._messages = -1


class _Copier:
    """The copying process."""

    def __init__(self, streams: list[Stream], folder: Path | None, orders: int, messages: int) -> None:
        self._orders, self._messages = orders, messages
        self._open = {stream.source: (number, stream) for number, stream in enumerate(streams) if not stream.closed}
        self._logs = {source: StreamLog(folder, stream.name) for source, (_, stream) in self._open.items()}
        for stream in streams:
            if stream.inner >= 0:
                os.close(stream.inner)
        for source in self._open:
            os.set_blocking(source, False)

    def work(self) -> None:
        """Copy until no process holds the streams any more."""
        for number in FORWARDED:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._messages, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for source in list(self._open):
            self._pass_on(source)
        while self._open:
            orders = [self._orders] if self._orders >= 0 else []
            ready = select.select([*self._open, *orders], [], [])[0]
            if self._orders not in ready:
                size = sum(self._copy(source) for source in ready)
                terminals = [source for source, (_, stream) in self._open.items() if stream.tty]  # of a small room
                if size < SMALL and not select.select(terminals, [], [], 0)[0]:
                    time.sleep(NAP_S)
            elif os.read(self._orders, 16):
                pieces = 0  # limited, since an orphan may go on printing
                while pieces < PIECES and any(list(map(self._copy, list(self._open)))):
                    pieces += 1
                self._send(DRAINED)
            else:  # the wrapper has gone
                os.close(self._orders)
                self._orders = -1

    def _send(self, code: int) -> None:
        with suppress(OSError):
            os.write(self._messages, bytes((code,)))

    def _copy(self, source: int) -> int:
        """Copy one piece of a stream; return its length."""
        _, stream = self._open[source]
        try:
            piece = os.read(source, PIECE)
        except BlockingIOError:
            return 0
        except OSError:  # of a pty: its last holder has closed it
            piece = b""
        if piece:
            stream.held[: HELD.size + len(piece)] = HELD.pack(0, len(piece)) + piece
            self._logs[source].save(piece)  # first: our own output may be read slowly
            self._pass_on(source)
        else:
            self._close(source)
        return len(piece)

    def _close(self, source: int) -> None:
        del self._open[source]
        os.close(source)

    def _pass_on(self, source: int) -> None:
        """Write what is held of a stream to its destination. Where that has no reader the child must notice it."""
        (number, stream), held = self._open[source], self._open[source][1].held
        done, end = HELD.unpack_from(held)
        while done < end:
            begin = HELD.size + done
            most = min(begin + ATOMIC, HELD.size + end)
            try:
                select.select([], [stream.outer], [])  # if we are killed while we wait, nothing is written twice
                done += os.write(stream.outer, held[begin : held.rfind(b"\n", begin, most) + 1 or most])
            except BlockingIOError:  # another process made it so, and wrote first
                pass
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EIO, errno.EBADF):
                    self._send(CLOSED + number)
                    return self._close(source)
                done = end  # a full disk loses this piece
            HELD.pack_into(held, 0, done, end)
        return None


# ── the file of a stream ────────────────────────────────────────────────────────────────────────────────────

MOST_BYTES = 1 << 28  # bytes of both streams
PART = MOST_BYTES // 6
RESERVE = 1 << 28  # free bytes
LOOK_S = 0.1  # between two looks at the disk


class StreamLog:
    """The file of one stream. Never raises."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder / f"{name}.log" if folder else None
        self._file, self._size = -1, 0
        self._at_line_start = True
        self._room, self._due = True, 0.0
        self._lost = self._told = False
        if self._path:
            self._open(os.O_APPEND)

    def _open(self, how: int) -> None:
        try:
            assert self._path
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            self._report(str(error.strerror))

    def save(self, piece: bytes) -> None:
        """Append a piece of the stream."""
        if self._file < 0:
            return
        time_stamp = stamp(time.time()).encode("ascii") + b" "
        text = piece.replace(b"\n", b"\n" + time_stamp)
        if self._at_line_start or self._lost:
            text = (b"\n" if self._lost else b"") + time_stamp + text
        self._at_line_start = piece.endswith(b"\n")
        if self._at_line_start:
            text = text[: -len(time_stamp)]
        self._lost = True
        try:
            if not self._has_room():
                os.utime(self._file)  # the job is not silent
                return self._report("too little space is left on the disk")
            while text:
                text = text[os.write(self._file, text) :]
            self._lost = False
            if os.fstat(self._file).st_size >= PART:
                self._rotate()
        except OSError as error:
            self._report(str(error.strerror))
        return None

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LOOK_S
            with suppress(OSError):
                self._room = has_room(self._file, RESERVE)
        return self._room

    def _rotate(self) -> None:
        """Begin another file, in place of the middle of the output."""
        assert self._path
        first, before = (self._path.with_name(f"{self._path.name}.{number}") for number in (2, 1))
        self._path.replace(before if first.exists() else first)
        os.close(self._file)
        self._file, self._at_line_start = -1, True
        self._open(os.O_EXCL)

    def _report(self, why: str) -> None:
        if not self._told and self._path:
            self._told = True
            print_line(f"{self._path.name} is incomplete; the command continues: {why}")
