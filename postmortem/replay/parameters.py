"""What may be set in a scenario, of which type and within which range.
Nothing else ever reaches a job, and never as code.

In: words of a command line (`rank=2`, `megabytes=96`) or values of an incident document, both of strangers.
Out: typed, checked values; UsageError for a name that the scenario does not take, or a value out of range.

Which parameters a job of its own takes, and their defaults, are read off the job:
`trainer.run(main, megabytes=48)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postmortem.errors import UsageError
from postmortem.replay.catalogue import Scenario, Value

STYLES = ("bare", "logging", "iso", "imagenet", "bracket", "megatron", "hf", "json", "bar")
COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8")
ERRORS = (
    "value", "index", "shape", "dtype", "graph-freed", "in-place", "recursion", "memory", "collate", "pickle",
    "corrupt", "not-initialized", "initialized-twice", "syntax", "batch-size",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that can be set."""

    kind: type
    meaning: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    def read(self, name: str, value: object) -> Value:
        """The value, typed and in range; ValueError says what is wrong with it."""
        if self.kind is str:
            if not isinstance(value, str) or value not in self.choices:
                raise ValueError(f"{name} is one of {', '.join(self.choices)}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"{name} is a number")
        number = self._number(name, value)
        if not self.low <= number <= self.high:  # NaN is not either
            raise ValueError(f"{name} lies between {self.low:g} and {self.high:g}")
        return number

    def _number(self, name: str, value: int | float | str) -> int | float:
        if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,9})?", value):
            raise ValueError(f"{name} is a number")
        if self.kind is int and float(value) != int(float(value)):
            raise ValueError(f"{name} is a whole number")
        return self.kind(float(value))  # type: ignore[no-any-return]


def _whole(meaning: str, low: int, high: int) -> Parameter:
    return Parameter(int, meaning, low, high)


COMMON: Mapping[str, Parameter] = {
    "rank": _whole("the rank at fault", 0, 63),
    "step": _whole("the step at which it fails", 0, 400),
    "steps": _whole("how many steps the job has", 1, 5000),
    "timeout": Parameter(float, "the process group's timeout in seconds", 2, 60),
    "pause": Parameter(float, "seconds that a step takes", 0, 5),
    "style": Parameter(str, "how the job logs", choices=STYLES),
}
RUNNER: Mapping[str, Parameter] = {
    "detail": _whole("1: TORCH_DISTRIBUTED_DEBUG=DETAIL in every process", 0, 1),
    "kernel_log": _whole("0: the kernel log is not among the logs", 0, 1),
    "port": _whole("the master's port", 1024, 65535),
    "restarts": _whole("how often the launcher restarts the job", 0, 3),
    "memory_mb": _whole("the memory limit in MiB, where the scenario has one", 300, 16_000),
}
OWN: Mapping[str, Parameter] = {
    "bad_attempts": _whole("how many attempts fail", 0, 99),
    "faulthandler": _whole("1: faulthandler is enabled", 0, 1),
    "at_end": Parameter(str, "what a rank does when its batches are over", choices=("exit", "barrier")),
    "code": _whole("the exit status", 1, 255),
    "collective": Parameter(str, "the collective that goes wrong", choices=COLLECTIVES),
    "depth": _whole("calls deep", 1000, 2_000_000),
    "dtype": Parameter(str, "the odd data type", choices=DTYPES),
    "dump": _whole("1: write a flight-recorder dump", 0, 1),
    "error": Parameter(str, "what is raised", choices=ERRORS),
    "extra": _whole("additional elements on the rank at fault", 1, 50_000_000),
    "full": _whole("1: the disk is full; 0: the folder may not be written", 0, 1),
    "hidden": _whole("the width of the odd layer", 1, 4096),
    "keep": _whole("bytes of the checkpoint that are left", 0, 10_000_000),
    "limit": _whole("how many descriptors a process may have", 64, 4096),
    "limit_mb": _whole("MiB of address space left to the rank at fault; 0: no limit", 0, 16_000),
    "loud": _whole("1: the swallowed exception is logged", 0, 1),
    "megabytes": _whole("MiB taken at a time", 1, 16_384),
    "per_step": _whole("files opened in a step", 1, 1000),
    "retry_s": Parameter(float, "seconds of sleep before the error shows", 0, 60),
    "seconds": Parameter(float, "how long the file system takes", 0, 60),
    "signal": Parameter(str, "the signal that ends it", choices=("SEGV", "FPE", "ABRT", "BUS", "ILL")),
    "stall": Parameter(float, "seconds that the source stalls", 0, 60),
    "build": Parameter(float, "seconds before the barrier", 0, 60),
    "width": _whole("elements in the tensor", 1, 50_000_000),
}
BACKEND = Parameter(str, "the process group's backend", choices=("gloo", "nccl", "cpu:gloo"))
LAUNCH = ("backend", "device", "folder", "share")  # of the job's own, but not for --set


@cache
def defaults(script: Path) -> Mapping[str, Value]:
    """The own parameters of a job: the keywords of its `trainer.run(...)`."""
    found: dict[str, Value] = {}
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "trainer.run":
            found |= {
                word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg not in (None, "join")
            }
    return found


def taken(row: Scenario) -> dict[str, Parameter]:
    """The parameters of a scenario, by name."""
    own = {name: OWN[name] for name in defaults(row.path) if name not in (*LAUNCH, *COMMON)}
    runner = {name: parameter for name, parameter in RUNNER.items() if _applies(row, name)}
    return {**COMMON, **own, **runner}


def _applies(row: Scenario, name: str) -> bool:
    by_name = {
        "kernel_log": "kernel-log" in row.needs,
        "port": row.start.port_taken,
        "restarts": row.launcher == "torchrun",
        "memory_mb": bool(row.wants.memory_mb),
    }
    return by_name.get(name, True)


def read(row: Scenario, pairs: Sequence[str]) -> dict[str, Value]:
    """`["rank=2"]` as typed arguments of the scenario; UsageError for what it does not take."""
    known = taken(row)
    found: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise UsageError(f"--set {pair[:80]} does not fit {row.id}", f"it takes {', '.join(known)}")
        try:
            found[name] = known[name].read(name, text.strip())
        except (ValueError, OverflowError) as error:
            raise UsageError(f"--set {pair[:80]}: {error}", f"{name} is {known[name].meaning}") from None
    return found


def fits(row: Scenario, name: str, value: object) -> Value | None:
    """The value of an incident document, where the scenario takes it and it lies in the range; else None."""
    parameter = taken(row).get(name)
    try:
        return parameter.read(name, value) if parameter else None
    except (ValueError, OverflowError):
        return None
