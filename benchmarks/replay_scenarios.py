"""Every scenario, a few times over: does its replay show what it promises?

    python benchmarks/replay_scenarios.py [--runs 3] [--at-once 2] [--only WORD]
        [--backend auto|nccl|gloo] [--out TABLE.md]

Prints one line for each scenario: the table scenario x backend x result. Exit 1 if one that could run was not
reproduced every time. Most of a replay of a hang is waiting: two at once fit on two cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.replay.catalogue import SCENARIOS, Scenario
from postmortem.replay.verify import Order, Result, prepare, verify


def replayed(row: Scenario, backend: str, keep: Path | None) -> Result:
    ready = prepare(Order(row, backend=backend))
    return ready if isinstance(ready, Result) else verify(ready, keep)


def line(row: Scenario, results: list[Result]) -> str:
    good = sum(result.outcome == "reproduced" for result in results)
    last = results[-1]
    rate = "could not run" if last.outcome == "could-not-run" else f"{good} of {len(results)}"
    odd = next((result.text for result in results if result.outcome != "reproduced"), "")
    slowest = max(result.seconds for result in results)
    return f"| {row.id} | {last.backend} | {rate} | {last.expected['pattern'] or 'healthy'} | {slowest:.0f} | {odd} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay every scenario and print the table.")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--backend", default="auto", choices=["auto", "nccl", "gloo"])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began, table, bad = time.monotonic(), [], 0
    rows = [row for row in SCENARIOS if args.only in row.id]

    def runs(row: Scenario) -> list[Result]:
        return [
            replayed(row, args.backend, args.keep / f"{row.id}-{n}" if args.keep else None) for n in range(args.runs)
        ]

    with ThreadPoolExecutor(args.at_once) as pool:
        for row, results in zip(rows, pool.map(runs, rows), strict=True):
            table.append(line(row, results))
            bad += any(result.outcome not in ("reproduced", "could-not-run") for result in results)
            print(table[-1], flush=True)
    head = "| scenario | backend | reproduced | pattern | seconds | remark |\n|---|---|---|---|---|---|\n"
    if args.out:
        args.out.write_text(head + "\n".join(table) + "\n")
    print(f"{len(table)} scenarios, {bad} not reproduced, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
