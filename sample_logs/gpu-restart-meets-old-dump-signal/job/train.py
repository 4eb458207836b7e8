"""One job on one GPU, which its ranks share: each reports a host of its own to NCCL."""

import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ["RANK"])
logging.basicConfig(
    level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", stream=sys.stdout
)
log = logging.getLogger("train")


def join(timeout: float) -> None:
    os.environ |= {"NCCL_HOSTID": f"h{RANK}", "NCCL_SOCKET_IFNAME": "lo"}
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=timeout))
    world = dist.get_world_size()
    log.info("process group ready: rank %d of %d, device %s", RANK, world, torch.cuda.get_device_name(0))


def train(steps: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, steps + 1):
        x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
        fail(step)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("step %d/%d loss %.4f", step, steps, loss.item())
        time.sleep(0.05)


def fail(step: int) -> None:
    if RANK == 1 and step == 8:
        os.kill(os.getpid(), 9)


join(20)
train(40)
dist.destroy_process_group()
