"""The scenarios that can be replayed, read from `catalogue.toml`.

Parameters of a scenario have types and ranges (`parameters.toml`). Nothing else reaches a job, and never as code: they
are words of a command line or values of an incident document, both from strangers.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from postmortem.errors import UsageError
from postmortem.replay.isolate import Wants

LAUNCH = ("backend", "device", "folder", "share")  # arguments of a job that --set does not take


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that can be set: one of `choices`, or a number of the type of `low`."""

    meaning: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    def read(self, name: str, value: object) -> Value:
        """Return the value, typed and in range; raise ValueError with the reason."""
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise ValueError(f"{name} is one of {', '.join(self.choices)}")
            return value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,9})?", value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is a number")
        if not self.low <= value <= self.high:  # NaN is not either
            raise ValueError(f"{name} lies between {self.low:g} and {self.high:g}")
        if isinstance(self.low, int) and value != int(value):
            raise ValueError(f"{name} is a whole number")
        return type(self.low)(value)


_PARAMETERS = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text())
COMMON, RUNNER, OWN = (
    {name: Parameter(**row | {"choices": tuple(row.get("choices", ()))}) for name, row in _PARAMETERS[table].items()}
    for table in ("common", "runner", "own")
)


def taken(row: Scenario) -> dict[str, Parameter]:
    own = {name: OWN[name] for name in row.arguments if name in OWN}
    lacking = {
        "kernel_log": "kernel-log" not in row.needs,
        "port": not row.start.port_taken,
        "restarts": row.launcher != "torchrun",
        "memory_mb": not row.wants.memory_mb,
    }
    return {**COMMON, **own, **{name: parameter for name, parameter in RUNNER.items() if not lacking.get(name)}}


def read(row: Scenario, pairs: Sequence[str]) -> dict[str, Value]:
    """Return `["rank=2"]` as typed arguments of the scenario; raise UsageError if it does not take one."""
    known = taken(row)
    found: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise UsageError(f"--set {pair[:80]} does not fit {row.id}", f"it takes {', '.join(known)}")
        try:
            found[name] = known[name].read(name, text.strip())
        except ValueError as error:
            raise UsageError(f"--set {pair[:80]}: {error}", f"{name} is {known[name].meaning}") from None
    return found


def fits(row: Scenario, name: str, value: object) -> Value | None:
    """Return the value of an incident document if the scenario takes it and it is in range, otherwise None."""
    parameter = taken(row).get(name)
    try:
        return parameter.read(name, value) if parameter else None
    except ValueError:
        return None


JOBS = Path(__file__).parent / "scenarios"
Launcher = Literal["torchrun", "plain", "spawn", "two-hosts", "two-hosts-torchrun"]
# the rank given by --rank; not compared; no rank (a named rank would be wrong)
Culprit = Literal["rank", "any", "none"]
Act = Literal["", "kill-rank", "stop-rank", "term-launcher", "interrupt-launcher", "hang-up-launcher"]
Value = str | int | float
Arguments = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Start:
    """How the start of the rank at fault differs from the others, or (`all_env`) the environment of all ranks.

    Values may contain {world_size_plus_1}, {other_rank} and {closed_port}.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    all_env: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    absent: bool = False
    port_taken: bool = False


@dataclass(frozen=True, slots=True)
class Fallback:
    """Arguments and expected pattern on a machine that lacks the needs of the scenario, and the limitation. `needs` are
    its own."""

    arguments: Arguments
    pattern: str
    lost: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A failure, or a healthy run, with the expected verdict on its logs."""

    id: str
    title: str
    story: str  # one sentence about the failure
    job: str  # FILE.FUNCTION in scenarios/
    pattern: str | None = None
    category: str | None = None
    culprit: Culprit = "rank"
    launcher: Launcher = "torchrun"
    nproc: int = 3
    backend: str = "gloo"
    needs: tuple[str, ...] = ()  # of root, gpu, cgroup, netns, kernel-log, core
    env: Mapping[str, str] = field(default_factory=dict)  # in every process
    save: str = ""  # log layout, if it is not the launcher's default
    wants: Wants = Wants()
    start: Start = Start()
    act: Act = ""  # done to the job at --step
    join: bool = True  # create the process group before the job's function is called
    arguments: Arguments = field(default_factory=dict)  # the parameters of the job, with their defaults
    # other patterns, and the arguments with which they occur
    proves: Mapping[str, Arguments] = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()  # the first that can run here
    also: tuple[str, ...] = ()  # other correct categories
    outcomes: tuple[str, ...] = ("incident",)
    evidence: tuple[str, ...] = ()  # regular expressions of the lines that prove the failure
    look: bool = False  # run ps and py-spy on the live processes
    patience_s: float = 75.0  # the run is ended after that time

    @property
    def path(self) -> Path:
        """The file with the job."""
        return JOBS / f"{self.job.partition('.')[0]}.py"

    @property
    def function(self) -> str:
        """The name of the job's function."""
        return self.job.partition(".")[2]

    @property
    def gloo_only(self) -> bool:
        """Whether NCCL cannot show this failure."""
        return (self.pattern or "").startswith("gloo-") or self.id == "wrong-interface"

    @property
    def fails_fast(self) -> bool:
        """Whether the peers end at once, by a lost connection and the launcher, and not by a timeout."""
        slow = {"hang", "rendezvous", "network", "collective-mismatch"}
        stopped = self.launcher == "torchrun" and self.backend == "gloo" and "gpu" not in self.needs
        return stopped and not slow & {self.category, *self.also}

    @property
    def failing(self) -> bool:
        return self.outcomes != ("healthy",)


def _frozen(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with tuples in place of lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _scenario(name: str, table: dict[str, Any]) -> Scenario:
    for key, kind in (("wants", Wants), ("start", Start)):
        if key in table:
            table[key] = kind(**_frozen(table[key]))
    table["fallbacks"] = tuple(Fallback(**_frozen(each)) for each in table.get("fallbacks", ()))
    return Scenario(name, **_frozen(table))


_TABLES = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text())
BY_ID = {name: _scenario(name, table) for name, table in _TABLES.items()}
SCENARIOS = tuple(BY_ID.values())
