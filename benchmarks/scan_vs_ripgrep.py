"""How much processor time one process needs for a rank's log with all shipped patterns,
beside ripgrep with the same gates.

    .venv/bin/python benchmarks/scan_vs_ripgrep.py [--mib 256] [--runs 5] [--seed 7] [--dir /tmp]

Makes the log (seeded; one planted event in 1,000 lines, healthy decoys on the others), then runs in turn,
each in a process of its own: ours (start-up, pattern library, scan, rows written),
`rg -a -n -b --no-unicode -f GATES`, `wc -l`. Prints the median of the paired ratios of user + system time,
our peak memory, and whether each planted event was found on its line. Without `--no-unicode` rg takes a
thousand times as long on such patterns: leaving it out would be cheating.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

EVERY = 1000


class Log(NamedTuple):
    path: Path
    truth: list[tuple[int, str]]  # line, pattern
    lines: int


def plantable() -> list[tuple[str, bytes]]:
    """Return (pattern, line) for each shipped example of one line that reads as the scanner reads it."""
    from postmortem.library import load

    library = load()
    scanned = {s.id for s in library.signatures()}
    found = []
    for pattern in library.patterns.values():
        for example in pattern.matches:
            text = example.text.strip("\n")
            if pattern.id in scanned and text and "\n" not in text:
                found.append((pattern.id, text.encode()))
    return found


def make_log(path: Path, size: int, seed: int, every: int = EVERY) -> Log:
    """Write the log, and return the planted lines."""
    from postmortem.scan.cost import healthy_lines

    rng = random.Random(seed)
    events = plantable()
    truth: list[tuple[int, str]] = []
    written = number = 0
    with path.open("wb") as out:
        for line in healthy_lines(seed):
            number += 1
            if rng.random() * every < 1:
                name, text = events[int(rng.random() * len(events))]
                truth.append((number, name))
                line = text + b"\n"
            out.write(line)
            written += len(line)
            if written >= size:
                break
    return Log(path, truth, number)


def timed(command: Sequence[str], out: IO[bytes]) -> float:
    """Run a command to its end, and return its user + system time."""
    child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, cwd=HERE.parent)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in ((0, 1) if command[0] == "rg" else (0,)):  # 1: rg found nothing
        reply = child.stderr.read() if child.stderr else b""
        raise SystemExit(f"{command[0]} failed with {child.returncode}: {reply[-400:]!r}")
    return usage.ru_utime + usage.ru_stime


def child(path: str) -> None:
    """Do all that a worker does for one file."""
    from postmortem.library import load
    from postmortem.model import Source
    from postmortem.scan import Engine, scan

    engine = Engine.compile(load().signatures())
    with Path(path).open("rb", buffering=0) as f:
        scanned = scan(Source(path, "console", Path(path).stat().st_size), f, engine)
    rows = [[hit.line, hit.offset, [m.pattern for m in hit.matches]] for hit in scanned.hits]
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    json.dump(
        {
            "peak_mib": peak,
            "lines": scanned.lines,
            "bytes": scanned.bytes,
            "rows": rows,
            "counts": dict(scanned.counts),
        },
        sys.stdout,
    )


def check(log: Log, reply: dict[str, object], first: int = 32, last: int = 32) -> str:
    """Compare with the planted truth: all of it by count, and line by line below the caps."""
    rows = reply["rows"]
    counts = reply["counts"]
    assert isinstance(rows, list) and isinstance(counts, dict)
    got = {(line, name) for line, _, names in rows for name in names}
    planted: dict[str, list[int]] = {}
    for line, name in log.truth:
        planted.setdefault(name, []).append(line)
    missed = sum(max(0, len(lines) - int(counts.get(name, 0))) for name, lines in planted.items())
    # Where several examples confirm one pattern,
    # its own planted lines may be between the first and the last of all.
    due = {(n, name) for name, lines in planted.items() if counts.get(name, 0) <= first + last for n in lines}
    wrong = len(due - got)
    ok = missed == 0 and wrong == 0 and reply["lines"] == log.lines
    count = "right" if ok else "CHECK"
    return (
        f"{len(log.truth)} planted, {missed} missed; {len(due)} lines compared, {wrong} not there; line count {count}"
    )


def compare(log: Log, gates: Path, runs: int) -> None:
    ours_command = [sys.executable, str(Path(__file__).resolve()), "--child", str(log.path)]
    rg_command = [
        "rg",
        "-a",
        "-n",
        "-b",
        "--no-unicode",
        "--no-config",
        "-j1",
        "--no-mmap",
        "-f",
        str(gates),
        str(log.path),
    ]
    ours: list[float] = []
    rg: list[float] = []
    wc: list[float] = []
    peaks: list[float] = []
    for n in range(runs + 1):
        with tempfile.TemporaryFile() as out, Path(os.devnull).open("wb") as null:
            a, b, c = (
                timed(ours_command, out),
                timed(rg_command, null),
                timed(["wc", "-l", str(log.path)], null),
            )
            out.seek(0)
            reply = json.load(out)
        if n == 0:
            # the first run also fills the page cache and the database's cache
            print("truth      ", check(log, reply))
            continue
        ours, rg, wc, peaks = [*ours, a], [*rg, b], [*wc, c], [*peaks, reply["peak_mib"]]
        print(f"  run {n}: ours {a:.2f} s, rg {b:.2f} s, wc {c:.2f} s, ours / rg {a / b:.2f}", flush=True)
    ratios = [a / b for a, b in zip(ours, rg, strict=True)]
    to_wc = [a / c for a, c in zip(ours, wc, strict=True)]
    size = log.path.stat().st_size
    median = statistics.median(ours)
    print(
        f"ours / rg   {statistics.median(ratios):.2f} (median of {runs} pairs; {min(ratios):.2f} to {max(ratios):.2f})"
    )
    print(f"ours / wc   {statistics.median(to_wc):.1f}")
    print(f"ours        {median:.2f} s cpu for {size / 2**20:.0f} MiB, {size / median / 1e9:.2f} GB/s with start-up")
    print(f"peak        {max(peaks):.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--every", type=int, default=EVERY, help="one event in so many lines; 1 makes every line an event"
    )
    parser.add_argument("--dir", default=None, help="where the log is made and removed again")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    import corpus

    from postmortem.library import load

    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        gates = Path(folder) / "gates"
        gates.write_bytes(corpus.gates(load().signatures()))
        log = make_log(Path(folder) / "rank0.log", arguments.mib << 20, arguments.seed, arguments.every)
        print(f"log         {arguments.mib} MiB, {log.lines} lines, {len(gates.read_bytes().splitlines())} gates")
        compare(log, gates, arguments.runs)


if __name__ == "__main__":
    main()
