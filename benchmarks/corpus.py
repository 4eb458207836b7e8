"""Seeded logs with their truth: the planted lines and the culprit.

    make(folder, ranks=64, size=16 << 20, seed=3).events
    ->   [Planted("node-000/rank0.log", 1204, "cuda-illegal-address"), ...]

Each rank writes the lines of healthy jobs (decoys such as `killed=0` included) under its own number, with one
event in `every` lines: an example of a shipped pattern. The last lines are one failure: the kernel kills the
process of one rank for memory, the other ranks lose their peer, the launcher reports signal 9. The same
arguments give the same bytes.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

EVERY = 1000
PER_HOST = 8
POOL_LINES = 24_000
RANK, HOST, LOCAL, PID = "\x01r", "\x01h", "\x01l", "\x01p"
DAY = "2026-11-20"


class Planted(NamedTuple):
    path: str
    line: int
    pattern: str


class Corpus(NamedTuple):
    folder: Path
    events: list[Planted]
    lines: dict[str, int]  # of each file
    bytes: int
    culprit: int  # the rank whose process the kernel killed; -1 without a failure


class _Token(str):
    """Replaces a number in a template, whatever its format."""

    def __format__(self, spec: str) -> str:
        return str(self)


def plantable(roles: Sequence[str] = ("cause", "symptom", "confirms", "context")) -> list[tuple[str, bytes]]:
    """Return (pattern, line) for each shipped example of one line that the scanner reads,
    and that no pattern of another role matches."""
    from postmortem.blocks import read_text
    from postmortem.library import load

    library = load()
    scanned = {s.id for s in library.signatures()}
    found = []
    for pattern in library.patterns.values():
        for example in pattern.matches:
            text = example.text.strip("\n")
            if pattern.id in scanned and pattern.role in roles and text and "\n" not in text:
                roles_read = {known.role for e in read_text(text) if (known := library.get(e.pattern)) is not None}
                if roles_read <= set(roles):
                    found.append((pattern.id, text.encode()))
    return found


def gates(signatures: Iterable[Any]) -> bytes:
    """The gates as ripgrep reads them with --no-unicode, one a line: letters beyond ASCII as their bytes."""
    from postmortem.scan import gate_of

    every = b"".join(gate_of(signature) + b"\n" for signature in signatures)
    return re.sub(rb"[\x80-\xff]", lambda m: b"\\x%02X" % m[0][0], every)


def make(
    folder: Path,
    ranks: int,
    size: int,
    seed: int,
    every: int = EVERY,
    story: bool = True,
    roles: Sequence[str] = ("context", "symptom"),
) -> Corpus:
    """Write `ranks` logs of about `size` bytes each into folders of eight ranks,
    and one kernel log for each host."""
    rng = random.Random(seed)
    culprit = rng.randrange(ranks) if story else -1
    pool = _pool(seed, min(POOL_LINES, size // 100 + 50))
    events = plantable(roles)
    planted: list[Planted] = []
    counts: dict[str, int] = {}
    total = 0
    for rank in range(ranks):
        name = f"node-{rank // PER_HOST:04d}/rank{rank}.log"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, here = _lines(_own(pool, rank), size, every, events, rng)
        planted += [Planted(name, line, pattern) for line, pattern in here]
        lines += _end(rank, culprit) if story else []
        data = b"\n".join(lines) + b"\n"
        path.write_bytes(data)
        counts[name] = data.count(b"\n")
        total += len(data)
    if story:
        total += _kernel(folder / f"node-{culprit // PER_HOST:04d}" / "dmesg.txt", culprit)
    return Corpus(folder, planted, counts, total, culprit)


def _pool(seed: int, count: int) -> bytes:
    """Lines of a healthy rank, with marks where its number, host and pid go."""
    from postmortem.scan.cost import OTHERS, STEPS

    rng = random.Random(seed)
    out = []
    for step in range(1, count + 1):
        template = STEPS[step % len(STEPS)] if rng.random() < 0.75 else OTHERS[int(rng.random() * len(OTHERS))]
        out.append(template.format(**_values(rng, step)))
    return "\n".join(out).encode()


def _values(rng: random.Random, step: int) -> dict[str, object]:
    x = rng.random()
    seconds = step // 4 % 86400
    marks = {"rank": _Token(RANK), "local": _Token(LOCAL), "host": _Token(HOST), "pid": _Token(PID)}
    clock = {
        "day": DAY,
        "time": f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}",
        "sub": int(x * 999),
    }
    return {
        **marks,
        **clock,
        "n": step,
        "epoch": step % 30,
        "big": int(x * 1e10),
        "ms": x * 900,
        "loss": 2 + x,
    }


def _own(pool: bytes, rank: int) -> list[bytes]:
    text = pool.replace(RANK.encode(), b"%d" % rank).replace(LOCAL.encode(), b"%d" % (rank % PER_HOST))
    return (
        text.replace(HOST.encode(), b"%04d" % (rank // PER_HOST)).replace(PID.encode(), b"%d" % pid(rank)).split(b"\n")
    )


def pid(rank: int) -> int:
    return 20_000 + rank


def _lines(
    pool: list[bytes], size: int, every: int, events: list[tuple[str, bytes]], rng: random.Random
) -> tuple[list[bytes], list[tuple[int, str]]]:
    """Healthy lines up to `size` bytes, from the start of the pool again and
    again, with events in between."""
    out: list[bytes] = []
    planted: list[tuple[int, str]] = []
    have = at = 0
    for gap in _gaps(rng, every):
        for _ in range(gap):
            out.append(pool[at])
            have += len(pool[at]) + 1
            at = (at + 1) % len(pool)
            if have >= size:
                return out, planted
        name, text = events[int(rng.random() * len(events))]
        out.append(text)
        have += len(text) + 1
        planted.append((len(out), name))
    return out, planted


def _gaps(rng: random.Random, every: int) -> Iterator[int]:
    while True:
        yield int(rng.random() * 2 * every) if every > 1 else 0


def _end(rank: int, culprit: int) -> list[bytes]:
    if rank == culprit:
        return []
    host, stamp = (
        culprit // PER_HOST,
        f"[rank{rank}]:[E1120 05:12:{8 + rank % 50:02d}.{rank % 1000:03d}000000 ProcessGroupGloo.cpp:145]",
    )
    text = f"Connection closed by peer [10.0.{host // 250}.{host % 250 + 1}]:{40000 + culprit}"
    return [
        f"{stamp} Rank {rank} failed to pass monitoredBarrier in 1800000 ms".encode(),
        b"Traceback (most recent call last):",
        b'  File "/opt/train/train.py", line 118, in <module>',
        b"    loss.backward()",
        f"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] {text}".encode(),
    ]


def _kernel(path: Path, culprit: int) -> int:
    """The kernel's log of the host on which memory ran out."""
    start = 86_400.0
    lines = [
        f"[{start + n * 7:.6f}] mlx5_core 0000:5e:00.0 eth{n % 8}: flow control enabled, no errors since boot"
        for n in range(4000)
    ]
    lines += [
        (
            f"[{start + 30000:.6f}] python3 invoked oom-killer: "
            f"gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0"
        ),
        (
            f"[{start + 30000.1:.6f}] Out of memory: Killed process {pid(culprit)} (python3) "
            f"total-vm:98301120kB, anon-rss:64321024kB, "
            "file-rss:512kB, shmem-rss:0kB, UID:1000 pgtables:131072kB oom_score_adj:0"
        ),
    ]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(data)
    return len(data)
