"""Twice as much of one thing costs twice the calls of Python functions, in all and of each function."""

from __future__ import annotations

import cProfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from conftest import corpus, table
from postmortem import input as collect
from postmortem import report
from postmortem.analyze import Options, analyze
from postmortem.library import load
from postmortem.reading import read

Logs = dict[str, str]
RAISED, CLOSED, TIMEOUT, FAILED, KILLED, STACK = table("calls").values()


def clock(seconds: int) -> str:
    return f"{12 + seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def work(rank: int, world: int, steps: int = 4, at: int = 0, pid: int = 1000) -> str:
    ready = f"process group ready: rank {rank} of {world}, pid {pid + rank}"
    rows = [(at, ready), *((at + 5 + n, f"epoch 0 step {n} loss 2.0") for n in range(steps))]
    return "".join(f"2026-11-21 {clock(second)},100 INFO [rank{rank}] train: {text}\n" for second, text in rows)


def raised(rank: int, line: int = 9, error: str = "") -> str:
    return RAISED.format(r=rank, n=line, error=error or (f"ValueError: bad shard {line}" if rank == 0 else CLOSED))


def timeout(rank: int, number: int = 70) -> str:
    return TIMEOUT.format(r=rank, n=number, at=f"{10 + number // 60:02}:{number % 60:02}.170000000")


def ranks(n: int) -> Logs:
    return {f"rank{r}.log": work(r, n) + raised(r) for r in range(n)}


def ranks_of_a_hang(n: int) -> Logs:
    return {f"rank{r}.log": work(r, n) + (timeout(r) if r != 1 else "") for r in range(n)}


def stacks(n: int) -> Logs:
    found = {f"rank{r}.log": work(r, n) for r in range(n)}
    for r in range(n):
        call, line = ("recv", 20) if r == 1 else ("all_reduce", 30)
        found[f"pyspy/rank{r}_pid{1000 + r}.txt"] = STACK.format(pid=1000 + r, call=call, line=line)
    return found


def hosts(n: int) -> Logs:
    """A kernel that killed a rank on each."""
    found = {}
    for r in range(0, n, 2):
        agent = FAILED.format(at=clock(30), agent=600 + r, code=-9, pid=1000 + r)
        files = {f"rank{r}.log": work(r, n), f"rank{r + 1}.log": work(r + 1, n) + raised(r + 1), "agent.err": agent}
        files["dmesg.txt"] = KILLED.format(pid=1000 + r)
        found.update({f"node-{r // 2}/{name}": text for name, text in files.items()})
    return found


def attempts(n: int) -> Logs:
    text = ""
    for k in range(n):
        own = "".join(work(r, 2, at=60 * k, pid=1000 + 10 * k) + raised(r) for r in (0, 1))
        text += "".join(f"[default{'[rank1]' in line:d}]:{line}\n" for line in own.splitlines())
        text += FAILED.format(at=clock(60 * k + 20), agent=600, code=1, pid=1000 + 10 * k)
    return {"agent.err": text}


def files(n: int) -> Logs:
    other = {f"{k}/host.log": f"2026-11-21 {clock(30)},200 WARNING low on space {k}\n" for k in range(n)}
    return {**ranks(4), **other}


def lines_of_all_patterns(n: int) -> Logs:
    lines = [p.matches[0].text.split("\n")[0] for p in load().patterns.values() if p.matches]
    return {"job.log": "\n".join(lines[::12] * n)}


SIZES = {
    "ranks": (6, 40, 80),  # a loop over all pairs has 3,200 calls
    "lines_of_all_patterns": (
        6,
        40,
        80,
    ),  # of the starts in a log the first and the last 24 are known: runs of few lines
}
JOBS: dict[str, Callable[[int], Logs]] = {
    **{job.__name__: job for job in (ranks, ranks_of_a_hang, stacks, hosts, attempts, files, lines_of_all_patterns)},
    "events": lambda n: {"rank0.log": work(0, 2, 8 * n) + raised(0), "rank1.log": work(1, 2, 8 * n) + raised(1)},
    "claims": lambda n: {"rank0.log": work(0, 2) + "".join(timeout(0, k) for k in range(n)), "rank1.log": work(1, 2)},
    "one-console": lambda n: {"job.log": "".join(work(r, n) for r in range(n)) + "".join(map(timeout, range(n)))},
    "texts": lambda n: {"rank0.log": work(0, 2) + "".join(raised(0, k + 1) for k in range(n)), "rank1.log": work(1, 2)},
}


def calls(logs: Logs, folder: Path) -> Counter[CodeType]:
    for name, text in logs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return counted(lambda: report.render_html(analyze([str(folder)], Options(workers=1))))


def counted(run: Callable[[], object]) -> Counter[CodeType]:
    profile = cProfile.Profile(subcalls=False, builtins=False)  # it counts in C
    profile.runcall(run)
    found = Counter[CodeType]()
    for row in profile.getstats():
        assert isinstance(row.code, CodeType)
        found[row.code] += row.callcount
    return found


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=pytest.mark.slow) if job == "lines_of_all_patterns" else job for job in JOBS]
)
def test_twice_as_much_costs_at_most_twice(job: str, tmp_path: Path) -> None:
    """Sorting and the cost of a start aside. The first analysis fills the caches."""
    _, few, many = (calls(JOBS[job](n), tmp_path / str(k)) for k, n in enumerate(SIZES.get(job, (6, 20, 40))))
    assert many.total() < 2.3 * few.total()
    worse = {f"{c.co_filename}:{c.co_firstlineno} {c.co_name}": (few[c], n) for c, n in many.items() if n > 2000}
    assert not {place: pair for place, pair in worse.items() if pair[1] > 2.6 * pair[0] > 0}


@pytest.mark.parametrize(("size", "story", "most"), [(64 << 10, False, 1550), (64 << 10, True, 2450), (64, False, 445)])
def test_a_log_of_many_costs_few_calls(size: int, story: bool, most: int, tmp_path: Path) -> None:
    """Where lines like those of other logs are read once, and 12 lines of each log."""
    corpus.make(tmp_path, ranks=24, size=size, seed=8, every=1000 if story else 1 << 20, story=story)
    first, *logs = collect.collect([str(tmp_path)]).containers
    read(first, lines=12)
    found = counted(lambda: [read(log, lines=12) for log in logs]).total() / len(logs)
    assert found < most
