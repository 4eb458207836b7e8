"""Records the GPU samples of sample_logs/ on a machine that has one:
every GPU scenario, and the messages of NCCL in the common failures.

    python scripts/record_gpu_samples.py OUT [--only WORD] [--seconds 540] [--at-once 2]

Needs torch with CUDA and nothing else of this project's dependencies. With one GPU the ranks of an NCCL job
share it (each reports a host of its own). Writes OUT/<name>/ as `record_sample.py` does,
OUT/machine/ with nvidia-smi's words, and a line for each run.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RECORDER = (
    "TORCH_FR_BUFFER_SIZE=2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    "TORCH_FR_DUMP_TEMP_FILE=flight_recorder/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=flight_recorder/nccl_trace_rank_",
)
DUMPS = " ".join(f"--env {pair}" for pair in RECORDER)
NCCL = "--backend nccl --env NCCL_DEBUG=WARN"
BEAT = "--env TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=6"
DETAIL = "--env TORCH_DISTRIBUTED_DEBUG=DETAIL"

SAMPLES = {
    "gpu-two-ranks-one-gpu": "two-ranks-one-gpu --nproc 2 --env NCCL_DEBUG=WARN --set style=logging",
    "healthy-gpu-nccl-info": "healthy --nproc 2 --backend nccl --env NCCL_DEBUG=INFO --set style=logging",
    "healthy-gpu-one-rank-nccl-info": (
        "healthy --nproc 1 --backend nccl --env NCCL_DEBUG=INFO --set style=iso --set rank=0"
    ),
    "gpu-device-assert": f"device-assert --nproc 2 {NCCL} --set rank=1 --set style=logging",
    "gpu-illegal-access": f"illegal-access --nproc 2 {NCCL} --set rank=1 --set style=iso --kernel dmesg_iso",
    "gpu-more-ranks-than-gpus": "more-ranks-than-gpus --nproc 2 --set rank=1 --set style=bare",
    "gpu-tensor-in-gloo-group": "gloo-with-gpu --nproc 2 --set style=logging",
    "gpu-cuda-in-forked-worker": "cuda-in-forked-worker --nproc 2 --set rank=1 --set style=iso",
    "gpu-nan-check": f"nccl-nan-check --nproc 2 {NCCL} --set rank=1 --set style=logging",
    "gpu-stuck-kernel-recorder": (f"nccl-stuck-kernel --nproc 2 {NCCL} {DUMPS} --set rank=1 --set style=logging"),
    "gpu-stuck-kernel-one-rank": f"nccl-stuck-kernel --nproc 1 {NCCL} {DUMPS} --set rank=0 --set style=iso",
    "gpu-stuck-kernel-heartbeat": f"nccl-stuck-kernel --nproc 2 {NCCL} {BEAT} --set rank=1 --set seconds=60",
    "gpu-slow-rank-nccl": f"slow-rank --nproc 3 {NCCL} {DUMPS} --set rank=1 --set style=logging",
    "gpu-skipped-collective-nccl": (
        f"skipped-collective --nproc 3 {NCCL} {DUMPS} --set rank=2 --set dump=0 --set style=iso"
    ),
    "gpu-shape-mismatch-nccl": (
        f"shape-mismatch --nproc 2 {NCCL} {DUMPS} --set rank=1 --set extra=4000000 --set style=logging"
    ),
    "gpu-order-mismatch-nccl": f"order-mismatch --nproc 3 {NCCL} {DUMPS} --set rank=1 --set style=bracket",
    "gpu-order-mismatch-nccl-detail": (f"order-mismatch --nproc 2 {NCCL} {DETAIL} --set rank=1 --set style=logging"),
    "gpu-uneven-batches-nccl": f"uneven-batches --nproc 2 {NCCL} {DUMPS} --set rank=1 --set style=logging",
    "gpu-rank-sigkill-nccl": f"rank-sigkill --nproc 3 {NCCL} --set rank=1 --set style=megatron",
    "gpu-exception-nccl": (f"python-exception-one-rank --nproc 2 {NCCL} --set rank=1 --set style=json --record"),
    "gpu-out-of-memory": f"gpu-oom-one-rank --nproc 2 {NCCL} --set rank=1 --set style=logging",
    "gpu-out-of-memory-gloo": "gpu-oom-one-rank --nproc 2 --set rank=0 --set style=hf",
}
ALONE = ("gpu-out-of-memory",)  # these take all memory of the GPU: nothing else runs beside them


def one(name: str, out: Path) -> str:
    from postmortem.errors import ReplayError
    from postmortem.replay.isolate import CannotIsolate
    from scripts.record_sample import record

    began = time.monotonic()
    words = [*shlex.split(SAMPLES[name]), "--out", f"sample_logs/{name}"]
    try:
        truth = record(words, out / name, keep=True)
        evidence = truth["evidence"]
        result = f"recorded, {len(evidence) if isinstance(evidence, list) else 0} lines of evidence"
    except (ReplayError, CannotIsolate, OSError, KeyError) as error:
        result = f"REFUSED {type(error).__name__}: {error}"
    return f"{name:34} {time.monotonic() - began:5.0f} s  {result}"


def machine(out: Path) -> None:
    (out / "machine").mkdir(parents=True, exist_ok=True)
    for name, words in {
        "nvidia-smi-q": ["nvidia-smi", "-q"],
        "nvidia-smi": ["nvidia-smi"],
        "dmesg": ["dmesg"],
    }.items():
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, errors="backslashreplace")
            (out / "machine" / f"{name}.txt").write_text(done.stdout + done.stderr)
        except FileNotFoundError:
            print(f"{name}: not there")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the GPU samples.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=540.0, help="start nothing new after this time")
    parser.add_argument("--at-once", type=int, default=2)
    args = parser.parse_args()
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    names = [name for name in SAMPLES if args.only in name]

    def due(name: str) -> str:
        over = time.monotonic() - began > args.seconds
        line = f"{name:34} left out: no time" if over else one(name, args.out)
        print(line, flush=True)
        return line

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(due, (name for name in names if not name.startswith(ALONE))))
    for name in (name for name in names if name.startswith(ALONE)):
        due(name)
    machine(args.out)


if __name__ == "__main__":
    main()
