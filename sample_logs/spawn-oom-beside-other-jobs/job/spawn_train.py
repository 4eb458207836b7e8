import os, sys
import torch.multiprocessing as mp
from plain import main, parse


def worker(rank, world, a):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("PORT", "29741"))
    main(rank, world, a)


if __name__ == "__main__":
    a = parse()
    mp.spawn(worker, args=(3, a), nprocs=3)
    print("all workers done")
