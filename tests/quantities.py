"""Composed logs of ranks that print times beside their steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

FWD = "step {step} loss {loss} grad_norm {norm} fwd {own:.4f}s step_time {whole:.4f}s"
BEGIN = datetime(2026, 11, 20, 12)
Own = Callable[[int, int, random.Random], float]  # rank, step -> seconds of its own work


def run_of(
    folder: Path,
    ranks: int = 4,
    steps: int = 40,
    slow: Mapping[int, float] | None = None,
    since: int = 0,
    line: str = FWD,
    own: Own | None = None,
    alone: bool = False,
    nan: int | None = None,
) -> Path:
    """Write one log for each rank. `alone`, no rank waits for the others; else all take as long as the slowest."""
    source = random.Random(ranks * steps)
    clocks = [0.0] * ranks
    texts: list[list[str]] = [[] for _ in range(ranks)]
    for step in range(steps):
        factors = [(slow or {}).get(rank, 1.0) if step >= since else 1.0 for rank in range(ranks)]
        times = [own(r, step, source) if own else 0.5 * f * source.uniform(0.95, 1.05) for r, f in enumerate(factors)]
        for rank, time in enumerate(times):
            whole = time if alone else max(times) + 0.02
            clocks[rank] += whole
            stamp = f"{BEGIN + timedelta(seconds=clocks[rank]):%Y-%m-%d %H:%M:%S,%f}"[:-3]
            loss, norm = ("nan", "nan") if nan is not None and step >= nan else (f"{4 - step / steps:.4f}", "0.98")
            printed = line.format(step=step, loss=loss, norm=norm, own=time, ms=time * 1000, whole=whole)
            texts[rank].append(f"{stamp} INFO [rank{rank}] train: {printed}")
    for rank, lines in enumerate(texts):
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    return folder
