"""Runs targets: stored inputs first, then made ones; each watched, in limited time and memory.

A find is one line with the target, the seed and the number of the execution, which make the same input again.
"""

from __future__ import annotations

import gc
import hashlib
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import mutate
from fuzz.targets import TARGETS, Target, gone, own
from fuzz.watch import Slow, in_memory, in_time, watched

CORPUS = Path(__file__).parent / "corpus"
MOST = 5  # finds of one target, of different places


@dataclass
class Outcome:
    """The result of a target's run."""

    target: str
    seed: int
    tried: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    finds: dict[str, str] = field(default_factory=dict)  # place -> how to see it again
    slow_input: bytes = b""

    def __str__(self) -> str:
        rate = self.tried / self.seconds if self.seconds else 0.0
        found = "".join(f"\n    FIND {place}\n      {how}" for place, how in self.finds.items())
        return f"{self.target:22} seed {self.seed:<8} {self.tried:>9,} executions  {rate:>7,.0f}/s  slowest {self.slowest * 1000:6.0f} ms{found}"


def stored(target: Target) -> Iterator[bytes]:
    """Inputs of this target, and of all, that failed once."""
    for folder in (CORPUS / "all", CORPUS / target.name):
        yield from (path.read_bytes() for path in sorted(folder.glob("*")) if path.is_file())


def run(target: Target, executions: int, seed: int, *, seconds: float = 1e9, keep: Path | None = None) -> Outcome:
    """Try a target. `keep`: a folder for the inputs that fail."""
    outcome = Outcome(target.name, seed)
    seeds = target.seeds()
    _once(target, seeds[0])  # the time of first uses is no input's fault
    rng = random.Random(f"{target.name} {seed}")
    end = time.monotonic() + seconds
    start = time.process_time()
    try:
        with in_memory():
            for data in stored(target):
                _try(target, data, outcome, keep)
        while outcome.tried < executions and len(outcome.finds) < MOST and time.monotonic() < end:
            gc.collect()
            with in_memory():
                for _ in range(min(100, executions - outcome.tried)):
                    _try(target, mutate.made(seeds, rng), outcome, keep)
    finally:
        gone()
    outcome.seconds = time.process_time() - start
    return outcome


def _once(target: Target, data: bytes) -> None:
    with suppress(Exception):
        target.run(data)


def _try(target: Target, data: bytes, outcome: Outcome, keep: Path | None) -> None:
    outcome.tried += 1
    start = time.thread_time()
    try:
        with in_time(), watched(own()):
            target.run(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        place = _place(error)
        name = hashlib.sha256(data).hexdigest()[:12]
        run = f"--target {target.name} --seed {outcome.seed}, execution {outcome.tried}"
        outcome.finds.setdefault(place, f"{run}, {len(data)} bytes, {name}: {data[:200]!r}")
        if keep is not None and len(data) < 1 << 16:
            (keep / target.name).mkdir(parents=True, exist_ok=True)
            (keep / target.name / name).write_bytes(data)
        gone()
    spent = time.thread_time() - start
    if spent > outcome.slowest:
        outcome.slowest, outcome.slow_input = spent, data


def _place(error: BaseException) -> str:
    """Where an exception comes from: the innermost line of ours."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "postmortem/" in f.filename]
    ours = [f for f in frames if "/tests/" not in f.filename] or frames
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    kind = "Slow" if isinstance(error, Slow) else type(error).__name__
    return f"{kind} at {where}: {str(error)[:200]}"


def shares(executions: int, only: str = "") -> Iterator[tuple[Target, int]]:
    """How many executions each target gets."""
    chosen = [t for name, t in TARGETS.items() if only in ("", name)]
    whole = sum(t.share for t in chosen)
    for target in chosen:
        yield target, max(1, round(executions * target.share / whole))
