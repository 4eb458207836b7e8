"""Writes a run as a sample incident: the logs as an engineer would have saved them, the true verdict, and the story.

In: a finished run. Out:

    NAME/README.md    the story, and the exact command that made it
    NAME/truth.json   outcome, category, culprit, and the lines that prove them
    NAME/logs/...     the output of the processes and the kernel, without the names of this machine (see scrub.py)
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

from postmortem.errors import ReplayError
from postmortem.replay import kernel
from postmortem.replay.isolate import PREFIX
from postmortem.replay.run import Ran
from postmortem.replay.scrub import scrub, scrub_pickle

PICKLE = b"\x80\x02"  # torch writes flight-recorder dumps as protocol 2, by names without a suffix
AGAIN = "run it again; a sample must show what its scenario promises"


class DidNotFail(ReplayError):
    """Every process ended well."""


def write_sample(ran: Ran, out: Path, forms: tuple[str, ...], command: str, keep: bool = False) -> dict[str, object]:
    """Write the sample into `out`, which must not exist, with these forms of the kernel log; return its truth.

    Raise ReplayError if the run did not show what the scenario promises; with `keep` its logs stay.
    """
    row = ran.plan.scenario
    if out.exists():
        raise ReplayError(f"{out} exists", "remove it first")
    loud = row.failing and row.category != "numerics" and row.outcomes != ("recovered",)
    if loud and not any(ran.exits.values()) and not ran.ended_from_outside:
        raise DidNotFail(f"{row.id} did not fail: every process ended with 0", AGAIN)
    try:
        save(ran, out / "logs", forms)
        _check_scrubbed(out / "logs")
        truth = _truth(ran, out)
        (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        (out / "README.md").write_text(_readme(ran, command))
    except BaseException:
        if not keep:
            shutil.rmtree(out, ignore_errors=True)
        raise
    return truth


def save(ran: Ran, logs: Path, forms: tuple[str, ...]) -> None:
    """Copy the logs, scrubbed, under the names they have, and the kernel log in these forms."""
    made, plan = ran.place, ran.plan
    found = [(path, made.logs) for path in sorted(made.logs.rglob("*"))]
    found += [(path, made.job) for path in sorted((made.job / "flight_recorder").glob("*"))]
    for path, base in found:
        if path.is_file():
            target = logs / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            raw = path.read_bytes()
            target.write_bytes((scrub_pickle if raw.startswith(PICKLE) else scrub)(raw, made))
    folder = (logs / plan.hosts[plan.host] if plan.two_hosts else logs) / "kernel"
    for form in forms if ran.kernel else ():
        folder.mkdir(parents=True, exist_ok=True)
        text = kernel.render(ran.kernel, form, plan.zone(plan.host))
        (folder / f"{form}.txt").write_bytes(scrub(text.encode(), made))


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
