# ruff: noqa: ISC004 - log lines are long
"""Writes tests/incidents/synthetic/: incidents that need several GPUs or a cluster, which were not at hand.

NOT real runs. Every line is a format string of its emitter (torch ProcessGroupNCCL.cpp and torchelastic, NCCL
init.cc and net_ib.cc, the NVIDIA kernel driver, Slurm) with numbers filled in; the story decides which rank
prints its lines and times.

    python scripts/synthetic_incidents.py            writes the folders anew (the same bytes each time)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "tests" / "incidents" / "synthetic"
BUS = ("1b000", "43000", "52000", "61000", "9d000", "c3000", "d1000", "df000")
PCI = (
    "0000:1b:00",
    "0000:43:00",
    "0000:52:00",
    "0000:61:00",
    "0000:9d:00",
    "0000:c3:00",
    "0000:d1:00",
    "0000:df:00",
)
Logs = dict[str, list[str]]


def pid(rank: int) -> int:
    return 41000 + 7 * rank


def host(rank: int) -> str:
    return f"gpu{1 + rank // 8:03d}"


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{10 + whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def init(rank: int, world: int) -> list[str]:
    """NCCL_DEBUG=INFO of one rank while it joins (src/init.cc)."""
    local = rank % 8
    who = f"{host(rank)}:{pid(rank)}:{pid(rank) + 90} [{local}] NCCL INFO"
    comm = (
        f"comm 0x55d0c{rank:03x}a0 rank {rank} nranks {world} cudaDev {local} nvmlDev {local} "
        f"busId {BUS[local]} commId 0x8f1e7f37b6a3d0c1"
    )
    return [
        (f"{host(rank)}:{pid(rank)}:{pid(rank)} [{local}] NCCL INFO Bootstrap : Using eth0:10.4.0.{10 + rank // 8}<0>"),
        f"{who} ncclCommInitRank {comm} - Init START",
        f"{who} ncclCommInitRank {comm} - Init COMPLETE",
    ]


def steps(rank: int, last: int) -> list[str]:
    return [
        (
            f"2026-03-04 {clock(60 + 2 * s)},{100 + rank:03d} INFO [rank{rank}] trainer: step {s} "
            f"loss {3.2 - 0.01 * s:.4f}"
        )
        for s in range(0, last + 1, 5)
    ]


def watchdog(
    rank: int, seconds: float, seq: int, op: str, numel: int, enqueued: int, completed: int, ms: int = 600000
) -> list[str]:
    """ProcessGroupNCCL.cpp of torch 2.6."""
    stamp = f"[E304 {clock(seconds)}.{rank:03d}551208 ProcessGroupNCCL.cpp"
    where = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    work = (
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={ms}) ran "
        f"for {ms + 40 + rank} milliseconds before timing out."
    )
    return [
        f"[rank{rank}]:{stamp}:629] [Rank {rank}] Watchdog caught collective operation timeout: {work}",
        f"[rank{rank}]:{stamp}:2168] {where}  failure detected by watchdog at work sequence id: {seq} PG "
        f"status: last enqueued work: {enqueued}, "
        f"last completed work: {completed}",
        f"[rank{rank}]:{stamp}:667] Stack trace of the failed collective not found, potentially because "
        f"FlightRecorder is disabled. "
        "You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        f"[rank{rank}]:{stamp}:681] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the "
        f"asynchronous nature of CUDA kernels, "
        "subsequent GPU operations might run on corrupted/incomplete data.",
        (
            f"[rank{rank}]:{stamp}:695] [Rank {rank}] To avoid data inconsistency, we are taking the entire "
            f"process down."
        ),
        f"[rank{rank}]:{stamp}:1895] {where} Process group watchdog thread terminated with exception: "
        f"[Rank {rank}] Watchdog caught collective "
        f"operation timeout: {work}",
    ]


def xid(seconds: float, gpu: int, number: int, text: str, who: str = "pid='<unknown>', name=<unknown>") -> str:
    return (
        f"2026-03-04T{clock(seconds)},{seconds % 1 * 1e6:06.0f}+00:00 NVRM: Xid "
        f"(PCI:{PCI[gpu]}): {number}, {who}, {text}"
    )


def fell_off_the_bus() -> tuple[Logs, dict[str, object]]:
    """A GPU of the second host falls off the bus at step 40;
    ten minutes later the other fifteen ranks time out."""
    logs: Logs = {}
    for r in range(16):
        lines = init(r, 16) + steps(r, 40)
        if r != 11:
            lines += watchdog(r, 60 + 82 + 600, 1240, "ALLREDUCE", 26214400, 1243, 1239)
        logs[f"{host(r)}/rank{r}.log"] = lines
    logs["gpu002/dmesg.txt"] = [
        ("2026-03-04T09:12:44,100231+00:00 nvidia-nvlink: Nvlink Core is being initialized, major device number 511"),
        xid(60 + 81.4, 3, 79, "GPU has fallen off the bus."),
        xid(60 + 81.9, 3, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    ]
    return logs, truth(["gpu-hardware"], [11], ["gpu002"], [PCI[3]], [("gpu002/dmesg.txt", 2)])


def one_rank_behind() -> tuple[Logs, dict[str, object]]:
    """Rank 5 never enqueues collective 801;
    the others wait in it, and rank 5's own watchdog sees only the older one."""
    logs: Logs = {}
    for r in range(8):
        lines = init(r, 8) + steps(r, 30 if r == 5 else 35)
        if r != 5:
            lines += watchdog(r, 740, 801, "ALLGATHER", 1048576, 804, 800)
        else:
            lines += [
                f"[rank5]:[E304 {clock(741)}.118551208 ProcessGroupNCCL.cpp:1683] [PG ID 0 PG GUID "
                f"0(default_pg) Rank 5] Observed flight recorder dump signal "
                "from another rank via TCPStore.",
            ]
        logs[f"rank{r}.log"] = lines
    return logs, truth(["hang", "collective-mismatch"], [5], None, None, [])


