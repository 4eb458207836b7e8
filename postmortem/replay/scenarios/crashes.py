"""Jobs in which a process crashes or exits without a Python exception."""

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
from pathlib import Path

import torch
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


def segfault_silent(job: trainer.Job) -> None:
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


def segfault_dataloader_worker(job: trainer.Job) -> None:
    def decoded(index: int) -> torch.Tensor:
        if job.faulty and index == job.args.step * trainer.BATCH:
            ctypes.string_at(0x300)
        return torch.randn(trainer.FEATURES)

    job.network()
    job.train(inputs=job.loader(decoded))


class Node:
    """A node of a parse tree."""

    def __init__(self, child: "Node | None") -> None:
        self.child = child

    def __repr__(self) -> str:
        return "(" + repr(self.child) + ")"


def parse(depth: int) -> Node:
    node = Node(None)
    for _ in range(depth):
        node = Node(node)
    return node


def stack_overflow(job: trainer.Job) -> None:
    faulthandler.enable()
    sys.setrecursionlimit(10_000_000)
    job.train(fault=lambda: repr(parse(job.args.depth)))


def tokenize(line: str) -> int:
    """The number of words; the C++ runtime raises out_of_range on an empty line, as vector::at does."""
    if not line:
        message = b"vector::_M_range_check: __n (which is 512) >= this->size() (which is 512)"
        ctypes.CDLL("libstdc++.so.6")._ZSt20__throw_out_of_rangePKc(message)
    return len(line.split())


def abort_cpp_exception(job: trainer.Job) -> None:
    job.train(fault=lambda: tokenize(""))


ROW = trainer.BATCH * trainer.FEATURES


def sigbus_truncated_data(job: trainer.Job) -> None:
    faulthandler.enable()
    path = Path(f"shard_{job.rank:02d}.bin")
    path.write_bytes(bytes(4 * ROW * 400))
    data = torch.from_file(str(path), shared=True, size=ROW * 400).view(-1, trainer.BATCH, trainer.FEATURES)
    batches = (data[step * 8].clone() for step in range(job.args.steps))
    job.train(fault=lambda: path.write_bytes(b""), inputs=batches)


def silent_exit(job: trainer.Job) -> None:
    job.train(fault=lambda: sys.exit(job.args.code))
