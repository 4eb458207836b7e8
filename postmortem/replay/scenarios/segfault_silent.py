"""A native extension of one rank crashes; `signal` selects how."""

import ctypes
import faulthandler
import mmap
import os
import signal
from pathlib import Path

import trainer

UD2 = b"\x0f\x0b"
DIVIDE_BY_ZERO = b"\x31\xc9\x31\xd2\xb8\x01\x00\x00\x00\xf7\xf1"


def lookup(table: int, row: int) -> int:
    """Read a row through a pointer."""
    return len(ctypes.string_at(table + 256 * row))


def execute(instructions: bytes) -> int:
    """Run x86 instructions."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(instructions + b"\xc3")
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())


def read_truncated(path: Path) -> int:
    """Read a mapped file after it was truncated."""
    path.write_bytes(bytes(8192))
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
        os.truncate(path, 0)
        return view[4096]


def main(job: trainer.Job) -> None:
    if job.args.faulthandler:
        faulthandler.enable()
    crashes = {
        "SEGV": lambda: lookup(0, 3),
        "FPE": lambda: execute(DIVIDE_BY_ZERO),
        "ILL": lambda: execute(UD2),
        "BUS": lambda: read_truncated(Path("rows.bin")),
        "ABRT": lambda: os.kill(os.getpid(), signal.SIGABRT),
    }
    job.train(fault=crashes[job.args.signal])


if __name__ == "__main__":
    trainer.run(main, signal="SEGV", faulthandler=0)
