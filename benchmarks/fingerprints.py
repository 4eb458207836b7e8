"""Measures the fingerprint on pairs of incidents: of those that it calls the same, how many are
(precision), and of those that are the same, how many it finds (recall).

    python benchmarks/fingerprints.py                    all samples, each in its variants
    ... --replays DIR             and runs of scenarios: DIR/SCENARIO.1, DIR/SCENARIO.2, …
    ... --cases DIR --labels FILE instead, other people's incidents: DIR/CASE/logs, and a JSON object from
                                  CASE to a name of its cause; a case that it does not have is like no
                                  other, one with null is left out
    ... --show                    and which causes are confused, by pairs; and what changed a fingerprint

Prints the table of docs/fleet.md. What is the same is known: two runs of one scenario of the recorder are,
with the same value of the parameters that change what fails (KINDS); samples that were made by hand are
listed in BY_HAND. A variant is the same incident as others would have it: on other hosts, with other pids and
folders; after the code was edited; cut at either end; in six of the envelopes that collectors put around
lines. A third of the scenarios, by a hash of their names, is held out: no rule was made for them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from envelopes import ENVELOPES, arrived  # noqa: E402

from postmortem.analyze import Options, analyze  # noqa: E402

SAMPLES = ROOT / "sample_logs"
KINDS = (
    "error",
    "at_end",
    "loud",
    "stall",
)  # parameters that change what fails; the others choose the rank and the time
SAME = {  # scenarios that fail of the same
    "restart-fails-again": "a shard with a wrong checksum",
    "restart-recovers": "a shard with a wrong checksum",
}
INDISTINCT = {  # causes, or samples, that no line distinguishes
    "lightning-rank-killed": "a rank that vanished",  # its end is not reported, as truth.json grants
    "host-oom-kept-graph": "host-oom-rank",  # a rank's memory grew; what was in it, no log holds
    "swallowed-exception loud=0": "skipped-collective",  # the exception was not printed
}
BY_HAND = {
    "accelerate-rank-killed": "rank-sigkill",
    "core-null-table-no-kernel-log": "segfault-silent",
    "elastic-recovers-on-one-console": "rank-sigkill",
    "gpu-restart-meets-old-dump-signal": "rank-sigkill",
    "gpu-shape-mismatch-nccl": "shape-mismatch of NCCL",  # other lines than gloo's prove these three
    "gpu-slow-rank-nccl": "slow-rank of NCCL",
    "gpu-uneven-batches-nccl": "uneven-batches of NCCL",
    "lightning-rank-killed": "rank-sigkill",
    "slurm-task-killed": "rank-sigkill",
    "spawn-oom-beside-other-jobs": "host-oom-rank",
}
CONSOLES = (".log", ".err", ".out")
WRAPPED = 6  # envelopes of each sample
Text = Callable[[str], str]
Known = tuple[str, str, str | None]  # sample, label, fingerprint


def label(sample: Path) -> str:
    """The cause, as whoever made the sample knows it."""
    if sample.name in BY_HAND:
        return BY_HAND[sample.name]
    made = re.search(r"record_sample\.py ([a-z0-9-]+)(.*)", (sample / "README.md").read_text())
    if not made:
        return sample.name
    kinds = [s for s in re.findall(r"--set (\S+)", made[2]) if s.partition("=")[0] in KINDS]
    return " ".join((SAME.get(made[1], made[1]), *sorted(k for k in kinds if k != "stall=30")))


# ── variants ────────────────────────────────────────────────────────────────────────────────────────────────


def elsewhere(document: dict[str, Any], chance: random.Random) -> Text:
    """Other hosts, pids and folders, each the same one everywhere."""
    new = {host: f"gpu{chance.randrange(1000, 9999)}" for host in document["job"]["hosts"]}
    pids = {r["pid"] for r in document["ranks"]} | set(document["verdict"]["culprit"]["pids"])
    for pid in sorted(str(p) for p in pids if p and p > 99):
        new[pid] = str(chance.randrange(10 ** (len(pid) - 1), 10 ** len(pid)))
    words = re.compile("|".join(rf"(?<![\w.-]){re.escape(w)}(?![\w])" for w in new) or r"(?!)")
    return lambda text: words.sub(lambda m: new[m[0]], text).replace("/opt/train/run/", "/home/bob/exp-17/")


def edited(text: str) -> str:
    """Seven lines were added at the top of each of the user's files."""
    moved = re.compile(r'((?<!/site-packages)/(?:run|job)[\w-]*/[\w/]+\.py", line |\b(?:train|trainer)\.py:)(\d+)')
    return moved.sub(lambda m: f"{m[1]}{int(m[2]) + 7}", text)


