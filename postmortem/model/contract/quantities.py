"""What the logs state in numbers: the pace of each rank, loss and gradient norm, memory; and how far each rank came in
each process group."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from postmortem.model.contract.processes import LastLine
from postmortem.model.contract.words import Count, Seconds


class Straggler(TypedDict):
    """A rank that needs at least 1.3 times the median of all ranks in at least half of the steps."""

    rank: Count
    """Global rank"""
    ratio: float
    """Its time to the median, in the middle of its slow steps"""
    seconds: Seconds
    """Its time for a step"""
    median_s: Seconds
    """The median of all ranks for the same steps"""
    since_step: int | None
    """The first slow step; null where it is slow from the first one on"""
    text: str
    """One sentence"""
    at: LastLine
    """A line of it"""


class Times(TypedDict):
    """The times of one rank."""

    rank: Count
    """Global rank"""
    seconds: list[float | None]
    """For each step; null where it printed none"""


class Pace(TypedDict):
    """A time of each step that at least three ranks printed. In synchronous training all ranks have the same time of a
    whole step; only a time of a rank's own work, such as `forward`, shows the slow one."""

    measure: str
    """The name of the time in the logs; `between` where the stamps of the lines show it"""
    ranks: Count
    """How many ranks are compared"""
    steps: list[int]
    """Steps that the ranks have in common, at most 64"""
    median: list[Seconds]
    """The median of all ranks, in seconds for each step"""
    slowest: list[Times]
    """The slowest stragglers, at most 4"""
    stragglers: list[Straggler]
    """The slowest first, at most 8"""


class Losses(TypedDict):
    """Loss and gradient norm of the rank that shows the first value that is not a number."""

    rank: Count | None
    """Null if unknown"""
    steps: list[int]
    """At most 128"""
    loss: list[float | None]
    """For each step; null where it is absent or not a number"""
    grad_norm: NotRequired[list[float | None]]
    """The same of the gradient norm"""
    first_nan: int
    """The first step with NaN or infinity"""
    at: LastLine
    """Its line"""


class MemoryUse(TypedDict):
    """A use of memory that a line states."""

    name: str
    """Whose it is: `memory cgroup`, `GPU`, `python3 (pid 32688)`"""
    used: Count
    """Bytes"""
    limit: Count | None
    """Bytes of the limit or of all memory; null of a process"""
    at: LastLine
    """The line"""


class HeldMemory(TypedDict):
    """GPU memory that a line of code allocated."""

    code: str
    """`file:line function`"""
    bytes: Count
    """Of all its blocks"""


class GpuMemory(TypedDict):
    """A snapshot of the memory of a GPU."""

    rank: Count | None
    """The rank that took it"""
    gpu: str | None
    """Its number in the process"""
    source: str
    """`path` of the source that holds it"""
    reserved: Count
    """Bytes that PyTorch has of the driver"""
    allocated: Count
    """Bytes of them in blocks of tensors"""
    held: list[HeldMemory]
    """The lines of code that hold most, at most 10"""


class Quantities(TypedDict):
    """Numbers of the logs, where they bear on the verdict."""

    pace: NotRequired[Pace]
    """Where some rank is slower than the others"""
    losses: NotRequired[Losses]
    """Where a loss or a gradient norm became NaN or infinite"""
    memory: NotRequired[list[MemoryUse]]
    """Where memory was the failure; limits first, then processes by their size, at most 12"""


class Cell(TypedDict):
    """How far ranks came in one process group."""

    seq: int | None
    """The collective that they wait in, else the last that they enqueued"""
    completed: int | None
    """The last collective that they completed"""
    op: str | None
    """Operation of `seq`"""
    place: str
    """`entered` waits in the collective of the verdict, `missing` did not enter it, `elsewhere` is in another one;
    empty where that is unknown, and of other groups"""


class RankCells(TypedDict):
    """Ranks that came equally far in all groups."""

    ranks: list[Count]
    """Ascending"""
    cells: list[Cell | None]
    """For each of `groups`; null where they are not in it"""
    code: str | None
    """`file:line` of the user's code in their stacks or tracebacks"""
    call: str | None
    """The call of that line, where it is a collective"""


class Hang(TypedDict):
    """Where each rank was in each process group, the odd ones first."""

    text: str
    """Who waits for whom"""
    groups: list[str]
    """Names of process groups; groups of one kind, such as all of `TENSOR_MODEL_PARALLEL_GROUP`, are one; at most 6"""
    rows: list[RankCells]
    """At most 64"""
