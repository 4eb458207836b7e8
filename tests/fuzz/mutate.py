"""Samples -> inputs that look like logs: spliced, cut, repeated, with odd numbers and bytes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

MOST = 32 << 10  # bytes of an input
NUMBERS = [
    b"0", b"-1", b"00", b"1e999", b"-0", b"NaN", b"inf", b"2147483648", b"4294967296", b"9223372036854775808",
    b"9" * 19, b"9" * 40, b"9" * 5000, b"0x7fffffffffffffff", "\u00b2".encode(), "\u0663\u0664".encode(), b"1_000", b"1e5", b"",
]  # fmt: skip
TOKENS = [
    b"\x00", b"\r", b"\n", b"\r\n", b"\x1b[31m", b"\x1b]9;0123456789ab;1;[2]\x07", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b"\xe2\x80\xa8", b"\x85", b"\x0b", b"\x1c", b"\\", b'"', b"'", b"{", b"}", b"[", b"]", b"<script>", b"</script", b"../../etc/passwd",
    b"/etc/passwd", b"file:///etc/passwd", b"http://169.254.169.254/", b"!!python/object/apply:os.system", b"cos\nsystem\n(S'id'\ntR.",
    b"\x80\x04\x95", b"\x80\x02}q\x00", b"Traceback (most recent call last):\n", b'  File "a.py", line 3, in f\n', b"ValueError: x\n",
    b"Fatal Python error: Aborted\n", b"Thread 0x00007f (most recent call first):\n", b"Root Cause (first observed failure):\n",
    b"  exitcode  : -9 (pid: 12) (SIGKILL)\n", b"[rank1]: ", b"[default0]:", b"1: ", b"(pid=12, ip=10.0.0.1) ",
    b"2026-02-30 25:61:61,999 ", b"[99999999999999.999999] ", b"2026-11-20T03:12:08.123456789Z stdout F ", b"<165>1 ",
    b'{"message": {"message": 3}}\n', b'{"log": "x\\n", "stream": "stderr", "time": "2026-11-20T03:12:08Z"}\n', b"level=error msg=",
    b"NCCL WARN ", b" 12%|\xe2\x96\x88 | 12/100 [00:01<00:08, 10.2it/s]", "\u256d\u2500 Traceback (most recent call last) \u2500\u256e\n".encode(),
    b"{{7*7}}", b"${HOME}", b"$(id)", b"%s%n", b"\t", b" " * 300, b"(" * 200, b"[" * 2000, b'{"a":' * 1200, b"None", b"null", b"true",
]  # fmt: skip
_NUMBER = re.compile(rb"\d+")


def made(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One input: a sample, or two spliced, changed in a few places."""
    data = rng.choice(seeds)
    if rng.random() < 0.25:
        data = _spliced(data, rng.choice(seeds), rng)
    for _ in range(1 + int(rng.expovariate(0.6))):
        data = rng.choice(_WAYS)(data, rng)
    return data[:MOST]


def _at(data: bytes, rng: random.Random) -> int:
    return int(rng.random() * (len(data) + 1))


def _spliced(a: bytes, b: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return a[: _at(a, rng)] + b[_at(b, rng) :]
    lines = [*a.splitlines(True), *b.splitlines(True)]
    rng.shuffle(lines)
    return b"".join(lines[:60])


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = _at(data, rng)
    return data[:at] + bytes([int(rng.random() * 256)]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    at = _at(data, rng)
    return data[:at] + data[at + int(rng.expovariate(0.05)) :]


def _token(data: bytes, rng: random.Random) -> bytes:
    at = _at(data, rng)
    return data[:at] + rng.choice(TOKENS) + data[at:]


def _number(data: bytes, rng: random.Random) -> bytes:
    found = [m.span() for m in _NUMBER.finditer(data[:4000])]
    if not found:
        return _token(data, rng)
    start, end = rng.choice(found)
    return data[:start] + rng.choice(NUMBERS) + data[end:]


def _again(data: bytes, rng: random.Random) -> bytes:
    """A part, several times: deep nesting, long lines, many lines."""
    start = _at(data, rng)
    part = data[start : start + 1 + int(rng.expovariate(0.02))]
    times = rng.choice((2, 3, 10, 100)) if len(part) < 200 else 2
    return data[:start] + part * times + data[start:]


def _moved(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(True)
    if len(lines) < 2:
        return _flip(data, rng)
    lines.insert(int(rng.random() * len(lines)), lines.pop(int(rng.random() * len(lines))))
    return b"".join(lines)


def _noise(data: bytes, rng: random.Random) -> bytes:
    at = _at(data, rng)
    return data[:at] + rng.randbytes(1 + int(rng.expovariate(0.2))) + data[at:]


def _wrapped(data: bytes, rng: random.Random) -> bytes:
    """In a collector's records."""
    text = data[:3000].decode("utf-8", "replace")
    field = rng.choice(("log", "message", "msg", "textPayload", "line", "MESSAGE", "body", "event"))
    if rng.random() < 0.3:
        return json.dumps({field: text, "time": "2026-11-20T03:12:08Z"}, ensure_ascii=rng.random() < 0.5).encode()
    rows = [json.dumps({field: line, "rank": 1}) for line in text.split("\n")[:20]]
    return "\n".join(rows).encode() if rng.random() < 0.6 else f"[{','.join(rows)}]".encode()


def _prefixed(data: bytes, rng: random.Random) -> bytes:
    lead = rng.choice(TOKENS[26:])[:60].rstrip(b"\n")
    return b"".join(lead + line for line in data[:6000].splitlines(True))


_WAYS = [_flip, _flip, _cut, _cut, _token, _token, _token, _number, _number, _number, _again, _moved, _noise,
         _wrapped, _prefixed]  # fmt: skip
