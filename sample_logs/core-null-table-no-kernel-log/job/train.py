import ctypes, os, sys, time, threading
import torch, torch.distributed as dist
mode = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
lib = ctypes.CDLL(os.path.join(here, "libkernels.so"))
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
opt = torch.optim.SGD(model.parameters(), 0.01)

def lookup(step):
    if mode == "segv": lib.gather_row(None, ctypes.c_long(3), ctypes.c_long(64))
    if mode == "abort": lib.check_shape(ctypes.c_long(63))
    if mode == "bus": lib.fill_shared(b"/dev/shm/batches_1", ctypes.c_long(64 << 20))
    if mode == "thread": lib.crash_in_thread()
    if mode == "overflow": lib.walk_tree(ctypes.c_long(0))

for step in range(20):
    loss = model(torch.randn(8, 64)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    if step == 6 and rank == 1:
        lookup(step)
dist.destroy_process_group()
