"""A time-out is arithmetic: situations of one job, each built from the emitters' format strings, and what is
said of each.

A situation is what every rank shows: it waits in a work of a group, loses a peer, goes on silently, was
stopped, left, or shows its stack. The formats are those of ProcessGroupNCCL.cpp (torch 2.7), gloo's
unbound_buffer.cc, torchrun's agent and py-spy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze

DEFAULT = "0(default_pg)"
HOUR = "13:24"
Lines = list[str]


def wait(
    rank: int,
    seq: int = 808,
    op: str = "ALLREDUCE",
    numel: int = 4096,
    done: int | None = None,
    ahead: int | None = None,
    group: str = DEFAULT,
    second: float = 40.0,
) -> Lines:
    """A rank's watchdog: the work that timed out, and how far its group had come."""
    stamp = f"[rank{rank}]:[E1121 {HOUR}:{second:012.9f}"
    head = f"{stamp} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000)"
    status = (
        f"{stamp} ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID {group} Rank {rank}] Exception (either an error or "
        f"timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {seq if ahead is None else ahead}, "
        f"last completed NCCL work: {seq - 1 if done is None else done}."
    )
    return [f"{head}{work} ran for 600020 milliseconds before timing out.", status]


def steps(rank: int, world: int, last: int = 40, more: str = "") -> Lines:
    """A rank's own log until it came to the collective."""
    lines = [
        f"2026-11-21 13:14:{s // 2 + 5:02d},120 INFO [rank{rank}] train: step {s} loss 2.{s}"
        for s in range(0, last, 10)
    ]
    head = [f"2026-11-21 13:14:04,002 INFO [rank{rank}] train: rank {rank} world_size={world} on node-a"]
    return [*head, *lines, *([f"2026-11-21 13:14:31,500 INFO [rank{rank}] train: {more}"] if more else [])]


def gloo(rank: int, what: str = "recv", line: int = 31, call: str = "all_reduce", second: int = 40) -> Lines:
    """gloo's time-out as torchrun prints it, in the user's call."""
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/opt/train/train.py", line {line}, in <module>',
        f"[rank{rank}]:     dist.{call}(x)",
        f'[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3100, in {call}',
        f"[rank{rank}]:     work.wait()",
        (
            f"[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
            f"Timed out waiting 9000ms for {what} operation to complete"
        ),
    ]


def lost(rank: int) -> Lines:
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/opt/train/train.py", line 31, in <module>',
        f"[rank{rank}]:     dist.all_reduce(x)",
        (
            f"[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
            "Connection closed by peer [10.0.0.7]:40412"
        ),
    ]


def bye(rank: int) -> Lines:
    return [f"2026-11-21 13:14:32,000 INFO [rank{rank}] train: training finished"]


def pyspy(function: str, line: int, file: str = "train.py") -> Lines:
    """`py-spy dump --pid N` of a rank."""
    library = "torch/distributed/distributed_c10d.py"
    above = f"    {function} ({library}:2810)\n" if function.startswith("all_") else ""
    return [
        "Process 4711: python train.py",
        "Python v3.11.7 (/opt/venv/bin/python3.11)",
        "",
        'Thread 4711 (active): "MainThread"',
        *(above.splitlines()),
        f"    {'step' if above else function} ({file}:{line})",
        f"    <module> ({file}:90)",
    ]


@dataclass(frozen=True)
class Situation:
    name: str
    files: dict[str, Lines]
    category: str
    ranks: tuple[int, ...]
    outcome: str = "incident"
    says: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def console(*parts: Lines) -> dict[str, Lines]:
    return {"train.log": [line for part in parts for line in part]}


def block(*ends: tuple[int, int]) -> Lines:
    """torchrun's report: ranks with their exit codes."""
    lines = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    for n, (rank, code) in enumerate(ends):
        lines += [
            f"[{n}]:",
            "  time      : 2026-11-21_11:47:24",
            "  host      : localhost",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {8200 + rank})" + ("  (SIGTERM)" if code == -15 else " "),
            "  error_file: <N/A>",
        ]
    return [*lines, "=" * 60]


def each(world: int, of: Callable[[int], Lines]) -> dict[str, Lines]:
    """A file for every rank."""
    return {f"rank{r}.log": of(r) for r in range(world)}


