"""Of a folder of labelled incidents: for how many does the report's own replay hint lead to a
replay with the same pattern?

    python scripts/replay_hits.py CASES_DIR [--run N] [--cache FILE] [--only WORD]

A case is CASES_DIR/<id>/logs. Each is analysed, its document gives scenario and arguments
(`postmortem.replay.pick`), and the replay is run here, one at a time; equal replays are run once and
remembered in the cache. Without --run it only lists the replays. The last line is JSON with the counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.analyze import analyze
from postmortem.errors import PostmortemError
from postmortem.replay import pick
from postmortem.replay.verify import Order, Ready, Result, differences, prepare, verify

Cache = dict[str, dict[str, Any]]


def key(ready: Ready) -> str:
    return json.dumps(
        [ready.plan.scenario.id, ready.plan.nproc, ready.backend, sorted(ready.plan.arguments.items())],
        default=str,
    )


def replayed(order: Order, cache: Cache, may_run: bool) -> tuple[str, str]:
    """An outcome and a remark; `waiting` where it was neither run before nor may be run now."""
    ready = prepare(order)
    if isinstance(ready, Result):
        return ready.outcome, ready.text
    name = key(ready)
    if name not in cache:
        if not may_run:
            return "waiting", ""
        cache[name] = dict(verify(ready).found)
    found = cache[name]
    verdict = {**found, "culprit": {"ranks": found["ranks"]}}
    differs = differences(ready.expected, {"verdict": verdict})
    return (
        ("different", f"{', '.join(differs)}: {found['pattern']} {found['ranks']}") if differs else ("reproduced", "")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Count incidents whose replay hint shows the same pattern again.")
    parser.add_argument("cases", type=Path)
    parser.add_argument(
        "--run", type=int, default=0, metavar="N", help="run at most N replays that are not in the cache"
    )
    parser.add_argument("--cache", type=Path, default=Path("replay-hits.json"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    cache: Cache = json.loads(args.cache.read_text()) if args.cache.exists() else {}
    counts: Counter[str] = Counter()
    known = len(cache)
    for case in sorted(path.parent for path in args.cases.glob("*/logs") if args.only in path.parent.name):
        document = analyze([str(case / "logs")]).document
        verdict = document["verdict"]
        try:
            order = pick.order(document)
        except PostmortemError as error:
            counts["healthy" if verdict["outcome"] == "healthy" else "no scenario"] += 1
            print(f"{case.name:48} {verdict['pattern'] or verdict['outcome']:34} -  {error.message}", flush=True)
            continue
        outcome, remark = replayed(order, cache, len(cache) - known < args.run)
        if outcome == "reproduced" or outcome == "different":
            args.cache.write_text(json.dumps(cache, indent=1))
        counts[outcome] += 1
        print(f"{case.name:48} {verdict['pattern']!s:34} {order.scenario.id:28} {outcome} {remark}", flush=True)
    print(json.dumps({"cases": counts.total(), **counts, "replays": len(cache)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
