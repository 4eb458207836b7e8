"""A pattern -> its cost on a log in which nothing is wrong.

    cost(Engine.compile([Signature("x", gate="loss")]), healthy(1 << 20))  ->  2504.0  callbacks for each MiB

One bad gate halves the speed of all of them: `loss`, `NCCL INFO ` or `Rank ` are on every line of a healthy log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from postmortem.scan.engine import Engine
from postmortem.system import forms

_LINES = forms.rows("scan/healthy")
STEPS, OTHERS = _LINES["steps"]["lines"], _LINES["others"]["lines"]  # templates


def healthy(size: int, seed: int = 1) -> bytes:
    """Return `size` bytes, or a few more, of a healthy rank's console. The same seed gives the same bytes."""
    out = bytearray()
    lines = healthy_lines(seed)
    while len(out) < size:
        out += next(lines)
    return bytes(out)


def healthy_lines(seed: int = 1) -> Iterator[bytes]:
    """Yield lines of a healthy rank's console without end: mostly steps, a few progress bars."""
    rng = random.Random(seed)
    step = 0
    while True:
        step += 1
        kind = rng.random()
        if kind < 0.004:
            bars = [
                (
                    f"\rEpoch {step % 30}:  {n:2d}%|{'█' * (n // 4)}{' ' * (25 - n // 4)}| {n}/100 "
                    f"[00:{n // 2:02d}<00:12, {rng.random() * 9:.2f}it/s]"
                )
                for n in range(0, 100, 4)
            ]
            yield "".join(bars).encode() + b"\n"
            continue
        template = STEPS[step % len(STEPS)] if kind < 0.75 else OTHERS[int(rng.random() * len(OTHERS))]
        yield (template.format(**_values(rng, step)) + "\n").encode()


def _values(rng: random.Random, step: int) -> dict[str, object]:
    x = rng.random()
    seconds = step // 4 % 86400
    rank = int(x * 512)
    return {
        "day": "2026-11-20",
        "time": f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}",
        "n": step,
        "epoch": step % 30,
        "big": int(x * 1e10),
        "ms": x * 900,
        "loss": 2 + x,
        "sub": int(x * 999),
        "rank": rank,
        "local": rank % 8,
        "host": rank // 8,
        "pid": 10000 + int(x * 50000),
    }


def cost(engine: Engine, corpus: bytes) -> float:
    """Return the callbacks of the engine for each MiB of `corpus`: 0 for good gates, a slower scan from 20 on."""
    return len(engine.find(corpus)) / (len(corpus) / (1 << 20))
