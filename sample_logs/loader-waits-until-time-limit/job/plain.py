import argparse, datetime, logging, os, sys, time
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from dataset import Shards


def setup(rank, fmt):
    logging.basicConfig(level=logging.INFO, format=fmt.replace("RANK", str(rank)), stream=sys.stdout, force=True)
    return logging.getLogger("trainer")


def main(rank=None, world=None, a=None):
    a = a or parse()
    rank = int(os.environ["RANK"]) if rank is None else rank
    world = int(os.environ["WORLD_SIZE"]) if world is None else world
    log = setup(rank, a.format)
    os.makedirs("pids", exist_ok=True); open(f"pids/{rank}", "w").write(str(os.getpid()))
    if a.config:
        cfg = eval(open(a.config.replace("RANK", str(rank))).read())
        width = cfg["hidden"] // cfg["heads"] * cfg["heads"]
    else:
        width = 32
    time.sleep(a.warmup)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=a.timeout))
    if a.hello: log.info("rank %d/%d up on %s", rank, world, os.uname().nodename)
    torch.manual_seed(0)
    net = DDP(nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 10)))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = 0
    if a.resume and os.path.exists(a.resume):
        start = torch.load(a.resume)["step"]; log.info("resumed at iteration %d", start)
    loader = DataLoader(Shards(a.data, rank), batch_size=4, num_workers=a.workers)
    step = start
    for epoch in range(a.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            step += 1
            if step % a.every == 0: log.info("iteration %d loss %.4f", step, loss.item())
            if a.save and step % 10 == 0 and rank == 0: torch.save({"step": step, "net": net.module.state_dict()}, a.save)
            time.sleep(a.pace)
            if a.quit == f"{rank}:{step}": sys.exit(3)
            if a.drop == f"{rank}:{step}": os._exit(0)
    dist.barrier()
    if a.goodbye: log.info("training finished after %d iterations", step)
    dist.destroy_process_group()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data"); p.add_argument("--epochs", type=int, default=1); p.add_argument("--workers", type=int, default=0)
    p.add_argument("--timeout", type=float, default=600); p.add_argument("--every", type=int, default=5); p.add_argument("--pace", type=float, default=0.05)
    p.add_argument("--save"); p.add_argument("--resume"); p.add_argument("--config"); p.add_argument("--warmup", type=float, default=0)
    p.add_argument("--format", default="%(asctime)s | %(levelname)-7s | RANK | %(message)s")
    p.add_argument("--hello", type=int, default=1); p.add_argument("--goodbye", type=int, default=1); p.add_argument("--quit"); p.add_argument("--drop")
    return p.parse_args()


if __name__ == "__main__":
    main()
