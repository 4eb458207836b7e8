"""Records a scenario as a sample incident: the logs as an engineer would have saved them,
what is true about them, and the story.

    python -m postmortem.replay.record slow-rank --out sample_logs/slow-rank-of-four --nproc 4 --set rank=2

In: a scenario and the choices a site makes (ranks, launcher, log layout, time zones,
host names, logging style). Out:

    NAME/README.md    the story, and the exact command that made it
    NAME/truth.json   outcome, category, culprit, and the lines that prove them
    NAME/logs/...     what the processes and the kernel wrote; this machine's names are gone (see scrub.py)
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

from postmortem.replay import kernel, parameters
from postmortem.replay.catalogue import BY_ID, SCENARIOS, Scenario
from postmortem.replay.isolate import PREFIX, CannotIsolate
from postmortem.replay.plan import Plan, default_plan, planned
from postmortem.replay.run import Ran, run
from postmortem.replay.scrub import scrub, scrub_pickle

PICKLE = b"\x80\x02"  # torch writes flight-recorder dumps as protocol 2, by names without a suffix


class CannotRecord(Exception):
    """The run is no sample: something else showed up in its logs, or it did not do what the scenario says."""


class DidNotFail(CannotRecord):
    """Every process ended well."""


def record(plan: Plan, out: Path, forms: tuple[str, ...], command: str, keep: bool = False) -> dict[str, object]:
    """Run the plan and write the sample into `out`, which must not exist; returns its truth.

    `keep`: the logs of a run that is no sample stay, to be looked at.
    """
    if out.exists():
        raise CannotRecord(f"{out} exists: remove it first")
    with run(plan) as ran:
        loud = (
            plan.scenario.failing and plan.scenario.category != "numerics" and plan.scenario.outcomes != ("recovered",)
        )
        if loud and not any(ran.exits.values()) and not ran.ended_from_outside:
            raise DidNotFail(f"{plan.scenario.id} did not fail: every process ended with 0")
        strangers = kernel.pids(ran.kernel) - ran.seen
        if strangers:
            raise CannotRecord(
                f"the kernel log speaks of processes that are not of this run ({sorted(strangers)}): run it again"
            )
        try:
            save(ran, out / "logs", forms)
            _check_scrubbed(out / "logs")
            truth = _truth(ran, out)
            (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
            (out / "README.md").write_text(_readme(ran, truth, command))
        except BaseException:
            if not keep:
                shutil.rmtree(out, ignore_errors=True)
            raise
    return truth


# ── logs ────────────────────────────────────────────────────────────────────────────────────────────────────


def save(ran: Ran, logs: Path, forms: tuple[str, ...]) -> None:
    """Copy what was written, scrubbed, under the names it has."""
    made = ran.place
    found = [path for path in sorted(made.logs.rglob("*")) if path.is_file()]
    found += sorted(path for path in (made.job / "flight_recorder").glob("*") if path.is_file())
    for path in found:
        base = made.logs if path.is_relative_to(made.logs) else made.job
        target = logs / path.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        raw = path.read_bytes()
        target.write_bytes((scrub_pickle if raw.startswith(PICKLE) else scrub)(raw, made))
    if ran.kernel and forms:
        plan = ran.plan
        folder = logs / plan.hosts[plan.host] if len(plan.hosts) > 1 else logs
        zone = plan.zones[min(plan.host, len(plan.zones) - 1)]
        (folder / "kernel").mkdir(parents=True, exist_ok=True)
        for form in forms:
            (folder / "kernel" / f"{form}.txt").write_bytes(scrub(kernel.render(ran.kernel, form, zone).encode(), made))


def _check_scrubbed(logs: Path) -> None:
    """A new way to leak a path must stop the recording, not reach the repository."""
    for path in logs.rglob("*"):
        if path.is_file() and any(
            name in path.read_bytes() for name in (PREFIX.encode(), sys.prefix.encode(), b"REPLAY_")
        ):
            raise CannotRecord(f"{path} still holds a name of this machine")


# ── truth ───────────────────────────────────────────────────────────────────────────────────────────────────


def _truth(ran: Ran, out: Path) -> dict[str, object]:
    plan, row = ran.plan, ran.plan.scenario
    zones = (
        {host: plan.zones[min(i, len(plan.zones) - 1)] for i, host in enumerate(plan.hosts)}
        if len(plan.hosts) > 1
        else None
    )
    evidence = _evidence(ran, out / "logs")
    if row.evidence and not evidence and not row.look and "undetermined" not in row.outcomes:
        raise CannotRecord(f"{row.id}: none of the lines that prove it is in the logs: {row.evidence}")
    ranks = {"rank": [plan.rank], "none": [], "any": None}[row.culprit]
    return {
        "id": out.name,
        "outcomes": list(row.outcomes),
        "categories": [row.category, *row.also] if row.category else [],
        "ranks": ranks if row.failing else None,
        "hosts": [plan.hosts[plan.host]] if zones and ranks else None,
        "gpus": None,
        "evidence": evidence,
        "story": _story(row, plan),
        "trap": None,
        "clock_offset_s": dict(zip_longest(plan.hosts, plan.skews, fillvalue=0)) if zones else None,
        "timezone": zones,
    }


def _evidence(ran: Ran, logs: Path) -> list[dict[str, object]]:
    """The lines that prove the culprit, wherever they were saved, at most twelve of them."""
    plan = ran.plan
    facts = {"{rank}": plan.rank, "{local_rank}": plan.local_rank, "{pid}": ran.pids.get(plan.rank, -1)}
    patterns = list(plan.scenario.evidence)
    for name, value in facts.items():
        patterns = [pattern.replace(name, str(value)) for pattern in patterns]
    found: list[dict[str, object]] = []
    for path in sorted(p for p in logs.rglob("*") if p.is_file() and p.suffix not in (".json", ".pkl")):
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            text = line.decode("utf-8", "backslashreplace").rstrip("\r")
            if any(re.search(pattern, text) for pattern in patterns):
                found.append({"file": path.relative_to(logs).as_posix(), "line": number, "text": text[:300]})
    return found[:12]


def _story(row: Scenario, plan: Plan) -> str:
    who = f" The rank at fault is {plan.rank}." if row.failing and row.culprit == "rank" else ""
    clocks = "".join(
        f" The clock of {host} is {skew:+g} s off." for host, skew in zip(plan.hosts, plan.skews, strict=False) if skew
    )
    return f"{row.situation}{who}{clocks}"


def _readme(ran: Ran, truth: Mapping[str, object], command: str) -> str:
    plan, row = ran.plan, ran.plan.scenario
    expected = f"outcome {' or '.join(row.outcomes)}" + (f", category {row.category}" if row.category else "")
    lines = [
        f"# {row.title[0].upper()}{row.title[1:]}",
        "",
        str(truth["story"]),
        "",
        f"An analysis should say: {expected}. `truth.json` has the lines that prove it.",
        "",
        "## How it was made",
        "",
        (
            f"A real run of `postmortem/replay/scenarios/{row.path.name}` (copied as `{plan.script}`) "
            f"with {plan.nproc} ranks on one machine,"
        ),
        (
            f"torch {version('torch')}, Python {platform.python_version()}, "
            f"Linux {platform.release().split('-')[0]}"
        )
        + (", two network namespaces as hosts" if len(plan.hosts) > 1 else "") + ":",
        "",
        f"    {command}",
        "",
        (
            "No line is invented. `postmortem/replay/scrub.py` replaced host paths and names; nothing else "
            "was edited."
        ),
    ]  # fmt: skip
    if ran.ended_from_outside:
        lines += ["", f"The job did not end by itself and was {ran.ended_from_outside}."]
    return "\n".join(lines) + "\n"


# ── command line ────────────────────────────────────────────────────────────────────────────────────────────


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m postmortem.replay.record", description="Record a scenario as a sample incident."
    )
    p.add_argument("scenario", choices=[row.id for row in SCENARIOS], metavar="SCENARIO")
    p.add_argument("--out", type=Path, required=True, help="the sample's folder, which must not exist")
    p.add_argument("--backend", choices=parameters.BACKEND.choices, help="another backend than the scenario's")
    p.add_argument("--nproc", type=int, default=0, help="ranks in all")
    p.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the job, such as rank=2",
    )
    p.add_argument("--launcher", choices=["torchrun", "plain", "spawn", "two-hosts", "two-hosts-torchrun"])
    p.add_argument(
        "--save",
        help="torchrun: tree, redirect or console; plain: a file name with {rank} and perhaps {stream}",
    )
    p.add_argument("--script", default="train.py", help="the name the job runs under")
    p.add_argument("--record", action="store_true", help="the job's main() is wrapped in @record")
    p.add_argument("--restarts", type=int, default=0)
    p.add_argument("--rendezvous", choices=["static", "c10d"])
    p.add_argument("--hosts", default="", help="host names, separated by commas")
    p.add_argument("--zones", default="UTC", help="time zones of the hosts, separated by commas")
    p.add_argument(
        "--skews",
        default="",
        help="seconds by which the hosts' clocks are fast, separated by commas; needs faketime",
    )
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="set in every process")
    p.add_argument(
        "--kernel",
        action="append",
        choices=list(kernel.FORMS),
        default=[],
        help="save the kernel log in this form",
    )
    p.add_argument(
        "--memory",
        type=int,
        default=0,
        metavar="MIB",
        help="the memory cgroup's limit, where the scenario has one",
    )
    p.add_argument("--no-start-log", action="store_true")
    return p


def _plan(args: argparse.Namespace) -> Plan:
    row = BY_ID[args.scenario]
    plan = planned(
        row, parameters.read(row, args.set) | ({"backend": args.backend} if args.backend else {}), args.nproc
    )
    launcher = args.launcher or row.launcher
    save = args.save or (plan.save if launcher == row.launcher else default_plan(replace(row, launcher=launcher)).save)
    hosts = tuple(filter(None, args.hosts.split(","))) or default_plan(replace(row, launcher=launcher)).hosts
    return replace(
        plan, launcher=launcher, save=save, script=args.script, record=args.record,
        restarts=args.restarts or plan.restarts, rendezvous=args.rendezvous or plan.rendezvous, hosts=hosts,
        zones=tuple(args.zones.split(",")), skews=tuple(map(float, filter(None, args.skews.split(",")))),
        env={**plan.env, **dict(pair.split("=", 1) for pair in args.env)}, start_log=not args.no_start_log,
        memory_mb=args.memory or plan.memory_mb,
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args(words)
    shown = [f"sample_logs/{args.out.name}" if word == str(args.out) else word for word in words]
    try:
        truth = record(
            _plan(args),
            args.out,
            tuple(args.kernel),
            shlex.join(["python", "-m", "postmortem.replay.record", *shown]),
        )
    except (CannotRecord, CannotIsolate) as error:
        sys.stderr.write(f"error: {error}\n")
        return 7
    size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
    evidence = truth["evidence"]
    sys.stderr.write(
        f"{args.out}: {size / 1024:.0f} KiB, {len(evidence) if isinstance(evidence, list) else 0} lines of evidence\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
