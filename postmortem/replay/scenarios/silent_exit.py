"""A library calls sys.exit on one rank (a licence check, a bad configuration) without a word.

Shows: an exit code and nothing else; the peers lose their connection
Expected: pattern rank-exit-without-reason, category python-exception, culprit the rank at fault.
"""

from __future__ import annotations

import sys

import torch
import trainer


def main() -> None:
    job = trainer.begin(code=3)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        if job.faulty and step == job.args.step:
            sys.exit(job.args.code)
        job.report(step, job.learn(model, optimizer, *job.batch(step)))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
