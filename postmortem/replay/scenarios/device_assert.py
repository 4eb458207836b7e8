"""A token id of one rank is larger than the vocabulary: an assertion in the GPU kernel fails."""

import torch
import trainer
from torch import nn

VOCABULARY = 1000


def main(job: trainer.Job) -> None:
    embedding = nn.Embedding(VOCABULARY, trainer.FEATURES)
    model = job.distribute(nn.Sequential(embedding, nn.Linear(trainer.FEATURES, trainer.CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        tokens = torch.randint(VOCABULARY, (trainer.BATCH,))
        if job.fails_at(step):
            tokens[3] = VOCABULARY + 7
        job.report(step, job.learn(model, optimizer, tokens, job.batch(step)[1]))


if __name__ == "__main__":
    trainer.run(main, device="cuda")
