"""The whole of `analyze`, beside ripgrep with the same patterns: many ranks, many small logs, floods,
long lines, compressed logs.

    .venv/bin/python benchmarks/analyze_scale.py [--cases ranks,files] [--runs 5] [--seed 7] [--scale 1]

Makes the logs (seeded, with truth), then runs in turn, each in a process of its own: the scan alone, the
whole analysis with the HTML report, `rg -a -n -b --no-unicode -f GATES`, `wc -l`. Prints medians of paired
ratios. `--scale 0.1` makes everything a tenth of the size. `--json FILE` writes the ratios and the goals, from
which scripts/reference.py makes the table in docs/performance.md; `--patterns FILE` gives ripgrep these
expressions instead of our gates.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
RG = ("rg", "-a", "-n", "-b", "--no-unicode", "--no-config", "--no-mmap")


class Used(NamedTuple):
    cpu: float
    wall: float
    peak: float  # MiB of the first process
    reply: dict[str, Any]


def timed(command: Sequence[str]) -> Used:
    """Run a command to its end; ours print JSON on standard output."""
    ours = command[0] == sys.executable
    with tempfile.TemporaryFile() as out, Path(os.devnull).open("wb") as null:
        start = time.monotonic()
        child = subprocess.Popen(command, stdout=out if ours else null, cwd=HERE.parent)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in ((0, 1) if command[0] == "rg" else (0,)):  # 1: rg found nothing
            raise SystemExit(f"{' '.join(command)} failed with {child.returncode}")
        out.seek(0)
        reply = json.load(out) if ours else {}
    # rusage counts what this process held before exec, so ours report their own peak
    return Used(usage.ru_utime + usage.ru_stime, wall, reply.get("peak", 0.0), reply)


# ── the measurements, each in a process of its own ──────────────────────────────────────────────────────────


def child_scan(path: str, double: bool) -> dict[str, Any]:
    """Read and scan all logs, and nothing else."""
    from postmortem import blocks as parsers
    from postmortem import input as collect
    from postmortem import scan
    from postmortem.library import load
    from postmortem.system import pool

    pool.tune()
    signatures = [*load().signatures(), *parsers.OPENERS]
    if double:
        # as many states again: the same gates, with an end that no log has,
        # without anchors in their middle
        plain = [
            scan.gate_of(s).decode("latin-1").replace(r"(?:^|\r)", "!").replace(r"(?:$|\r)", "!") for s in signatures
        ]
        signatures += [s.__class__(s.id + "-2", f"{gate}.{{0,9}}zq") for s, gate in zip(signatures, plain, strict=True)]
    engine = scan.Engine.compile(signatures)
    rows: list[tuple[str, int, list[str]]] = []
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    for container in collect.collect([path]).containers:
        for source, stream in collect.open_sources(container):
            one = scan.scan(source, stream, engine)
            lines[source.path] = one.lines
            rows += [(source.path, hit.line, [m.pattern for m in hit.matches]) for hit in one.hits]
            for name, n in one.counts.items():
                counts[name] = counts.get(name, 0) + n
    return {"rows": rows, "lines": lines, "counts": counts}


def child_analyze(path: str, jobs: int) -> dict[str, Any]:
    """All of it: read, diagnose, write the page."""
    from postmortem import report
    from postmortem.analyze import Options, analyze
    from postmortem.system import pool

    pool.tune()
    incident = analyze([path], Options(workers=jobs))
    page = len(report.render_html(incident).encode())
    return {"verdict": incident.document["verdict"], "page": page, "events": len(incident.timeline)}


def child_dask(path: str) -> dict[str, Any]:
    """The same on a Dask cluster of two processes, and the CPU seconds of each side."""
    from distributed import Client, LocalCluster

    from postmortem import report
    from postmortem.analyze import Options, analyze

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        before = time.process_time()
        incident = analyze([path], Options(executor=client.get_executor()))
        page = len(report.render_html(incident).encode())
        parent = time.process_time() - before
        workers = sum(client.run(time.process_time).values())
    verdict = incident.document["verdict"]
    events = len(incident.timeline)
    return {"verdict": verdict, "page": page, "events": events, "parent": parent, "workers": workers}


def ours(what: str, path: Path, *more: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), "--child", what, str(path), *more]


# ── cases ───────────────────────────────────────────────────────────────────────────────────────────────────


class Bench:
    """Commands run in turn, `runs` times after one that warms the page cache."""

    def __init__(self, folder: Path, runs: int, seed: int, scale: float, patterns: Path | None = None) -> None:
        from corpus import gates

        from postmortem import blocks as parsers
        from postmortem.library import load

        self.folder, self.runs, self.seed, self.scale = folder, runs, seed, scale
        self.rows: list[dict[str, Any]] = []
        self.gates = patterns or folder / "gates"
        if patterns is None:
            self.gates.write_bytes(gates([*load().signatures(), *parsers.OPENERS]))

    def rg(self, path: Path, jobs: int = 1) -> list[str]:
        return [*RG, f"-j{jobs}", "-f", str(self.gates), str(path)]

    def turns(self, commands: dict[str, list[str]]) -> dict[str, list[Used]]:
        found: dict[str, list[Used]] = {name: [] for name in commands}
        for n in range(self.runs + 1):
            for name, command in commands.items():
                used = timed(command)
                if n:
                    found[name].append(used)
        return found

    def ratio(
        self,
        case: str,
        found: dict[str, list[Used]],
        a: str,
        b: str,
        what: str = "cpu",
        less: float = 0.0,
        goal: float | None = None,
    ) -> None:
        """Print and keep the median and the range of the paired ratios; `less` seconds are taken off `a` before."""
        every = [(getattr(x, what) - less) / getattr(y, what) for x, y in zip(found[a], found[b], strict=True)]
        name = f"{a} / {b}, {what}" + (f" less {less} s" if less else "")
        low, median, high = (round(f(every), 2) for f in (min, statistics.median, max))
        self.rows.append({"logs": case, "ratio": name, "median": median, "low": low, "high": high, "goal": goal})
        print(f"   {name}: {median:.2f} ({low:.2f} to {high:.2f})" + (f" [{goal}]" if goal else ""), flush=True)

    def size(self, mib: float) -> int:
        return max(1 << 16, int(mib * self.scale * (1 << 20)))


def report_row(name: str, found: dict[str, list[Used]]) -> None:
    print(f"== {name}")
    for command, runs in found.items():
        cpu, wall = statistics.median(u.cpu for u in runs), statistics.median(u.wall for u in runs)
        print(
            (f"   {command:12} cpu {cpu:7.2f} s   wall {wall:7.2f} s   peak {max(u.peak for u in runs):5.0f} MiB"),
            flush=True,
        )


def recall(corpus: Any, reply: dict[str, Any]) -> str:
    """Every planted event by count, by line where the caps keep all of them; every line count."""
    lines_wrong = sum(1 for path, n in corpus.lines.items() if reply["lines"].get(path) != n)
    got = {(path, line, name) for path, line, names in reply["rows"] for name in names}
    due: dict[tuple[str, str], list[int]] = {}
    for path, line, name in corpus.events:
        due.setdefault((path, name), []).append(line)
    quoted = {(path, line, name) for (path, name), lines in due.items() if len(lines) <= 32 for line in lines}
    total: dict[str, int] = {}
    for _, _, name in corpus.events:
        total[name] = total.get(name, 0) + 1
    missed = sum(max(0, n - reply["counts"].get(name, 0)) for name, n in total.items())
    by_line = f"{len(quoted)} by line, {len(quoted - got)} missing"
    return f"{len(corpus.events)} planted, {missed} missed; {by_line}; {lines_wrong} line counts wrong"


def ranks(b: Bench) -> None:
    _ranks(b, 1000)


def dense(b: Bench) -> None:
    """150 events in each log."""
    _ranks(b, max(1, round(555 * b.scale)))


def _ranks(b: Bench, every: int) -> None:
    from corpus import make

    corpus = make(b.folder / "ranks", 64, b.size(16), b.seed, every)
    path = corpus.folder
    commands = {
        "scan": ours("scan", path),
        "analyze": ours("analyze", path, "--jobs", "1"),
        "analyze -j2": ours("analyze", path, "--jobs", "2"),
        "rg": b.rg(path),
        "wc -l": ["sh", "-c", f"find {path} -type f -print0 | xargs -0 cat | wc -l"],
    }
    found = b.turns(commands)
    case = f"64 logs, {corpus.bytes >> 20} MiB, an event in {every:,} lines"
    report_row(case, found)
    b.ratio(case, found, "scan", "rg", goal=0.6)
    b.ratio(case, found, "scan", "wc -l", goal=12)
    b.ratio(case, found, "analyze", "rg", less=0.8, goal=1.2)
    b.ratio(case, found, "analyze -j2", "analyze", "wall", goal=0.65)
    print(f"   {recall(corpus, found['scan'][0].reply)}")
    verdicts = {
        json.dumps(u.reply["verdict"], sort_keys=True) for name in ("analyze", "analyze -j2") for u in found[name]
    }
    verdict = found["analyze"][0].reply["verdict"]
    print(f"   {len(verdicts)} verdict; {verdict['pattern']}, rank {verdict['culprit']['ranks']} of {corpus.culprit}")


def files(b: Bench) -> None:
    from corpus import make

    corpus = make(b.folder / "files", max(64, int(16384 * b.scale)), 64 << 10, b.seed + 1)
    found = b.turns({"analyze -j2": ours("analyze", corpus.folder, "--jobs", "2"), "rg -j2": b.rg(corpus.folder, 2)})
    case = f"{len(corpus.lines):,} logs of 64 KiB"
    report_row(case, found)
    reply = found["analyze -j2"][0].reply
    b.ratio(case, found, "analyze -j2", "rg -j2", "wall", goal=3)
    b.ratio(case, found, "analyze -j2", "rg -j2")
    print(
        f"   page {reply['page'] / 1e6:.2f} MB, {reply['events']} events; "
        f"rank {reply['verdict']['culprit']['ranks']} of {corpus.culprit}"
    )


def flood(b: Bench) -> None:
    from corpus import plantable

    lines = [text for _, text in plantable()]
    block = b"\n".join(lines) + b"\n"
    path = b.folder / "flood.log"
    path.write_bytes(block * (b.size(100) // len(block) + 1))
    found = b.turns({"scan": ours("scan", path), "analyze": ours("analyze", path, "--jobs", "1"), "rg": b.rg(path)})
    case = f"{path.stat().st_size >> 20} MiB in which every line matches, all patterns in turn"
    report_row(case, found)
    b.ratio(case, found, "scan", "rg", goal=5)
    b.ratio(case, found, "analyze", "rg")


def line(b: Bench) -> None:
    path = b.folder / "line.log"
    piece = b"loss 2.31 step 12 tokens 4096 |" * 1000
    path.write_bytes(b"step 1\n" + piece * (b.size(50) // len(piece)) + b"\nstep 2\n")
    found = b.turns({"scan": ours("scan", path), "rg": b.rg(path)})
    case = f"one line of {path.stat().st_size >> 20} MiB"
    report_row(case, found)
    b.ratio(case, found, "scan", "rg", goal=3)


def packed(b: Bench) -> None:
    import zstandard
    from corpus import make

    plain = make(b.folder / "plain", 64, b.size(4), b.seed + 2).folder
    commands = {"plain": ours("scan", plain)}
    packers: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
        (".gz", gzip.compress),
        (".zst", zstandard.compress),
    )
    for suffix, pack in packers:
        for path in (p for p in plain.rglob("*") if p.is_file()):
            target = b.folder / suffix[1:] / path.relative_to(plain)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_name(target.name + suffix).write_bytes(pack(path.read_bytes()))
        commands[suffix] = ours("scan", b.folder / suffix[1:])
    found = b.turns(commands)
    case = f"64 logs of {b.size(4) >> 10:,} KiB, compressed, scan"
    report_row(case, found)
    for suffix, _ in packers:
        b.ratio(case, found, suffix, "plain", goal=1.8)


def growth(b: Bench) -> None:
    from corpus import make

    one = make(b.folder / "one", 64, b.size(4), b.seed + 3).folder
    two = make(b.folder / "two", 128, b.size(4), b.seed + 3).folder
    commands = {
        "scan": ours("scan", one),
        "2 x patterns": ours("scan", one, "--double"),
        "analyze": ours("analyze", one, "--jobs", "1"),
    }
    commands["2 x ranks"] = ours("analyze", two, "--jobs", "1")
    found = b.turns(commands)
    case = f"growth from 64 logs of {b.size(4) >> 10:,} KiB"
    report_row(case, found)
    b.ratio(case, found, "2 x patterns", "scan", goal=1.3)
    b.ratio(case, found, "2 x ranks", "analyze", goal=2.1)


def archives(b: Bench) -> None:
    """A job of 100,000 ranks as an object store holds it: 64 archives, read by two processes of a Dask
    cluster. No run warms the page cache: reading is a hundredth of the work."""
    from corpus import make

    corpus = make(b.folder / "many", max(64, int(100_000 * b.scale)), 16 << 10, b.seed + 4)
    packed = _in_archives(corpus.folder, b.folder / "archives", 64)
    found = {"analyze": [timed(ours("dask", packed)) for _ in range(b.runs)]}
    report_row(f"{len(corpus.lines)} logs of 16 KiB in 64 archives", found)
    for used in found["analyze"]:
        reply = used.reply
        print(
            f"   {used.wall:.0f} s, CPU: workers {reply['workers']:.0f} s, parent {reply['parent']:.0f} s; "
            f"page {reply['page'] / 1e6:.2f} MB, {reply['events']} events; "
            f"rank {reply['verdict']['culprit']['ranks']} of {corpus.culprit}"
        )


def _in_archives(folder: Path, target: Path, count: int) -> Path:
    """Pack the folders of hosts, `count` shares of them, and remove them."""
    import zstandard

    target.mkdir()
    hosts = sorted(folder.iterdir())
    for n in range(count):
        with (
            zstandard.open(target / f"part-{n:02d}.tar.zst", "wb") as stream,
            tarfile.open(fileobj=stream, mode="w|") as tar,
        ):
            for host in hosts[n::count]:
                tar.add(host, arcname=host.name)
                shutil.rmtree(host)
    return target


CASES = {
    "ranks": ranks,
    "dense": dense,
    "files": files,
    "flood": flood,
    "line": line,
    "packed": packed,
    "growth": growth,
    "archives": archives,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--dir", default=None, help="where the logs are made and removed again")
    parser.add_argument("--patterns", type=Path, help="expressions for ripgrep, one a line; our gates by default")
    parser.add_argument("--json", type=Path, help="write the ratios to this file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--double", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        what, path = given.child
        if what == "scan":
            reply = child_scan(path, given.double)
        else:
            reply = child_dask(path) if what == "dask" else child_analyze(path, given.jobs)
        reply["peak"] = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
        json.dump(reply, sys.stdout)
        return
    rows: list[dict[str, Any]] = []
    load = [round(os.getloadavg()[0], 1)]
    for name in given.cases.split(","):
        with tempfile.TemporaryDirectory(dir=given.dir) as folder:
            bench = Bench(Path(folder), given.runs, given.seed, given.scale, given.patterns)
            CASES[name](bench)
            rows += bench.rows
    load.append(round(os.getloadavg()[0], 1))
    if given.json:
        yardstick = f"{given.patterns.name}, {len(given.patterns.read_bytes().splitlines())}" if given.patterns else ""
        made = {"day": f"{date.today()}", "cpus": len(os.sched_getaffinity(0)), "load": load, "patterns": yardstick}
        content = {**made, "runs": given.runs, "seed": given.seed, "scale": given.scale, "ratios": rows}
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
