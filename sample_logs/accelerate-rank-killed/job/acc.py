import argparse, datetime, logging, os
import torch, torch.nn as nn
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from dataset import Shards

p = argparse.ArgumentParser()
p.add_argument("--timeout", type=float, default=1800); p.add_argument("--epochs", type=int, default=1); p.add_argument("--workers", type=int, default=0)
p.add_argument("--output", default="out"); p.add_argument("--scale", type=float, default=1.0)
a = p.parse_args()
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
log = get_logger("finetune")
acc = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=a.timeout))])
set_seed(3)
rank = acc.process_index
os.makedirs("pids", exist_ok=True); open(f"pids/{rank}", "w").write(str(os.getpid()))
log.info(acc.state, main_process_only=False)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
net, opt = acc.prepare(net, opt)
loader = DataLoader(Shards("data", rank), batch_size=4, num_workers=a.workers)
log.info("***** Running training *****")
log.info(f"  Num batches each epoch = {len(loader)}")
bar = tqdm(range(len(loader) * a.epochs), disable=not acc.is_local_main_process)
done = 0
for epoch in range(a.epochs):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x * a.scale), y)
        acc.backward(loss)
        opt.step(); opt.zero_grad()
        done += 1
        bar.update(1); bar.set_postfix(loss=float(loss))
        if done % 20 == 0:
            log.info(f"step {done} loss {loss.item():.4f}", main_process_only=False)
            acc.save_state(a.output)
acc.wait_for_everyone()
acc.end_training()
