"""Records a scenario as a sample incident, with the choices a site makes: ranks, launcher, log layout, time zones,
host names, logging style.

    python scripts/record_sample.py slow-rank --out sample_logs/slow-rank-of-four --nproc 4 --set rank=2
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.errors import ReplayError
from postmortem.replay import kernel, parameters
from postmortem.replay.catalogue import BY_ID
from postmortem.replay.isolate import CannotIsolate
from postmortem.replay.plan import Plan, planned
from postmortem.replay.record import write_sample
from postmortem.replay.run import run

LAYOUT = "torchrun: tree, redirect or console; plain: a file name with {rank} and perhaps {stream}"


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Record a scenario as a sample incident.")
    add = parser.add_argument
    add("scenario", choices=BY_ID, metavar="SCENARIO")
    add("--out", type=Path, required=True, help="the sample's folder, which must not exist")
    add("--backend", choices=("gloo", "nccl", "cpu:gloo"), help="another backend than the scenario's")
    add("--nproc", type=int, default=0, help="ranks in all")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the job, such as rank=2")
    add("--launcher", choices=["torchrun", "plain", "spawn", "two-hosts", "two-hosts-torchrun"])
    add("--save", help=LAYOUT)
    add("--script", default="train.py", help="the name the job runs under")
    add("--record", action="store_true", help="the job's main() is wrapped in @record")
    add("--restarts", type=int, default=0)
    add("--rendezvous", choices=["static", "c10d"])
    add("--hosts", default="", help="host names, separated by commas")
    add("--zones", default="UTC", help="time zones of the hosts, separated by commas")
    add("--skews", default="", help="seconds by which the hosts' clocks are fast, with commas; needs faketime")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="set in every process")
    add("--kernel", action="append", choices=kernel.FORMS, default=[], help="save the kernel log in this form")
    add("--memory", type=int, default=0, metavar="MIB", help="the memory cgroup's limit, where the scenario has one")
    add("--no-start-log", action="store_true")
    return parser.parse_args(words)


def plan_of(args: argparse.Namespace) -> Plan:
    row = BY_ID[args.scenario]
    given = parameters.read(row, args.set) | ({"backend": args.backend} if args.backend else {})
    given |= {"memory_mb": args.memory} if args.memory else {}
    plan = planned(replace(row, launcher=args.launcher or row.launcher), given, args.nproc)
    return replace(
        plan,
        save=args.save or plan.save,
        script=args.script,
        record=args.record,
        restarts=args.restarts or plan.restarts,
        rendezvous=args.rendezvous or plan.rendezvous,
        hosts=tuple(filter(None, args.hosts.split(","))) or plan.hosts,
        zones=tuple(args.zones.split(",")),
        skews=tuple(map(float, filter(None, args.skews.split(",")))),
        env={**plan.env, **dict(pair.split("=", 1) for pair in args.env)},
        start_log=not args.no_start_log,
    )


def record(words: list[str], out: Path, keep: bool = False) -> dict[str, object]:
    """Record the sample of a command line into `out`; return its truth."""
    args = parsed(words)
    shown = [f"sample_logs/{args.out.name}" if word == str(args.out) else word for word in words]
    command = shlex.join(["python", "scripts/record_sample.py", *shown])
    with run(plan_of(args)) as ran:
        return write_sample(ran, out, tuple(args.kernel), command, keep)


def main() -> int:
    args = parsed(sys.argv[1:])
    try:
        truth = record(sys.argv[1:], args.out)
    except (ReplayError, CannotIsolate) as error:
        print(f"error: {error}", file=sys.stderr)
        return 7
    size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
    print(f"{args.out}: {size / 1024:.0f} KiB, evidence: {truth['evidence']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
