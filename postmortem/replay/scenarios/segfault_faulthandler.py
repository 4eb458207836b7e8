"""A native extension reads through a null pointer on one rank;
faulthandler is on and writes the Python frame.

Shows: `Fatal Python error: Segmentation fault` with the frame, exit -11, and no kernel line, because the
signal was handled
Expected: pattern faulthandler-fatal-error, category native-crash, culprit the rank at fault.
"""

from __future__ import annotations

import ctypes
import faulthandler

import torch
import trainer


def lookup(table: int, row: int) -> int:
    """Stands for a native kernel: reads a row through a pointer that one rank never filled in."""
    return len(ctypes.string_at(table + 256 * row))


def main() -> None:
    faulthandler.enable()
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    table = ctypes.create_string_buffer(b"row" * 4096)
    for step in job.steps():
        broken = job.faulty and step == job.args.step
        lookup(0 if broken else ctypes.addressof(table), 3)
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
