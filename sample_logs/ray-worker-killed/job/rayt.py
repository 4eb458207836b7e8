import os, sys, time
import ray, torch, torch.nn as nn
import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def loop(config):
    sys.path.insert(0, config["src"]); from dataset import Shards
    ctx = ray.train.get_context(); rank = ctx.get_world_rank()
    os.makedirs(config["cwd"] + "/pids", exist_ok=True); open(f"{config['cwd']}/pids/{rank}", "w").write(str(os.getpid()))
    net = prepare_model(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Shards(config["cwd"] + "/data", rank), batch_size=4)
    for epoch in range(config["epochs"]):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            time.sleep(0.05)
            if i % 10 == 0: print(f"[{rank}] epoch {epoch} batch {i} loss {loss.item():.3f}", flush=True)
        ray.train.report({"loss": loss.item(), "epoch": epoch})


if __name__ == "__main__":
    cwd = os.getcwd()
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100_000_000, _temp_dir=os.environ["RAYTMP"])
    r = TorchTrainer(loop, train_loop_config={"cwd": cwd, "src": cwd, "epochs": int(os.environ.get("EPOCHS", "2"))}, scaling_config=ScalingConfig(num_workers=3, resources_per_worker={"CPU": 1}),
                     torch_config=TorchConfig(backend="gloo", timeout_s=int(os.environ.get("PGT", "1800"))), run_config=RunConfig(storage_path=cwd + "/results", name="tune", failure_config=FailureConfig(max_failures=int(os.environ.get("MAXF", "0"))))).fit()
    print("result:", r.metrics)
