"""Writes a scenario as one self-contained file: the job, the code it shares with the others, and its launch commands.

In: a plan. Out: the text of a script that needs torch and nothing else. Its first lines read

    Run it like this:
        torchrun --nproc-per-node=4 --nnodes=1 slow_rank.py --rank 1 --step 8
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator

from postmortem.replay import catalogue
from postmortem.replay.catalogue import JOBS, Scenario
from postmortem.replay.plan import Plan

ACTS = {
    "kill-rank": "kill -KILL with the pid that rank {rank} logged",
    "stop-rank": "kill -STOP with the pid that rank {rank} logged",
    "term-launcher": "kill -TERM with torchrun's pid",
    "interrupt-launcher": "Ctrl-C",
    "hang-up-launcher": "kill -HUP with torchrun's pid",
}


def write(plan: Plan, name: str) -> str:
    """Return the whole file, for the name under which it will be saved."""
    commands = "\n".join(f"    {line}" for line in launch(plan, name))
    head = f'#!/usr/bin/env python3\n"""{plan.scenario.story}\n\nRun it like this:\n\n{commands}\n"""\n\n'
    return head + source(plan.scenario)


def source(row: Scenario) -> str:
    """Return the job and the shared code as one module."""
    trainer = JOBS / "trainer.py"
    shared, jobs = trainer.read_text(), row.path.read_text()
    shared_tree, tree = ast.parse(shared, trainer), ast.parse(jobs, row.path)
    needed = _needed(tree, row.function)
    used = {each.id for node in (*shared_tree.body, *needed) for each in ast.walk(node) if isinstance(each, ast.Name)}
    imports = {line for node in (*shared_tree.body, *tree.body) for line in _imports(node, used - {"trainer"})}
    start = max(node.end_lineno or 0 for node in shared_tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    # not the common ones: `rank=3` in a line of a traceback would be read as the rank that raised it
    own = "".join(f", {name}={value!r}" for name, value in row.arguments.items() if name not in catalogue.COMMON)
    parts = [
        "from __future__ import annotations\n\n" + "\n".join(sorted(imports)),
        "\n".join(shared.splitlines()[start:]).strip(),
        "trainer = sys.modules[__name__]  # the job refers to the code above as `trainer.…`",
        *(ast.get_source_segment(jobs, node) or "" for node in tree.body if node in needed),
        f'if __name__ == "__main__":\n    trainer.run({row.function}, join={row.join}{own})',
    ]
    return "\n\n\n".join(parts) + "\n"


def _imports(node: ast.stmt, used: set[str]) -> Iterator[str]:
    """Yield the imports of a statement that are used, one name each."""
    for name in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
        if (name.asname or name.name.partition(".")[0]) in used:
            module = node.module if isinstance(node, ast.ImportFrom) else None
            yield ast.unparse(ast.ImportFrom(module, [name], 0) if module else ast.Import([name]))


def _needed(tree: ast.Module, function: str) -> set[ast.stmt]:
    """Return the definitions of a module that a function uses, directly or through others, and the function."""
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                defined[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                defined[name] = node
    found: set[ast.stmt] = set()
    waiting = [function]
    while waiting:
        used = defined.get(waiting.pop())
        if used and used not in found:
            found.add(used)
            waiting += [each.id for each in ast.walk(used) if isinstance(each, ast.Name)]
    return found


def launch(plan: Plan, name: str) -> list[str]:
    """Return the command lines, and as comments their surroundings and the actions from outside."""
    options = [
        word
        for key, value in plan.arguments.items()
        if key != "port"
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    lines = [f"export {key}={shlex.quote(value)}" for key, value in sorted(plan.env.items())]
    lines += [f"# {text}" for text in _around(plan)]
    if plan.launcher in ("plain", "two-hosts"):
        lines += [*filter(None, (_by_hand(plan, name, options, rank) for rank in range(plan.nproc))), "wait"]
    else:
        hosts = 2 if plan.launcher == "two-hosts-torchrun" else 1
        words = [f"--nproc-per-node={plan.nproc // hosts}", f"--nnodes={hosts + plan.waits_for_node}"]
        words += [f"--max-restarts={plan.restarts}", "--master-addr=127.0.0.1", "--master-port=29500"]
        lines.append(shlex.join(["torchrun", *words, "--log-dir=logs", "--redirects=3", "--tee=3", name, *options]))
    if act := ACTS.get(plan.scenario.act):
        lines.append(f"# once rank {plan.rank} has reached step {plan.step}: {act.format(rank=plan.rank)}")
    return lines


def _by_hand(plan: Plan, name: str, options: list[str], rank: int) -> str:
    """Return the command line of one rank that no launcher starts; empty for a rank that is not started."""
    env = plan.rank_env(rank, "127.0.0.1", 29500)
    if env is None:
        return ""
    delay = plan.scenario.start.delay_s
    wait = f"sleep {delay:g} && " if delay and rank == plan.rank else ""
    words = " ".join(f"{key}={shlex.quote(value)}" for key, value in env.items())
    return f"({wait}{words} python3 {shlex.join([name, *options])} > rank{rank}.log 2>&1) &"


def _around(plan: Plan) -> list[str]:
    """Return the resources that the host must provide: most of them need root."""
    wants = plan.wants
    dropped = "all incoming packets" if wants.block == "all" else "ports 32768 to 60999"
    scope = f"systemd-run --scope -p MemoryMax={wants.memory_mb}M -p MemorySwapMax=0 bash"
    mount = "mount -t tmpfs -o size="
    texts = {
        f"in a memory cgroup: {scope}": wants.memory_mb,
        f"with a small /dev/shm: unshare --mount bash -c '{mount}{wants.shm_mb}m tmpfs /dev/shm; exec bash'": (
            wants.shm_mb
        ),
        f"with a small disk: mkdir -p checkpoints && {mount}{wants.disk_kb}k tmpfs checkpoints": wants.disk_kb,
        "the first half of the ranks on one host, the second on another; MASTER_ADDR is the first host's address": (
            plan.two_hosts
        ),
        f"a packet filter on the first host drops {dropped}": wants.block,
        "another program listens on the master's port: python3 -m http.server 29500 &": (
            plan.scenario.start.port_taken
        ),
    }
    return [text for text, wanted in texts.items() if wanted]
