"""What `postmortem run` costs a job that prints 10,000 lines a second: wall time in pairs.

    python benchmarks/run_cost.py [--pairs 400]

One process does the same work again and again, a tenth of a second each. It prints a thousand lines in turn
to its standard output, which `postmortem run` takes, and to a file of its own, so both halves of a pair see
the same machine: whole runs side by side differ by a fifth on a shared host. The control prints into files
both times. Prints the median ratio of each and its 95 % interval by resampling.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
LINES = 1000
SECONDS = LINES / 10_000
LINE = "epoch 0 step %d loss 2.3050 grad_norm 0.4182 lr 0.01 tokens/s 123456 mem 12.3 GiB and more words\n"
DRAINED = 0.03  # seconds in which the process that copies has taken what came


def work(rounds: int) -> int:
    total = 0
    for k in range(rounds):
        total += k
    return total


def part(out: TextIO, rounds: int) -> float:
    """Seconds for a thousand steps that print."""
    began = time.perf_counter()
    for step in range(LINES):
        work(rounds)
        out.write(LINE % step)
        if step % 100 == 99:
            out.flush()
    return time.perf_counter() - began


def rounds_per_line() -> int:
    """So much work that a thousand lines take a tenth of a second."""
    began = time.perf_counter()
    work(2_000_000)
    return int(2_000_000 * SECONDS / LINES / (time.perf_counter() - began))


def job(pairs: int) -> None:
    rounds = rounds_per_line()
    with tempfile.TemporaryFile("w") as own:
        for pair in range(pairs):
            took = {}
            for out in (sys.stdout, own) if pair % 2 else (own, sys.stdout):
                took[out is own] = part(out, rounds)
                time.sleep(DRAINED)
            print(took[False] / took[True], took[True], file=sys.stderr)


def measured(name: str, wrapper: list[str], pairs: int) -> None:
    command = [*wrapper, sys.executable, __file__, "--job", "--pairs", str(pairs)]
    with tempfile.TemporaryFile() as out:
        errors = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=True, cwd=ROOT).stderr
    rows = [list(map(float, line.split())) for line in errors.splitlines() if line[:1].isdecimal()]
    ratios = [ratio for ratio, _ in rows]
    again = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(4000))
    low, high = again[100], again[3899]
    rate = LINES / statistics.median(seconds for _, seconds in rows)
    print(
        f"{name:<22} {100 * (statistics.median(ratios) - 1):+.2f} % ({100 * (low - 1):+.2f} to "
        f"{100 * (high - 1):+.2f}), {len(rows)} pairs, {rate:,.0f} lines a second"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--pairs", type=int, default=400)
    arguments.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.job:
        return job(given.pairs)
    with tempfile.TemporaryDirectory() as folder:
        measured("file and file", [], given.pairs)
        wrapper = [sys.executable, "-m", "postmortem", "run", "--folder", str(Path(folder, "runs")), "--"]
        measured("postmortem run and file", wrapper, given.pairs)


if __name__ == "__main__":
    main()
