"""Records a scenario as a sample incident, with the choices a site makes: ranks, launcher, log layout, time zones,
host names, logging style.

    python scripts/record_sample.py slow-rank --out sample_logs/slow-rank-of-four --nproc 4 --set rank=2

In: a run of the scenario. Out:

    NAME/README.md    the story, and the exact command that made it
    NAME/truth.json   outcome, category, culprit, and the lines that prove them
    NAME/logs/...     the output of the processes and the kernel, without the names of this machine (see scrub.py)
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shlex
import shutil
import sys
from dataclasses import replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.errors import ReplayError
from postmortem.replay import catalogue, kernel
from postmortem.replay.catalogue import BY_ID
from postmortem.replay.isolate import PREFIX, CannotIsolate
from postmortem.replay.plan import Plan, planned
from postmortem.replay.run import Ran, run, save
from scripts.scrub import scrub, scrub_pickle

PICKLE = b"\x80\x02"  # torch writes flight-recorder dumps as protocol 2, by names without a suffix
AGAIN = "run it again; a sample must show what its scenario promises"
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
    given = catalogue.read(row, args.set) | ({"backend": args.backend} if args.backend else {})
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


def write_sample(ran: Ran, out: Path, forms: tuple[str, ...], command: str, keep: bool = False) -> dict[str, object]:
    """Write the sample into `out`, which must not exist, with these forms of the kernel log; return its truth.

    Raise ReplayError if the run did not show what the scenario promises; with `keep` its logs stay.
    """
    row = ran.plan.scenario
    if out.exists():
        raise ReplayError(f"{out} exists", "remove it first")
    loud = row.failing and row.category != "numerics" and row.outcomes != ("recovered",)
    if loud and not any(ran.exits.values()) and not ran.ended_from_outside:
        raise ReplayError(f"{row.id} did not fail: every process ended with 0", AGAIN)
    try:
        save(ran, out / "logs", forms)
        for path in filter(Path.is_file, (out / "logs").rglob("*")):
            raw = path.read_bytes()
            path.write_bytes((scrub_pickle if raw.startswith(PICKLE) else scrub)(raw, ran.place))
        _check_scrubbed(out / "logs")
        truth = _truth(ran, out)
        (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        (out / "README.md").write_text(_readme(ran, command))
    except BaseException:
        if not keep:
            shutil.rmtree(out, ignore_errors=True)
        raise
    return truth


def _check_scrubbed(logs: Path) -> None:
    """A new way to leak a path must stop the recording, not reach the repository."""
    for path in logs.rglob("*"):
        names = (PREFIX.encode(), sys.prefix.encode(), b"REPLAY_")
        if path.is_file() and any(name in path.read_bytes() for name in names):
            raise ReplayError(f"{path} still holds a name of this machine", AGAIN)


def _truth(ran: Ran, out: Path) -> dict[str, object]:
    plan, row = ran.plan, ran.plan.scenario
    evidence = _evidence(ran, out / "logs")
    if row.evidence and not evidence and not row.look and "undetermined" not in row.outcomes:
        raise ReplayError(f"{row.id}: none of the lines that prove it is in the logs: {row.evidence}", AGAIN)
    ranks = {"rank": [plan.rank], "none": [], "any": None}[row.culprit]
    return {
        "id": out.name,
        "outcomes": list(row.outcomes),
        "categories": [row.category, *row.also] if row.category else [],
        "ranks": ranks if row.failing else None,
        "hosts": [plan.hosts[plan.host]] if plan.two_hosts and ranks else None,
        "gpus": None,
        "evidence": evidence,
        "story": _story(ran),
        "trap": None,
        "clock_offset_s": dict(zip_longest(plan.hosts, plan.skews, fillvalue=0)) if plan.two_hosts else None,
        "timezone": {host: plan.zone(i) for i, host in enumerate(plan.hosts)} if plan.two_hosts else None,
    }


def _evidence(ran: Ran, logs: Path) -> list[dict[str, object]]:
    """Return at most twelve lines that prove the culprit, from all files."""
    plan = ran.plan
    patterns = list(plan.scenario.evidence)
    for name, value in {"rank": plan.rank, "local_rank": plan.local_rank, "pid": ran.pids.get(plan.rank, -1)}.items():
        patterns = [pattern.replace(f"{{{name}}}", str(value)) for pattern in patterns]
    found: list[dict[str, object]] = []
    for path in sorted(p for p in logs.rglob("*") if p.is_file() and p.suffix not in (".json", ".pkl")):
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            text = line.decode("utf-8", "backslashreplace").rstrip("\r")
            if any(re.search(pattern, text) for pattern in patterns):
                found.append({"file": path.relative_to(logs).as_posix(), "line": number, "text": text[:300]})
    return found[:12]


def _story(ran: Ran) -> str:
    plan, row = ran.plan, ran.plan.scenario
    who = f" The rank at fault is {plan.rank}." if row.failing and row.culprit == "rank" else ""
    skews = zip(plan.hosts, plan.skews, strict=False)
    clocks = "".join(f" The clock of {host} is {skew:+g} s off." for host, skew in skews if skew)
    return f"{row.story}{who}{clocks}"


def _readme(ran: Ran, command: str) -> str:
    plan, row = ran.plan, ran.plan.scenario
    text = (
        Path(__file__)
        .with_name("sample_readme.txt")
        .read_text()
        .format(
            title=row.title[0].upper() + row.title[1:],
            story=_story(ran),
            expected=f"outcome {' or '.join(row.outcomes)}" + (f", category {row.category}" if row.category else ""),
            function=row.function,
            file=row.path.name,
            script=plan.script,
            nproc=plan.nproc,
            torch=version("torch"),
            python=platform.python_version(),
            linux=platform.release().split("-")[0],
            hosts=", two network namespaces as hosts" if plan.two_hosts else "",
            command=command,
        )
    )
    ended = ran.ended_from_outside
    return f"{text}\nThe job did not end by itself and was {ended}.\n" if ended else text


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
