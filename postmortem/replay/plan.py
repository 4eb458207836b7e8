"""A scenario and its parameters -> one run of it: its processes, environment and log layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from postmortem.replay.catalogue import Arguments, Scenario, Value
from postmortem.replay.isolate import Wants

# seconds: a time-out that shows the failure, and one that must not come before it
WAITED_FOR, AMPLE = 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a scenario."""

    scenario: Scenario
    nproc: int  # ranks in all
    launcher: str
    arguments: Mapping[str, Value] = field(default_factory=dict)
    # torchrun: tree | redirect | console; plain: a file name with {rank} and perhaps {stream}
    save: str = "tree"
    script: str = "train.py"
    record: bool = False
    restarts: int = 0
    rendezvous: str = "static"  # static | c10d
    hosts: tuple[str, ...] = ()
    zones: tuple[str, ...] = ("UTC",)
    skews: tuple[float, ...] = ()  # seconds by which the clock of each host is fast, as its processes see it
    env: Mapping[str, str] = field(default_factory=dict)
    start_log: bool = True
    kernel_log: bool = True
    core: bool = False
    wants: Wants = Wants()

    @property
    def rank(self) -> int:
        return int(self.arguments.get("rank", 1))

    @property
    def step(self) -> int:
        return int(self.arguments.get("step", 8))

    @property
    def host(self) -> int:
        return self.host_of(self.rank)

    @property
    def local_rank(self) -> int:
        return self.rank - self.host * self.nproc // max(1, len(self.hosts))

    @property
    def two_hosts(self) -> bool:
        return len(self.hosts) > 1

    @property
    def waits_for_node(self) -> bool:
        """Whether the launcher waits for a second host that is never started."""
        return self.scenario.id == "agent-node-missing"

    def host_of(self, rank: int) -> int:
        """Return the index of the rank's host; half of the ranks are on each of two hosts."""
        return rank * len(self.hosts) // self.nproc if self.two_hosts else 0

    def zone(self, host: int) -> str:
        return self.zones[min(host, len(self.zones) - 1)]

    def rank_env(self, rank: int, address: str, port: int) -> dict[str, str] | None:
        """Return the environment of a rank that no launcher starts; None if the rank is not started at all."""
        start, odd = self.scenario.start, rank == self.rank
        if odd and start.absent:
            return None
        env = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        env |= {"RANK": str(rank), "WORLD_SIZE": str(self.nproc), "LOCAL_RANK": str(rank), **start.all_env}
        if odd:
            others = {"other_rank": (rank - 1) % self.nproc, "closed_port": port + 1}
            env |= {name: text.format(world_size_plus_1=self.nproc + 1, **others) for name, text in start.env.items()}
        return {name: text for name, text in env.items() if not (odd and name in start.unset)}


def planned(scenario: Scenario, arguments: Arguments = MappingProxyType({}), nproc: int = 0) -> Plan:
    """Return the run of a scenario, with other arguments and another number of ranks than its own."""
    timeout = AMPLE if scenario.fails_fast else WAITED_FOR
    given = {"rank": 1, "backend": scenario.backend, "timeout": timeout, **scenario.arguments, **arguments}
    runner = {"detail": 0, "restarts": 0, "kernel_log": 1, "memory_mb": 0, "core": 0}
    detail, restarts, kernel_log, memory_mb, core = (int(given.pop(name, default)) for name, default in runner.items())
    env = {**scenario.env, **({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if detail else {})}
    env |= {"TORCH_FR_BUFFER_SIZE": "2000"} if given.get("dump") else {}
    plain = "rank{rank}.{stream}" if scenario.launcher in ("plain", "two-hosts") else "tree"
    hosts = scenario.wants.hosts or (("node-a", "node-b") if scenario.launcher.startswith("two-hosts") else ())
    wants = scenario.wants
    if wants.memory_mb and memory_mb:
        wants = replace(wants, memory_mb=memory_mb)
    return Plan(
        scenario,
        nproc or scenario.nproc,
        scenario.launcher,
        given,
        save=scenario.save or ("console" if scenario.launcher == "spawn" else plain),
        restarts=restarts,
        rendezvous="c10d" if restarts else "static",
        hosts=hosts,
        env=env,
        kernel_log=bool(kernel_log),
        core=bool(core),
        wants=wants,
    )
