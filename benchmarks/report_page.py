"""How large a report is and how fast it opens: 64, 1,024 and 4,096 ranks, up to a million events.

    python benchmarks/report_page.py [ranks:events ...]

Each job trains on hosts of eight ranks; one rank is killed for lack of memory, all others time out minutes
later. Measured in the system's Chromium from file://: when the verdict is painted, when the timeline is drawn
first, the same for a page that holds the same data and draws one empty canvas, and the time between frames
while zooming. Without Chromium: sizes only.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from postmortem import report
from postmortem.model.frame import of_columns

SIZES = ("64:5000", "1024:100000", "4096:1000000")
ZERO = 1795209228.704
CULPRIT = 37
LIMITS = {64: 500_000, 1024: 1_500_000, 4096: 5_000_000}


COLUMNS = ("time", "sigma", "host", "rank", "kind", "severity", "pattern", "text", "source", "line", "clock")


@dataclass(frozen=True)
class Case:
    document: dict[str, Any]
    timeline: pd.DataFrame | None


def host(rank: int) -> str:
    return f"gpu-{rank // 8:04d}"


def job(ranks: int, events: int) -> Case:
    """Lines as trainers write them: steps with losses and times, some warnings, then the failure."""
    dice = random.Random(7)
    steps = max(1, events // ranks - 2)
    rows: list[tuple[Any, ...]] = []
    for rank in range(ranks):
        source, moment = f"{host(rank)}/rank{rank}.log", ZERO - 1.7 * steps
        for step in range(steps):
            moment += dice.uniform(1.5, 1.9)
            bad = dice.random() < 0.01
            words = (
                f"step {step}: loss {dice.random() * 3:.4f} "
                f"lr {3e-4 * (1 - step / steps / 2):.2e} {dice.random() * 900:.1f} ms/it"
            )
            text = f"[rank{rank}] slow batch, loader took {dice.random() * 9:.2f} s" if bad else f"[rank{rank}] {words}"
            severity = "warning" if bad else "info"
            rows.append(
                (
                    round(moment, 3),
                    0.002,
                    host(rank),
                    rank,
                    "progress",
                    severity,
                    None,
                    text,
                    source,
                    step + 3,
                    "naive",
                )
            )
        if rank != CULPRIT:
            text = (
                f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8120) ran "
                f"for {600000 + rank} ms"
            )
            moment, delayed = round(ZERO + 600 + dice.random(), 3), "nccl-watchdog-timeout"
            rows.append((moment, 0.5, host(rank), rank, "timeout", "error", delayed, text, source, steps + 40, "naive"))
    kill, oom = "Memory cgroup out of memory: Killed process 29502 (python3)", "kernel-oom-killed-process"
    rows.append((ZERO, 0.4, host(CULPRIT), None, "kill", "fatal", oom, kill, f"{host(CULPRIT)}/dmesg.txt", 81, "boot"))
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    return Case(document(ranks, rows), of_columns(columns.get, len(rows)))


def document(ranks: int, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The incident as the diagnosis would write it."""
    dmesg = f"{host(CULPRIT)}/dmesg.txt"
    proof = {
        "source": dmesg,
        "line": 81,
        "text": rows[-1][7],
        "time": "2026-11-20T21:13:48.704Z",
        "rank": CULPRIT,
        "host": host(CULPRIT),
    }
    others = [r for r in range(ranks) if r != CULPRIT]
    headline = (
        f"Rank {CULPRIT} on {host(CULPRIT)} was killed by the kernel's OOM killer at "
        f"21:13:48; {len(others)} ranks then timed out."
    )
    verdict = {
        "outcome": "incident",
        "category": "host-oom",
        "pattern": "kernel-oom-killed-process",
        "headline": headline,
        "confidence": "established",
        "because": [f"{dmesg}:81 states it."],
        "culprit": {"ranks": [CULPRIT], "hosts": [host(CULPRIT)], "gpus": [], "pids": [29502], "code": None},
        "evidence": [proof],
        "actions": [{"kind": "add-memory", "text": "Give the job more memory."}],
        "missing": [],
    }
    alike = {
        "state": "victim",
        "group": "b",
        "exit": "SIGABRT",
        "last_step": 812,
        "last_collective": "ALLREDUCE 8120",
        "why": "timed out",
    }
    listed = [{**alike, "rank": rank, "host": host(rank)} for rank in others]
    listed.append({"rank": CULPRIT, "state": "cause", "group": "a", "host": host(CULPRIT), "exit": "SIGKILL"})
    sources: list[dict[str, Any]] = [
        {
            "path": f"{host(rank)}/rank{rank}.log",
            "kind": "console",
            "host": host(rank),
            "rank": rank,
            "bytes": 10**6,
        }
        for rank in range(ranks)
    ]
    sources.append({"path": dmesg, "kind": "kernel", "host": host(CULPRIT), "rank": None, "bytes": 10**4})
    return {
        "schema": "postmortem/incident/1",
        "verdict": verdict,
        "chain": [],
        "alternatives": [],
        "ranks": listed,
        "clocks": [],
        "sources": sources,
        "ledger": {"bytes": 10**9, "scanned": 10**9, "skipped": []},
        "job": {"world_size": ranks, "attempts": 1},
        "findings": [],
    }


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────

