"""A scenario and its parameters -> one run of it: what is launched, how, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from postmortem.replay.catalogue import Arguments, Scenario
from postmortem.replay.isolate import Wants

RUNNER_DEFAULTS = {"detail": 0, "restarts": 0, "kernel_log": 1, "memory_mb": 0}
# seconds: a time-out that shows the failure, and one that must not come before it
WAITED_FOR, AMPLE = 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a scenario."""

    scenario: Scenario
    nproc: int  # ranks in all
    launcher: str
    arguments: Mapping[str, str | int | float] = field(default_factory=dict)
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
    memory_mb: int = 0  # another limit than the scenario's, where it has one
    kernel_log: bool = True
    wants: Wants | None = None  # another place than the scenario's

    @property
    def rank(self) -> int:
        return int(self.arguments.get("rank", 1))

    @property
    def host(self) -> int:
        """Where the rank at fault lives; half of the ranks on each of two hosts."""
        return self.rank * len(self.hosts) // self.nproc if len(self.hosts) > 1 else 0

    @property
    def local_rank(self) -> int:
        return self.rank - self.host * self.nproc // max(1, len(self.hosts))

    @property
    def step(self) -> int:
        return int(self.arguments.get("step", 8))


def default_plan(scenario: Scenario) -> Plan:
    """The scenario as the catalogue has it."""
    timeout = AMPLE if scenario.fails_fast else WAITED_FOR
    arguments = {"rank": 1, "backend": scenario.backend, "timeout": timeout, **scenario.arguments}
    env = dict(scenario.env)
    plain = "rank{rank}.{stream}" if scenario.launcher in ("plain", "two-hosts") else "tree"
    hosts = scenario.wants.hosts or (("node-a", "node-b") if scenario.launcher.startswith("two-hosts") else ())
    save = scenario.save or ("console" if scenario.launcher == "spawn" else plain)
    return Plan(scenario, scenario.nproc, scenario.launcher, arguments, save=save, hosts=hosts, env=env)


def planned(scenario: Scenario, arguments: Arguments, nproc: int = 0) -> Plan:
    """The scenario with other arguments and another number of ranks;
    what concerns the runner is taken out of the arguments."""
    plan = default_plan(scenario)
    given = {**plan.arguments, **arguments}
    detail, restarts, kernel_log, memory = (int(given.pop(name, default)) for name, default in RUNNER_DEFAULTS.items())
    env = {**plan.env, **({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if detail else {})}
    env |= {"TORCH_FR_BUFFER_SIZE": "2000"} if given.get("dump") else {}
    return replace(
        plan, nproc=nproc or plan.nproc, arguments=given, env=env, restarts=restarts,
        kernel_log=bool(kernel_log), memory_mb=memory, rendezvous="c10d" if restarts else plan.rendezvous,
    )  # fmt: skip
