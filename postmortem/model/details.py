"""The details of an event. `Details` has them all, and a value means the same in each kind that has it; `OF_KIND` lists
those of each kind.

The named groups of a pattern are details too (patterns/README.md): `captured` makes numbers of those that are numbers.
A detail that is unknown is left out; a flag that is not set is left out, too.
"""

from array import array
from collections.abc import Mapping
from typing import TypedDict, cast

from postmortem.model.digits import number

Frame = tuple[str, int, str]  # file, line, function
Collective = tuple[str, int, str, str]  # group, number, operation, sizes and types
MARKS = 300  # of each writer in a sync: more do not make a clock better
Row = tuple[int, str, int, int | None, str]  # rank, value, line, line of the file, text


class Shared(TypedDict, total=False):
    """Of all kinds, by the line's prefixes and the file's name."""

    local_rank: int | None
    writer: str
    quoted: bool  # in a pasted mail


class Captured(TypedDict, total=False):
    """Of a pattern: its named groups. A pattern on the line of another event has that event's details too."""

    rank: int
    ranks: str
    peer_rank: int
    pid: int | None
    comm: str
    host: str
    node: str
    peer: str  # also of a fault
    address: str
    port: str
    store_key: str
    gpu: int  # also of an identity
    pci: str
    xid: str
    world: int  # also of an identity
    joined: int
    exitcode: int  # also of an exit
    signal: str  # also of a crash
    op: str
    pg: str
    seq: int
    enqueued: int
    completed: int
    numel_in: str
    numel_out: str
    shape: str
    dtype: str
    timeout_ms: int
    ran_ms: int
    step: int  # also of progress
    count: int
    bytes: str
    expected_bytes: int
    limit: str
    path: str  # also of a fault
    job_id: str
    reason: str
    version: str  # also of a recorder
    detail: str  # also of a fault


class Stacked(TypedDict, total=False):
    """Of exceptions, crashes, stacks and recorders."""

    frames: tuple[Frame, ...]  # innermost last of an exception, else first
    own: tuple[bool, ...]  # whether each frame is the user's
    code: str | None  # file:line of the innermost frame of the user's
    collective: str | None  # in which it waits
    tool: str  # that wrote the stack


class Raised(TypedDict, total=False):
    """Of an exception, also `mentioned`: logged, and not the writer's last line; of a `cut`, `opened` only."""

    type: str
    message: str
    line: str  # of a crash too
    source: str  # code of the innermost frame
    subgroup: bool
    opened: int  # the line of the traceback's head
    table: tuple[Row, ...]  # a value for each rank
    reported_by: str  # parent, launcher, error-file
    ran_on: int  # the rank that ran the call of another one, in which it was raised
    interrupted: bool
    wrapper: bool  # it only reports that another process failed
    chained: bool
    excepthook: bool
    logged: bool
    ignored: bool
    headless: bool
    mentioned: bool
    stepped: bool  # between two steps of its writer
    last_error: bool  # on the line that torch quotes as NCCL's last error


class Crashed(TypedDict, total=False):
    current: bool
    terminate: str
    what: str


class Dumped(TypedDict, total=False):
    """Of a stack."""

    state: str  # of a process too
    child: bool
    asked: str
    after: int  # the rank that had failed
    still: int  # seconds without output


class Ended(TypedDict, total=False):
    """Of an exit."""

    block: bool  # of torchrun
    reported_by: str


class Failed(TypedDict, total=False):
    """Of a fault, or of a fact."""

    signature: str  # read by patterns
    warned: str
    library: str


class Held(TypedDict, total=False):
    """Of a snapshot of GPU memory, in bytes."""

    reserved: int
    allocated: int
    held: tuple[tuple[str, int], ...]  # by lines of code, the most first


class Named(TypedDict, total=False):
    """Of a job."""

    job_name: tuple[str, str]  # the kind of name (see `formats.jobs`), and the name


class Identified(TypedDict, total=False):
    """Of an identity or a pid. Two statements that differ are None."""

    stated_rank: int | None
    stated_worker: int | None
    bus: str
    torch: str
    nccl: str
    member: int
    of: int


BETWEEN = "between"  # the value of a series by the stamps of the lines
ABSENT = -1e300  # the value of a line that has none