EMPTY = """<!doctype html><meta charset="utf-8"><canvas width="1160" height="600"></canvas>
<script type="application/octet-stream" id="data">%s</script><script type="application/json">%s</script>
<script>requestAnimationFrame(() => {
  document.querySelector("canvas").getContext("2d").fillRect(0, 0, 1160, 600);
  setTimeout(() => performance.mark("postmortem-timeline")); });</script>"""
MARK = "performance.getEntriesByName('postmortem-timeline')[0]?.startTime"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ZOOM = """async () => {
  const canvas = document.querySelector('.tl canvas'), place = document.getElementById('timeline-live');
  const box = canvas.getBoundingClientRect();
  canvas.scrollIntoView();
  const spans = [], before = Number(place.dataset.drawn);
  const next = () => new Promise((done) => requestAnimationFrame(done));
  let last = await next();
  for (let i = 0; i < 120; i++) {
    canvas.dispatchEvent(new WheelEvent('wheel', {
        deltaY: i % 60 < 30 ? -40 : 40, ctrlKey: true, bubbles: true, cancelable: true,
      clientX: box.left + 700, clientY: canvas.getBoundingClientRect().top + 100 }));
    const now = await next();
    spans.push(now - last);
    last = now;
  }
  return [spans, Number(place.dataset.drawn) - before, callbacks.slice(-120)];
}"""
# how long each frame's callback took: the cost of drawing, independent of other load
TIMED = """window.callbacks = []; const real = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (act) => real((now) => {
  const from = performance.now();
  act(now);
  callbacks.push(performance.now() - from);
});"""


def browse(page_: str, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = os.environ.get("POSTMORTEM_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not found:
        print("  no Chromium: sizes only")
        return
    blocks = [
        re.search(rf'id="{name}">(.*?)</script>', page_, re.DOTALL)
        for name in ("postmortem-events", "postmortem-incident")
    ]
    pages = {"report": page_, "empty canvas": EMPTY % tuple(block[1] if block else "" for block in blocks)}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        first: dict[str, float] = {}
        for name, content in pages.items():
            path = folder / f"{name.replace(' ', '-')}.html"
            path.write_text(content, encoding="utf-8")
            taken = [opened(browser, path) for _ in range(5)]
            first[name] = statistics.median(drawn for drawn, _ in taken)
            painted = statistics.median(paint for _, paint in taken)
            print(f"  {name}: painted after {painted:.0f} ms, timeline drawn after {first[name]:.0f} ms (median of 5)")
        print(f"  first timeline / first empty canvas: {first['report'] / first['empty canvas']:.1f}")
        zoom(browser, folder / "report.html")
        browser.close()


def opened(browser: Any, path: Path) -> tuple[float, float]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_function(f"() => {MARK} !== undefined", timeout=60_000)
    taken = page.evaluate(f"[{MARK}, {PAINT} ?? 0]")
    page.close()
    return float(taken[0]), float(taken[1])


def zoom(browser: Any, path: Path) -> None:
    """Zoom in and out once in every frame;
    a frame is dropped where the next one comes more than half a frame later."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.add_init_script(TIMED)
    page.goto(path.as_uri())
    page.wait_for_function(f"() => {MARK} !== undefined", timeout=60_000)
    page.evaluate(ZOOM)
    spans, drawn, costs = page.evaluate(ZOOM)
    spans.sort()
    costs.sort()
    delayed = sum(span > 25 for span in spans)
    print(f"  zooming: {drawn} frames, each drawn in p50 {costs[60]:.1f} ms, p95 {costs[114]:.1f} ms; "
          f"from one to the next p50 {spans[60]:.1f} ms, p95 {spans[114]:.1f} ms, {delayed} of 120 later than "
          f"25 ms")  # fmt: skip
    page.close()


def main(sizes: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        for size in sizes or SIZES:
            ranks, events = map(int, size.split(":"))
            case = job(ranks, events)
            start = time.perf_counter()
            page = report.render_html(case)
            took = time.perf_counter() - start
            length = len(page.encode())
            block = re.search(r'id="postmortem-events">(.*?)</script>', page, re.DOTALL)
            held = 0 if case.timeline is None else len(case.timeline)
            packed = len(block[1]) / 1000 if block else 0
            print(
                f"{ranks:,} ranks, {held:,} events: {length / 1000:,.0f} kB, {packed:,.0f} kB of it events, "
                f"rendered in {took:.1f} s"
            )
            if length > LIMITS.get(ranks, length):
                print(f"  larger than {LIMITS[ranks]:,} bytes")
            for note in re.findall(r">(The interactive timeline shows [^<]*)<", page):
                print(f"  {note}")
            browse(page, Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