def beginning(text: str) -> str:
    """The first quarter is gone: the log was rotated."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[len(lines) // 4 :]) if len(lines) >= 40 else text


def end(decisive: set[str]) -> Text:
    """The last fifth never reached the disk, but for what the verdict rests on: without that it is no
    longer the same incident."""

    def cut(text: str) -> str:
        lines = text.splitlines(keepends=True)
        last = max((i for i, line in enumerate(lines) if line.strip() in decisive), default=-1)
        return "".join(lines[: max(last + 1, len(lines) * 4 // 5)])

    return cut


def changed(logs: Path, folder: Path, what: Text, hosts: bool = False) -> Path:
    copy = Path(tempfile.mkdtemp(dir=folder)) / "logs"
    shutil.copytree(logs, copy)
    for path in [p for p in copy.rglob("*") if p.is_file()]:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        path.write_text(what(text))
    for path in [p for p in copy.iterdir() if hosts and what(p.name) != p.name]:
        path.rename(copy / what(path.name))
    return copy


def wrapped(logs: Path, folder: Path, name: str) -> Path:
    copy = Path(tempfile.mkdtemp(dir=folder)) / "logs"
    shutil.copytree(logs, copy)
    for path in (p for p in copy.rglob("*") if p.is_file() and p.suffix in CONSOLES):
        if text := path.read_text(errors="replace"):
            path.write_text(ENVELOPES[name](arrived(text.splitlines(), "node-a")))
    return copy


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


def read(logs: Path) -> dict[str, Any]:
    return dict(analyze([str(logs)], Options(workers=1)).document)


def of_sample(sample: Path) -> dict[str, list[str | None]]:
    """The fingerprints of a sample, by the kind of its variants."""
    logs, chance = sample / "logs", random.Random(sample.name)
    document = read(logs)
    decisive = {e["text"].strip() for e in document["verdict"]["evidence"][:4]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def of(what: Text, hosts: bool = False) -> str | None:
            found: str | None = read(changed(logs, folder, what, hosts))["fingerprint"]
            return found

        return {
            "as recorded": [document["fingerprint"]],
            "other hosts, pids, folders": [of(elsewhere(document, chance), True) for _ in range(2)],
            "code edited": [of(edited)],
            "beginning cut": [of(beginning)],
            "end cut": [of(end(decisive))],
            "in an envelope": [
                read(wrapped(logs, folder, kind))["fingerprint"] for kind in chance.sample(sorted(ENVELOPES), WRAPPED)
            ],
        }


def pairs(known: Iterable[Known]) -> tuple[int, int, int]:
    """Pairs that are the same and found, called the same and not, the same and missed. Fast: by counts."""
    both, prints, labels = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for number, (_, cause, mark) in enumerate(known):
        mark = mark or f"none {number}"  # what has no root is like nothing
        both[cause, mark] += 1
        prints[mark] += 1
        labels[cause] += 1
    found, called, same = (sum(n * (n - 1) // 2 for n in c.values()) for c in (both, prints, labels))
    return found, called - found, same - found


def confused(known: Iterable[Known]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """The wrong pairs of each two causes that were called one, and the missed pairs of each cause."""
    marks: dict[str, Counter[str]] = defaultdict(Counter)
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    for number, (_, cause, mark) in enumerate(known):
        marks[mark or f"none {number}"][cause] += 1
        causes[cause][mark or f"none {number}"] += 1
    merged, split = Counter[tuple[str, str]](), Counter[str]()
    for found in marks.values():
        for a, b in itertools.combinations(sorted(found), 2):
            merged[a, b] += found[a] * found[b]
    for cause, found in causes.items():
        split[cause] = (found.total() ** 2 - sum(n * n for n in found.values())) // 2
    return merged, split


def held_out(cause: str) -> bool:
    """Whether the scenario is of the third for which no rule was made."""
    return int(hashlib.sha256(cause.partition(" ")[0].encode()).hexdigest(), 16) % 3 == 0


def row(name: str, known: list[Known]) -> str:
    found, wrong, missed = pairs(known)
    precision = found / (found + wrong) if found + wrong else 1.0
    recall = found / (found + missed) if found + missed else 1.0
    return f"| {name} | {len(known):,} | {found + missed:,} | {precision:.3f} | {recall:.3f} |"


def logs_of(run: Path) -> Path:
    """What the recorder writes has them in a folder; `replay --keep` writes nothing else."""
    return run / "logs" if (run / "logs").is_dir() else run


def labelled(folder: Path, labels: Path, pool: Executor) -> list[Known]:
    """Return incidents of others, with causes named by a person."""
    causes: dict[str, str | None] = json.loads(labels.read_text())
    cases = [p for p in sorted(folder.iterdir()) if (p / "logs").is_dir() and causes.get(p.name, "") is not None]
    read_all = pool.map(read, [p / "logs" for p in cases])
    return [(p.name, causes.get(p.name) or p.name, d["fingerprint"]) for p, d in zip(cases, read_all, strict=True)]


def head() -> None:
    print("| incidents | number | pairs that are the same | precision | recall |\n|---|---:|---:|---:|---:|")


def show(known: Sequence[Known]) -> None:
    """Which causes are taken for one, and which are taken apart."""
    merged, split = confused(known)
    for (a, b), count in merged.most_common():
        print(f"{count:6,} pairs called the same: {a} | {b}")
    for cause, count in split.most_common():
        if count:
            print(f"{count:6,} pairs missed: {cause}")


def measured(replays: Path | None, shown: bool, pool: Executor) -> None:
    """The samples, and runs of scenarios."""
    samples = sorted(p for p in SAMPLES.iterdir() if (p / "logs").is_dir())
    samples = [p for p in samples if not p.name.startswith("healthy")]
    every = dict(zip(samples, pool.map(of_sample, samples), strict=True))
    again = sorted(p for p in replays.iterdir() if p.is_dir()) if replays else []
    runs: list[Known] = [
        (p.name, SAME.get(s := p.name.rpartition(".")[0], s), d["fingerprint"])
        for p, d in zip(again, pool.map(read, map(logs_of, again)), strict=True)
    ]
    recorded: list[Known] = [(p.name, label(p), own["as recorded"][0]) for p, own in every.items()]
    head()
    print(row("the samples as recorded", recorded))
    for kind in next(iter(every.values())):
        if kind != "as recorded":
            more = [(p.name, label(p), m) for p, own in every.items() for m in own[kind]]
            print(row(f"and each {kind}", [*recorded, *more]))
    if runs:
        print(row("and runs of the scenarios", [*recorded, *runs]))
    whole = [(p.name, label(p), m) for p, own in every.items() for marks in own.values() for m in marks] + runs
    print(row("two thirds of the scenarios, all together", [k for k in whole if not held_out(k[1])]))
    print(row("the third that was held out", [k for k in whole if held_out(k[1])]))
    print(row("**all together**", whole))
    whole_by_logs = [(name, INDISTINCT.get(name, INDISTINCT.get(cause, cause)), mark) for name, cause, mark in whole]
    print(row("**all, by the causes that logs distinguish**", whole_by_logs))
    if shown:
        show(whole)
        for path, own in every.items():
            lost = {kind for kind, marks in own.items() for m in marks if m != own["as recorded"][0]}
            if lost:
                print("changed:", path.name, *sorted(lost))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--replays", type=Path)
    options.add_argument("--cases", type=Path)
    options.add_argument("--labels", type=Path)
    options.add_argument("--workers", type=int, default=os.cpu_count())
    options.add_argument("--show", action="store_true")
    chosen = options.parse_args()
    if (chosen.cases is None) != (chosen.labels is None):
        options.error("--cases and --labels belong together")
    with ProcessPoolExecutor(chosen.workers) as pool:
        if chosen.cases is None:
            measured(chosen.replays, chosen.show, pool)
            return 0
        known = labelled(chosen.cases, chosen.labels, pool)
    head()
    print(row("cases of others", known))
    if chosen.show:
        show(known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
