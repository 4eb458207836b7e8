"""A deeply nested object is printed with a raised recursion limit; the C stack overflows."""

import faulthandler
import sys

import trainer


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


def main(job: trainer.Job) -> None:
    faulthandler.enable()
    sys.setrecursionlimit(10_000_000)
    job.train(fault=lambda: repr(parse(job.args.depth)))


if __name__ == "__main__":
    trainer.run(main, depth=400_000)