def different_collectives() -> tuple[Logs, dict[str, object]]:
    """Rank 2 takes another branch: under one number it waits in a broadcast while seven
    ranks wait in an all-reduce."""
    logs: Logs = {}
    for r in range(8):
        op, numel = ("BROADCAST", 1) if r == 2 else ("ALLREDUCE", 4096)
        logs[f"rank{r}.log"] = init(r, 8) + steps(r, 20) + watchdog(r, 720, 377, op, numel, 377, 376)
    return logs, truth(["collective-mismatch"], [2], None, None, [("rank2.log", 9)])


def oom_then_timeouts() -> tuple[Logs, dict[str, object]]:
    """Rank 6 runs out of GPU memory; its peers lose it or time out,
    and the launcher blames the first it noticed."""
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 6 has a total capacity "
        "of 79.10 GiB of which 1.21 GiB is free. "
        "Including non-PyTorch memory, this process has 77.87 GiB memory in use."
    )
    logs: Logs = {}
    for r in range(8):
        lines = init(r, 8) + steps(r, 15)
        if r == 6:
            lines += [
                "[rank6]: Traceback (most recent call last):",
                '[rank6]:   File "/opt/train/train.py", line 88, in <module>',
                "[rank6]:     loss.backward()",
                ('[rank6]:   File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 626, in backward'),
                "[rank6]:     torch.autograd.backward(",
                f"[rank6]: {text}",
            ]
        else:
            lines += watchdog(r, 700, 150, "REDUCE_SCATTER_BASE", 8388608, 152, 149)
        logs[f"rank{r}.log"] = lines
    return logs, truth(["gpu-oom"], [6], None, None, [("rank6.log", 13)])


def retry_exceeded() -> tuple[Logs, dict[str, object]]:
    """A port of one host stops answering:
    completions with error 12 on the other host, time-outs everywhere."""
    logs: Logs = {}
    for r in range(16):
        lines = init(r, 16) + steps(r, 25)
        if r == 2:
            lines += [
                f"{host(r)}:{pid(r)}:{pid(r) + 95} [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got "
                f"completion from peer 10.4.0.11<44310> with status=12 "
                "opcode=0 len=0 vendor err 129 (Recv) hca mlx5_2",
            ]
        lines += watchdog(r, 730, 501, "ALLREDUCE", 65536, 501, 500)
        logs[f"{host(r)}/rank{r}.log"] = lines
    return logs, truth(["network"], None, None, None, [("gpu001/rank2.log", 10)])


def truth(
    categories: list[str],
    ranks: list[int] | None,
    hosts: list[str] | None,
    gpus: list[str] | None,
    evidence: list[tuple[str, int]],
) -> dict[str, object]:
    return {
        "outcomes": ["incident"],
        "categories": categories,
        "ranks": ranks,
        "hosts": hosts,
        "gpus": gpus,
        "evidence": evidence,
    }


INCIDENTS: dict[str, Callable[[], tuple[Logs, dict[str, object]]]] = {
    "xid-79-on-second-host": fell_off_the_bus,
    "nccl-one-rank-behind": one_rank_behind,
    "nccl-different-collectives": different_collectives,
    "cuda-oom-one-rank-of-eight": oom_then_timeouts,
    "ib-retry-exceeded": retry_exceeded,
}


def write(name: str) -> None:
    make = INCIDENTS[name]
    logs, facts = make()
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    for path, lines in logs.items():
        file = folder / "logs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
    story = " ".join((make.__doc__ or "").split())
    proof = facts["evidence"]
    assert isinstance(proof, list)
    shown = [{"file": path, "line": line, "text": logs[path][line - 1]} for path, line in proof]
    (folder / "truth.json").write_text(
        json.dumps({"id": name, **facts, "evidence": shown, "story": story, "synthetic": True}, indent=1) + "\n"
    )
    (folder / "README.md").write_text(
        f"# {name}\n\nSYNTHETIC: built from the emitters' format strings by scripts/synthetic_incidents.py, "
        f"not recorded.\n\n{story}\n"
    )


if __name__ == "__main__":
    for each in INCIDENTS:
        write(each)
