import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s] %(message)s", stream=sys.stderr)
os.environ |= {"NCCL_HOSTID": f"h{rank}", "NCCL_SOCKET_IFNAME": "lo"}  # both ranks on one GPU
torch.cuda.set_device(0)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=8))
world = dist.get_world_size()
logging.info("process group ready: rank %d of %d, device %s", rank, world, torch.cuda.get_device_name(0))
for step in range(1, 20):
    x = torch.ones(1 << 22, device="cuda")
    dist.broadcast(x, src=1 if rank == 1 and step == 8 else 0)
    logging.info("step %d %s", step, x[0].item())
dist.destroy_process_group()
