"""A recursive tree is printed with the recursion limit raised; the C stack ends before the limit does.

Shows: a segmentation fault whose Python stack repeats one line
Expected: pattern faulthandler-fatal-error, category native-crash, culprit the rank at fault.
"""

from __future__ import annotations

import faulthandler
import sys

import torch
import trainer


class Node:
    """A parse tree; a broken sample makes it a very long chain."""

    def __init__(self, child: Node | None) -> None:
        self.child = child

    def __repr__(self) -> str:
        return "(" + repr(self.child) + ")"


def parse(depth: int) -> Node:
    node = Node(None)
    for _ in range(depth):
        node = Node(node)
    return node


def main() -> None:
    faulthandler.enable()
    sys.setrecursionlimit(10_000_000)
    job = trainer.begin(depth=400_000)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        depth = job.args.depth if job.faulty and step == job.args.step else 20
        features = len(repr(parse(depth)))
        job.report(step, job.learn(model, optimizer, *job.batch(step)) + 0.0 * features)
    job.done()


if __name__ == "__main__":
    trainer.call(main)
