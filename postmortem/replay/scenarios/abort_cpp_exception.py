"""A native tokenizer raises a C++ exception through a C interface."""

import ctypes

import trainer


def tokenize(line: str) -> int:
    """The number of words; the C++ runtime raises out_of_range on an empty line, as vector::at does."""
    if not line:
        message = b"vector::_M_range_check: __n (which is 512) >= this->size() (which is 512)"
        ctypes.CDLL("libstdc++.so.6")._ZSt20__throw_out_of_rangePKc(message)
    return len(line.split())


def main(job: trainer.Job) -> None:
    job.train(fault=lambda: tokenize(""))


if __name__ == "__main__":
    trainer.run(main)
