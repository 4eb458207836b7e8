"""One rank's batch holds a token that the embedding does not have;
on a GPU this is an assertion inside the kernel.

Shows: `Assertion ... failed` of each thread, then `device-side assert triggered` wherever the rank looks next
Expected: pattern cuda-device-assert, category gpu-fault, culprit the rank at fault.
"""

from __future__ import annotations

import torch
import trainer
from torch import nn

VOCABULARY = 1000


def main() -> None:
    job = trainer.begin(device="cuda")
    model = job.distribute(
        nn.Sequential(nn.Embedding(VOCABULARY, trainer.FEATURES), nn.Linear(trainer.FEATURES, trainer.CLASSES))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        tokens = torch.randint(VOCABULARY, (trainer.BATCH,))
        if job.faulty and step == job.args.step:
            tokens[3] = VOCABULARY + 7
        job.report(step, job.learn(model, optimizer, tokens, job.batch(step)[1]))
    job.done()


if __name__ == "__main__":
    trainer.call(main)
