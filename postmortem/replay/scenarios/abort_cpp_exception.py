"""A native tokenizer throws a C++ exception through a C interface; nobody can catch it, the process aborts.

Shows: `terminate called after throwing an instance of 'std::out_of_range'`, exit -6
Expected: pattern cpp-terminate, category native-crash, culprit the rank at fault.
"""

from __future__ import annotations

import ctypes

import torch
import trainer


def tokenize(line: str) -> int:
    """Stands for a native tokenizer: the C++ runtime raises out_of_range on an empty
    line, as vector::at would."""
    if not line:
        what = b"vector::_M_range_check: __n (which is 512) >= this->size() (which is 512)"
        ctypes.CDLL("libstdc++.so.6")._ZSt20__throw_out_of_rangePKc(what)
    return len(line.split())


def main() -> None:
    job = trainer.begin()
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        tokenize("" if job.faulty and step == job.args.step else "a line of text")
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
