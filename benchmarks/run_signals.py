"""Signals at random moments: does `postmortem run` keep the exit code, leave no orphan and a whole folder?

    python benchmarks/run_signals.py [--moments 100] [--seed 18] [--at-once 2] [--out TABLE.md]

Each of eight signals to the wrapper, to torchrun and to a rank, in the first seconds of a short job. SIGSTOP
is followed by SIGCONT a second later. Exit 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from run_moments import NUMBERS, TARGETS, Moment, broken, random_moments


def main() -> int:
    parser = argparse.ArgumentParser(description="Signals to jobs under postmortem run.")
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sent, good, began = Counter[tuple[str, str]](), Counter[tuple[str, str]](), time.monotonic()

    def one(moment: Moment) -> tuple[Moment, list[str]]:
        with tempfile.TemporaryDirectory(prefix="postmortem-signals-") as folder:
            return moment, broken(Path(folder), moment)

    with ThreadPoolExecutor(args.at_once) as pool:
        for moment, faults in pool.map(one, random_moments(args.moments, args.seed)):
            key = moment.name, moment.to
            sent[key] += 1
            good[key] += not faults
            result = "; ".join(faults) or "all promises hold"
            print(f"{moment}: {result}", flush=True)
    rows = ["| signal | " + " | ".join(f"to the {to}" for to in TARGETS) + " |", "|---" * 4 + "|"]
    for name in NUMBERS:
        cells = [f"{good[name, to]} of {sent[name, to]}" for to in TARGETS]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    print("\n".join(rows))
    print(f"{sum(good.values())} of {sum(sent.values())} moments, {time.monotonic() - began:.0f} s")
    if args.out:
        args.out.write_text("\n".join(rows) + "\n")
    return int(good != sent)


if __name__ == "__main__":
    sys.exit(main())
