"""Parameters of a scenario, with types and ranges. Nothing else reaches a job, and never as code.

In: words of a command line (`rank=2`, `megabytes=96`) or values of an incident document, both from strangers.
Out: typed, checked values; UsageError for a name that the scenario does not take, or a value out of range.

`parameters.toml` has the types and ranges; the arguments of a scenario in `catalogue.toml` are its own parameters.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postmortem.errors import UsageError
from postmortem.replay.catalogue import Scenario, Value

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


_TABLES = tomllib.loads(Path(__file__).with_name("parameters.toml").read_text())
COMMON, RUNNER, OWN = (
    {name: Parameter(**row | {"choices": tuple(row.get("choices", ()))}) for name, row in _TABLES[table].items()}
    for table in ("common", "runner", "own")
)


def taken(row: Scenario) -> dict[str, Parameter]:
    """Return the parameters of a scenario, by name."""
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
