import datetime, json, logging, os, random, sys, threading, time, warnings
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", -1)))
WORLD = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", 1)))
EPOCHS, STEPS = 20, 30

def log(msg, level="I"):
    n = datetime.datetime.now()
    sys.stderr.write(f"{level}{n:%m%d %H:%M:%S.%f} {os.getpid()} trainer.py:{sys._getframe(1).f_lineno}] process {rank}: {msg}\n"); sys.stderr.flush()
def progress(epoch, step, loss):
    if step % 2 == 0: log(f"step {step} ({epoch}): loss={loss:.4f}")



class Corpus(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):

        g = torch.Generator().manual_seed(i + 1000 * rank)
        return torch.randn(12, generator=g), torch.randint(0, 5, (1,), generator=g)[0]


def build():
    return DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5)))


def train():
    os.makedirs("pids", exist_ok=True); open(f"pids/{rank}", "w").write(str(os.getpid()))

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=9))
    log(f"world ready, {WORLD} processes")

    torch.manual_seed(7)
    net = build()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(Corpus(STEPS * 4), batch_size=4, num_workers=0)
    step = 0
    for epoch in range(EPOCHS):
        for x, y in loader:
            step += 1

            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            progress(epoch, step, loss.item())

            time.sleep(0.05)

    log("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