class Series(TypedDict):
    """The values that a writer printed beside its steps, see `blocks.measures`."""

    steps: "array[int]"
    lines: "array[int]"
    values: "dict[str, array[float]]"  # by name; ABSENT where a line has none


class Worked(TypedDict, total=False):
    """Of ordinary lines: progress, worked, finished, line, notice, restart."""

    series: Series  # of the last progress
    loss: str
    by: str  # count, loss, answer, up, result, rounds
    last_word: bool
    full: bool  # the count reached its total
    since: int  # the line since which the count grew again and again
    first: bool
    alone: bool  # the first line never came twice in a row
    last: bool
    milestone: bool
    final: tuple[int, str]  # number and text of a writer's last line that is neither a complaint nor a library's
    once: tuple[tuple[int, str, str], ...]  # number, text and body of lines with a shape of their own
    reports_error: bool  # reports an error
    grew: int  # the line where the count last grew


class Synced(TypedDict, total=False):
    """Of a sync: packed marks."""

    family: str
    columns: int
    values: "array[int]"
    times: "array[float]"
    lines: "array[int]"


class Counts(TypedDict):
    """The last collectives of a group."""

    enqueued: int | None
    started: int | None
    completed: int | None


class Group(TypedDict):
    desc: str
    ranks: tuple[int, ...]


class Recorded(TypedDict, total=False):
    """Of a recorder."""

    entries: tuple[Collective, ...]
    pending: tuple[Collective, ...]
    status: dict[str, Counts]  # by group
    groups: dict[str, Group]
    whole: bool  # nothing was overwritten


class Listed(TypedDict, total=False):
    """Of a process, a counter, oom-tasks."""

    wchan: str
    command: str
    ppid: str
    oom_kill: int
    tasks: tuple[int, ...]
    usage: tuple[int, int, int]  # kB used of the cgroup, its limit in kB, the line
    resident: tuple[tuple[int, str, int, int], ...]  # pid, name, virtual and resident pages of the largest tasks


class Details(
    Shared,
    Captured,
    Stacked,
    Raised,
    Crashed,
    Dumped,
    Ended,
    Failed,
    Held,
    Identified,
    Named,
    Worked,
    Synced,
    Recorded,
    Listed,
    total=False,
):
    """The details of any event."""


_TYPES = Details.__annotations__
_FRAMES = "frames own code collective"
_FAULT = "signature detail library path peer warned comm pid"
_RAISED = (
    f"{_FRAMES} type message line source subgroup opened table reported_by interrupted wrapper chained excepthook"
    " logged ignored headless stepped ran_on"
)
# Kind -> its details beside those of all kinds. Those of a pattern have any name, with those of the event on its line.
OF_KIND: Mapping[str, frozenset[str]] = {
    kind: frozenset(names.split()) | Shared.__annotations__.keys()
    for kind, names in {
        "counter": "oom_kill",
        "crash": f"{_FRAMES} signal line current pid world comm command ppid detail tool signature terminate what",
        "cut": "opened ignored",
        "exception": _RAISED,
        "exit": "exitcode block reported_by",
        "fact": f"{_FRAMES} tool signature job_id node host pid gpu pci rank ranks reason",
        "fault": f"{_FAULT} last_error",
        "finished": "last_word",
        "identity": "pid stated_rank stated_worker world torch nccl bus gpu",
        "job": "job_name",
        "line": "first last once final milestone reports_error",
        "memory": "signature detail code line reserved allocated held",
        "mentioned": _RAISED,
        "notice": "reports_error",
        "oom-tasks": "usage tasks resident",
        "own-verdict": "",
        "pattern": " ".join(_TYPES),
        "pid": "pid stated_rank member of",
        "process": "state wchan command ppid",
        "progress": "step loss series",
        "recorder": f"{_FRAMES} status groups version whole entries pending",
        "restart": "first alone grew",
        "stack": f"{_FRAMES} state tool child asked after still",
        "stamp": "",
        "sync": "family columns values times lines",
        "unreadable": "",
        "worked": "by since full",
    }.items()
}


def captured(groups: Mapping[str, str]) -> Details:
    """Return the named groups of a pattern, numbers as numbers; without those that are not of their detail's type."""
    found: dict[str, object] = {}
    for name, text in groups.items():
        kind = _TYPES.get(name, str)
        value = number(text) if kind in (int, int | None) else text if kind is str else None
        found |= {} if value is None else {name: value}
    return cast(Details, found)
