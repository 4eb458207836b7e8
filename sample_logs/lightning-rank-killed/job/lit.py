import argparse, datetime, os, sys
import lightning as L
import torch, torch.nn as nn, torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader
from dataset import Shards


class Net(L.LightningModule):
    def __init__(self, data, workers):
        super().__init__()
        self.data, self.workers = data, workers
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, i):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, i):
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        os.makedirs("pids", exist_ok=True); open(f"pids/{self.global_rank}", "w").write(str(os.getpid()))
        return DataLoader(Shards(self.data, self.global_rank), batch_size=2, num_workers=self.workers)

    def val_dataloader(self):
        return DataLoader(Shards("val", self.global_rank), batch_size=4)


p = argparse.ArgumentParser()
p.add_argument("--devices", type=int, default=2); p.add_argument("--data", default="data"); p.add_argument("--epochs", type=int, default=2)
p.add_argument("--workers", type=int, default=0); p.add_argument("--timeout", type=float, default=1800); p.add_argument("--early", type=int, default=0)
p.add_argument("--bar", type=int, default=1); p.add_argument("--precision", default="32-true"); p.add_argument("--ckpt", default="")
a = p.parse_args()
callbacks = [EarlyStopping("val_loss", patience=1, min_delta=10, verbose=True)] if a.early else []
if a.ckpt: callbacks.append(ModelCheckpoint(a.ckpt, every_n_train_steps=10, save_top_k=-1))
trainer = L.Trainer(accelerator="cpu", devices=a.devices, max_epochs=a.epochs, use_distributed_sampler=False, enable_checkpointing=bool(a.ckpt), logger=False,
                    num_sanity_val_steps=0, log_every_n_steps=5, enable_progress_bar=bool(a.bar), precision=a.precision, callbacks=callbacks,
                    strategy=DDPStrategy(process_group_backend="gloo", timeout=datetime.timedelta(seconds=a.timeout)))
trainer.fit(Net(a.data, a.workers))
