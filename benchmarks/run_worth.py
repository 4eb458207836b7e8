"""What `postmortem run` is worth: failing scenarios of `postmortem replay`, once alone and once under it.

    python benchmarks/run_worth.py [--jobs 60] [--at-once 2] [--only WORD] [--kind KIND] [--out TABLE.md]

Both have a saved console, no kernel log, and no stacks. *Right* is the category
and the ranks at fault; *established* is right as well. Prints a line for each job, then the table of kinds.
Exit 1 where a verdict is worse under `run`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.analyze import analyze
from postmortem.replay import run as replay
from postmortem.replay.catalogue import SCENARIOS, Scenario
from postmortem.replay.isolate import CannotIsolate, Place
from postmortem.replay.plan import Plan
from postmortem.replay.verify import Expected, Order, Ready, Result, prepare

ROOT = Path(__file__).resolve().parent.parent
WRAPPER = [sys.executable, "-m", "postmortem", "run", "--keep", "always", "--no-analyze", "--folder"]
KINDS = {
    "host-oom": "killed for memory",
    "external-signal": "killed or stopped from outside",
    "hang": "hang",
    "collective-mismatch": "mismatch of collectives",
    "native-crash": "native crash",
    "python-exception": "exception",
    "rendezvous": "rendezvous",
    "network": "rendezvous",
}


@dataclass(frozen=True)
class Job:
    """One scenario with one rank at fault."""

    row: Scenario
    rank: int

    def ready(self) -> Ready | None:
        order = Order(self.row, {"rank": self.rank}, backend="gloo")
        found = prepare(order)
        return None if isinstance(found, Result) else found

    @property
    def kind(self) -> str:
        return KINDS.get(self.row.category or "", "storage, resources, data")


@dataclass(frozen=True)
class Verdict:
    right: bool
    established: bool
    text: str


def jobs(most: int, only: str, kind: str) -> list[Job]:
    """Each scenario that fails, with the rank that it names; then again with another one."""
    rows = [r for r in SCENARIOS if r.pattern and only in r.id and "gpu" not in r.needs and "netns" not in r.needs]
    first = [Job(row, int(row.arguments.get("rank", 1))) for row in rows]
    again = [Job(job.row, 0 if job.rank else 1) for job in first if job.row.culprit == "rank"]
    return [job for job in (*first, *again) if kind in job.kind and job.ready() is not None][:most]


def once(job: Job, wrapped: bool) -> Verdict | None:
    ready = job.ready()
    assert ready is not None
    plan = replace(ready.plan, scenario=replace(job.row, look=False))
    plan = replace(plan, save="console") if plan.launcher == "torchrun" else plan

    def under_run(plan: Plan, made: Place, port: int) -> list[replay.Process]:
        env = {"PYTHONPATH": str(ROOT)}
        return [
            replace(p, argv=[*WRAPPER, str(made.logs / "runs" / p.name), "--", *p.argv], env=p.env | env)
            for p in replay.processes(plan, made, port)
        ]

    try:
        with replay.run(plan, started=under_run if wrapped else replay.processes) as ran:
            for kernel in ran.place.logs.rglob("dmesg.txt"):
                kernel.unlink()
            inputs = ran.place.logs / "runs" if wrapped else ran.place.logs
            verdict = analyze([str(inputs)]).document["verdict"]
    except CannotIsolate:
        return None
    return judged(ready.expected, dict(verdict))


def judged(expected: Expected, verdict: dict[str, Any]) -> Verdict:
    ranks = tuple(verdict["culprit"]["ranks"])
    right = verdict["category"] in expected.categories and expected.ranks in (None, ranks)
    text = f"{verdict['category']} {list(ranks)} {verdict['confidence']}: {verdict['headline']}"
    return Verdict(right, verdict["confidence"] == "established", text)


def both(job: Job) -> tuple[Job, Verdict | None, Verdict | None]:
    return job, once(job, False), once(job, True)


def table(rows: list[tuple[Job, Verdict, Verdict]]) -> str:
    by_kind: dict[str, list[tuple[Verdict, Verdict]]] = defaultdict(list)
    for job, bare, under in rows:
        by_kind[job.kind].append((bare, under))
        by_kind["all"].append((bare, under))
    ordered = sorted(by_kind, key=lambda kind: (kind == "all", kind))
    out = [
        "| | jobs | right, alone | established, alone | right, under `run` | established, under `run` |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ordered:
        pairs = by_kind[kind]
        counts = [
            sum(v.right and (v.established or not strict) for v in column)
            for column in zip(*pairs, strict=True)
            for strict in (False, True)
        ]
        out.append(f"| {kind} | {len(pairs)} | {' | '.join(map(str, counts))} |")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description="Verdicts with and without `postmortem run`.")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began, rows = time.monotonic(), []
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    with ThreadPoolExecutor(args.at_once) as pool:
        for job, bare, under in pool.map(both, jobs(args.jobs, args.only, args.kind)):
            if bare is None or under is None:
                print(f"{job.row.id}: could not run here", flush=True)
                continue
            rows.append((job, bare, under))
            for name, v in (("alone", bare), ("run", under)):
                mark = "right" if v.right else "WRONG"
                print(f"{job.row.id} rank {job.rank} {name:5} {mark} {v.text}", flush=True)
    print(f"\n{table(rows)}\n\n{len(rows)} jobs, {time.monotonic() - began:.0f} s", flush=True)
    if args.out:
        args.out.write_text(table(rows) + "\n")
    return int(any(bare.right and not under.right for _, bare, under in rows))


if __name__ == "__main__":
    sys.exit(main())
