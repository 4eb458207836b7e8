"""A native extension reads through a null pointer on one rank; nothing is set up to say so.

Shows: exit -11 and one kernel line `segfault at`; the rank's own log just ends
Expected: pattern kernel-segfault, category native-crash, culprit the rank at fault.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from pathlib import Path

import torch
import trainer


def lookup(table: int, row: int) -> int:
    """Stands for a native kernel: reads a row through a pointer that one rank never filled in."""
    return len(ctypes.string_at(table + 256 * row))


def shifted(rows: int) -> int:
    """A native kernel that traps: on x86 an unknown instruction (`ud2`) or a division by zero (`div ecx`)."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(
        {"ILL": b"\x0f\x0b", "FPE": b"\x31\xc9\x31\xd2\xb8\x01\x00\x00\x00\xf7\xf1"}["FPE" if rows == 0 else "ILL"]
        + b"\xc3"
    )
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())


def mapped(path: Path) -> int:
    """Reads a mapped file of which nothing is left."""
    path.write_bytes(bytes(8192))
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
        os.truncate(path, 0)
        return view[4096]


def crash(how: str) -> None:
    match how:
        case "SEGV":
            lookup(0, 3)
        case "FPE" | "ILL":
            shifted(0 if how == "FPE" else 1)
        case "BUS":
            mapped(Path("rows.bin"))
        case "ABRT":
            os.kill(os.getpid(), signal.SIGABRT)


def main() -> None:
    job = trainer.begin(signal="SEGV")
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    table = ctypes.create_string_buffer(b"row" * 4096)
    for step in job.steps():
        if job.faulty and step == job.args.step:
            crash(job.args.signal)
        lookup(ctypes.addressof(table), 3)
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
