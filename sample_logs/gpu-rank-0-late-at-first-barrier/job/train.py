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
logging.basicConfig(level=logging.INFO, format=f"[{RANK}] %(asctime)s %(message)s", stream=sys.stdout)
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
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("step %d/%d loss %.4f", step, steps, loss.item())
        time.sleep(0.05)


join(8)
if RANK == 0:
    log.info("building index of 1.2M samples")
    time.sleep(30)
dist.barrier()
train(5)
dist.destroy_process_group()
