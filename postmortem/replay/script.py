"""Writes a scenario as one stand-alone file: the job, what it shares with the others, and how it is started.
Runs nothing.

In: a plan. Out: the text of a script that needs torch and nothing else, whose first lines read

    Run it like this:
        torchrun --nproc-per-node=4 --nnodes=1 slow_rank.py --rank 1 --step 8
"""

from __future__ import annotations

import re
import shlex

from postmortem.replay.catalogue import JOBS
from postmortem.replay.plan import Plan

LINE = "# ── the job "


def write(plan: Plan, name: str) -> str:
    """The whole file, for the name under which it will be saved."""
    row = plan.scenario
    job = row.path.read_text()
    shared = (JOBS / "trainer.py").read_text()
    _, body = _split(job)
    _, common = _split(shared)
    imports = sorted({line for line in [*_imports(common), *_imports(body)] if line != "import trainer"})
    indented = "\n".join(f"    {line}" if line else "" for line in launch(plan, name))
    head = (
        f'#!/usr/bin/env python3\n"""{row.situation}\n\nRun it like this:\n\n{indented}\n"""\n\n'
        f"from __future__ import annotations\n\n"
    )
    return (
        head + "\n".join(imports) + f"\n\n{_without_imports(common)}\n\n\n{LINE}{'─' * (120 - len(LINE))}\n\n\n"
        "trainer = sys.modules[__name__]  # the job names what stands above as `trainer.…`\n\n\n"
        + _without_imports(body)
        + "\n"
    )


def launch(plan: Plan, name: str) -> list[str]:
    """The exact command lines, and what somebody outside has to do."""
    row = plan.scenario
    options = [
        word
        for key, value in plan.arguments.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
        if key != "port"
    ]
    lines = [f"export {key}={shlex.quote(value)}" for key, value in sorted(plan.env.items())]
    lines += _around(plan)
    if plan.launcher in ("plain", "two-hosts"):
        lines += [
            _by_hand(plan, name, options, rank)
            for rank in range(plan.nproc)
            if not (row.start.absent and rank == plan.rank)
        ]
        lines.append("wait")
    else:
        nodes = 2 if row.id == "agent-node-missing" or plan.launcher == "two-hosts-torchrun" else 1
        each = plan.nproc // 2 if plan.launcher == "two-hosts-torchrun" else plan.nproc
        words = [
            "torchrun",
            f"--nproc-per-node={each}",
            f"--nnodes={nodes}",
            f"--max-restarts={plan.restarts}",
            "--master-addr=127.0.0.1",
        ]
        lines.append(
            shlex.join([*words, "--master-port=29500", "--log-dir=logs", "--redirects=3", "--tee=3", name, *options])
        )
    return lines + _outside(plan)


def _by_hand(plan: Plan, name: str, options: list[str], rank: int) -> str:
    """One rank, started without a launcher; the rank at fault differs as its scenario says."""
    start, odd = plan.scenario.start, rank == plan.rank
    env = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
    }
    env |= {"WORLD_SIZE": str(plan.nproc), **start.all_env, **(start.env if odd else {})}
    fields = {
        "world_size_plus_1": plan.nproc + 1,
        "other_rank": (rank - 1) % plan.nproc,
        "closed_port": 29501,
    }
    words = [
        f"{key}={shlex.quote(value.format(**fields))}" for key, value in env.items() if not (odd and key in start.unset)
    ]
    wait = f"sleep {start.delay_s:g} && " if odd and start.delay_s else ""
    return f"({wait}{' '.join(words)} python3 {shlex.join([name, *options])} > rank{rank}.log 2>&1) &"


def _around(plan: Plan) -> list[str]:
    """What has to be there before, as comments: it needs root, and is a matter of the host."""
    wants, row = plan.wants or plan.scenario.wants, plan.scenario
    said = []
    if wants.memory_mb:
        said.append(
            f"# in a memory cgroup: systemd-run --scope -p MemoryMax={plan.memory_mb or wants.memory_mb}M "
            f"-p MemorySwapMax=0 bash"
        )
    if wants.shm_mb:
        said.append(
            f"# with a small /dev/shm: unshare --mount bash -c 'mount -t tmpfs -o size={wants.shm_mb}m "
            f"tmpfs /dev/shm; exec bash'"
        )
    if wants.disk_kb:
        said.append(
            f"# with a small disk: mkdir -p checkpoints && mount -t tmpfs -o size={wants.disk_kb}k tmpfs checkpoints"
        )
    if len(plan.hosts) > 1:
        said.append(
            "# the first half of the ranks on one host, the second on another; MASTER_ADDR is the first host's address"
        )
    if wants.block:
        said.append(
            f"# a packet filter on the first host "
            f"drops {'what comes in' if wants.block == 'all' else 'ports 32768 to 60999'}"
        )
    if row.start.port_taken:
        said.append("# another program listens on the master's port: python3 -m http.server 29500 &")
    return said


def _outside(plan: Plan) -> list[str]:
    who, when = f"rank {plan.rank}", f"once rank {plan.rank} has reached step {plan.step}"
    return {
        "kill-rank": [f"# {when}: kill -KILL with the pid that {who} logged"],
        "stop-rank": [f"# {when}: kill -STOP with the pid that {who} logged"],
        "term-launcher": [f"# {when}: kill -TERM with torchrun's pid"],
        "interrupt-launcher": [f"# {when}: Ctrl-C"],
        "hang-up-launcher": [f"# {when}: kill -HUP with torchrun's pid"],
        "kill-launcher": [f"# {when}: kill -KILL with torchrun's pid"],
    }.get(plan.scenario.act, [])


def _split(source: str) -> tuple[str, str]:
    """Docstring and the rest."""
    _, told, body = source.split('"""', 2)
    return told.strip(), body


def _imports(body: str) -> list[str]:
    return [line for line in body.splitlines() if re.match(r"(import|from) ", line) and "__future__" not in line]


def _without_imports(body: str) -> str:
    kept = [line for line in body.splitlines() if not re.match(r"(import|from) ", line)]
    return "\n".join(kept).strip("\n")