SITUATIONS = [
    Situation(
        "one rank waits in an earlier work",
        console(*(wait(r) for r in (0, 1, 3)), wait(2, seq=807)),
        "hang",
        (2,),
        says="Rank 2 waited in ALLREDUCE 807",
    ),
    Situation(
        "another operation under the same number",
        console(wait(0), wait(1), wait(2, op="BROADCAST"), wait(3)),
        "collective-mismatch",
        (2,),
        says="BROADCAST",
    ),
    Situation(
        "another size under the same number",
        console(wait(0), wait(1, numel=2776), wait(2), wait(3)),
        "collective-mismatch",
        (1,),
        says="2776 elements",
    ),
    Situation(
        "all wait in the same work, one had enqueued less",
        console(*(wait(r, ahead=811) for r in (0, 1, 2)), wait(3, ahead=808)),
        "hang",
        (3,),
        says="Rank 3",
    ),
    Situation(
        "all ranks wait in the same later work",
        console(*(steps(r, 4) for r in range(4)), *(wait(r) for r in range(4))),
        "hang",
        (),
        says="Ranks 0, 1, 2 and 3 timed out in ALLREDUCE 808 after 600 s at 13:24:40: none was missing",
    ),
    Situation(
        "all ranks wait in their first work",
        console(*(steps(r, 4, 0) for r in range(4)), *(wait(r, seq=1, done=-1) for r in range(4))),
        "network",
        (),
        says="the first of its group",
    ),
    Situation(
        "three of 128 are heard of",
        {"ray.log": ["rank 21 world_size=128", *wait(21, 5020), *wait(27, 5020), *wait(43, 5020)]},
        "hang",
        (),
        says="these logs do not show what the other 125 ranks did",
    ),
    Situation(
        "one rank is all that is here",
        console(wait(5)),
        "hang",
        (),
        says="these logs do not show how many ranks the job has",
    ),
    Situation(
        "a rank had said goodbye",
        each(3, lambda r: [*steps(r, 3), *(bye(r) if r == 1 else wait(r))]),
        "collective-mismatch",
        (1,),
        says="still waited in a collective",
    ),
    Situation(
        "most had said goodbye, and one came to a barrier of its own",
        each(3, lambda r: [*steps(r, 3), *(gloo(r, call="barrier") if r == 1 else bye(r))]),
        "collective-mismatch",
        (1,),
        says="entered a collective after",
    ),
    Situation(
        "a subgroup waits, its members alone",
        console(wait(0, group="3(tp)"), wait(1, group="3(tp)")),
        "hang",
        (),
        says="group 3(tp)",
    ),
    Situation(
        "numbers of two groups are not compared",
        console(*(wait(r, 50, group="3(tp)") for r in (0, 1)), *(wait(r, 70, group="7(pp)") for r in (0, 1))),
        "hang",
        (),
    ),
    Situation(
        "a watchdog without group times out in two works at once",
        console(*(line for line in [wait(0, 96120)[:1], wait(0, 96117)[:1], wait(7, 64088)[:1]])),
        "hang",
        (),
        says="the cause is not in these logs",
    ),
    Situation(
        "gloo: all ranks at the same place",
        console(*(steps(r, 3) for r in range(3)), *(gloo(r) for r in range(3))),
        "hang",
        (),
        says=": none was missing",
    ),
    Situation(
        "gloo: one came when the others had timed out",
        each(3, lambda r: [*steps(r, 3), *(lost(r) if r == 1 else gloo(r))]),
        "hang",
        (1,),
        says="and found the connection closed",
    ),
    Situation(
        "a pipeline: one rank went on to a barrier",
        console(
            gloo(0, "send", 9, "send"),
            gloo(1, line=13, call="barrier"),
            gloo(2, line=11, call="recv"),
            gloo(3, line=11, call="recv"),
        ),
        "collective-mismatch",
        (1,),
    ),
    Situation(
        "stacks: one rank outside of any collective",
        {
            f"pyspy-rank{r}.txt": pyspy("all_reduce", 43) if r != 1 else pyspy("read_shard", 71, "data.py")
            for r in range(3)
        },
        "hang",
        (1,),
        says="data.py:71",
    ),
    Situation(
        "the job was stopped when its stacks had been taken",
        {
            "job.log": [
                *(f"ct rank {r} pid {4711 + r} series {n}0" for n in range(4) for r in range(3)),
                "W1121 19:59:03.207000 8929 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers",
            ],
            "pyspy.txt": [
                line.replace("4711", str(4711 + r))
                for r in range(3)
                for line in (
                    "$ py-spy dump --pid 4711",
                    *(pyspy("read_slices", 14) if r == 2 else pyspy("all_reduce", 18)),
                )
            ],
        },
        "hang",
        (2,),
        says="read_slices (train.py:14)",
    ),
    Situation(
        "torch's desync report names who lags",
        console(
            [
                (
                    "[rank0]:[E1121 13:24:40.1 ProcessGroupNCCL.cpp:1999] To our best knowledge, ranks [2, 5] are the lagging ranks that "
                    "caused this timeout. They never joined any collectives"
                )
            ],
            *(wait(r) for r in (0, 1)),
        ),
        "hang",
        (2, 5),
    ),
    Situation(
        "everybody got over the time-out",
        each(2, lambda r: [*steps(r, 2), *gloo(r), *bye(r)]),
        "",
        (),
        outcome="healthy",
    ),
    Situation(
        "the step counters tell who is behind",
        each(4, lambda r: [*steps(r, 4, 40 if r != 3 else 30), *gloo(r)]),
        "hang",
        (3,),
    ),
    Situation(
        "all but one rank lost it, and nothing here bears its name",
        console(["six of eight: training finished"], *(lost(r) for r in (0, 1, 2, 4))),
        "peer-lost",
        (3,),
    ),
    Situation(
        "torchrun lists all but one of the ranks that spoke",
        console(
            *([f"[rank{r}]: 11 pages, {n} mine"] for r, n in ((0, 3), (3, 0), (1, 3), (2, 3))),
            ["[rank3]: nothing to do, leaving"],
            *(lost(r) for r in (1, 2)),
            block((0, -15), (1, 1), (2, 1)),
        ),
        "collective-mismatch",
        (3,),
    ),
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_what_is_stated_of_a_time_out(situation: Situation, tmp_path: Path) -> None:
    for name, lines in situation.files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    verdict = analyze([str(tmp_path)]).document["verdict"]
    said = (verdict["outcome"], verdict["category"] or "", tuple(verdict["culprit"]["ranks"]))
    assert said == (situation.outcome, situation.category, situation.ranks), verdict["headline"]
    assert situation.says in verdict["headline"], verdict["headline"]
