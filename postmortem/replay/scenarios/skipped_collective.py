"""One rank skips a reduction (`if loss is fine: log it`), and is one collective ahead of the others from there on.

Shows: time-outs on the waiting ranks; the rank at fault waits in a different collective, or was terminated silently
Expected: pattern ranks-in-different-collectives, category collective-mismatch, culprit the rank at fault.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import trainer


def main() -> None:
    job = trainer.begin(dump=0)
    model = job.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps():
        loss = torch.tensor([job.learn(model, optimizer, *job.batch(step))])
        if not (job.faulty and step >= job.args.step):  # "nothing new to log on this rank"
            try:
                dist.all_reduce(loss)
            finally:
                if job.args.dump:
                    dump_flight_recorder(job.rank)
        elif job.args.dump:
            dump_flight_recorder(job.rank)
            dist.barrier()
        job.report(step, float(loss))
    job.done()


def dump_flight_recorder(rank: int) -> None:
    """gloo does not dump its flight recorder by itself; a job that wants the file writes it."""
    folder = Path("flight_recorder")
    folder.mkdir(exist_ok=True)
    (folder / f"fr_rank{rank}.json").write_bytes(torch._C._distributed_c10d._dump_fr_trace_json())
    (folder / f"fr_rank{rank}.pkl").write_bytes(torch._C._distributed_c10d._dump_fr_trace())


if __name__ == "__main__":
    trainer.call(main)
