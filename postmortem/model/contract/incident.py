"""The incident document: `--format json`, the document embedded in the HTML report, and `Incident.document`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from postmortem.model import ClockKind, Outcome, RankState, Role
from postmortem.model.contract.processes import LastLine, Process, Run
from postmortem.model.contract.quantities import GpuMemory, Hang, Quantities
from postmortem.model.contract.verdict import Attempt, Cause, Verdict
from postmortem.model.contract.words import Category, ClockState, Count, LineNumber, Seconds, Time

SCHEMA: Literal["postmortem/incident/1"] = "postmortem/incident/1"


class Entity(TypedDict):
    """Whom a finding speaks of. A field is there where there is one of its kind; `{}` is the job."""

    rank: NotRequired[Count]
    """The one rank"""
    ranks: NotRequired[list[Count]]
    """Several ranks, ascending, in place of `rank`"""
    host: NotRequired[str]
    """The one host"""
    gpu: NotRequired[str]
    """The one GPU, by its PCI bus address"""
    pid: NotRequired[Count]
    """The one process"""


class Finding(TypedDict):
    """One pattern seen on one entity, as a link of the chain or by itself."""

    id: str
    """`f1` is the root of the chain; `o1` counts `findings`"""
    pattern: str
    """Id of the pattern; `postmortem explain` describes it"""
    title: str
    """The pattern's title"""
    role: Role
    """The part that it plays in this verdict"""
    entity: Entity
    """Whom it speaks of"""
    time: Time | None
    """Of its first line that has one; null where none has"""
    explains: list[str]
    """`id` of the links that follow from it"""
    because: str
    """The reason for its role, or the meaning of the pattern"""
    evidence: list[Count]
    """Indices into `verdict.evidence`"""
    count: Count
    """How many events it was made from"""


class Alternative(TypedDict):
    """Another cause, and the reason against it."""

    category: Category | None
    """The category that the failure would have had"""
    pattern: str
    """Id of the pattern"""
    title: NotRequired[str]
    """The pattern's title"""
    ranks: list[Count]
    """The ranks that it would blame"""
    where: str | None
    """`path:line`; null where no line shows it"""
    why_not: str | None
    """The fact that decides against it; null where none does"""


class Unexplained(TypedDict):
    """A symptom that the root does not account for."""

    pattern: str
    """Id of the pattern"""
    title: str
    """The pattern's title"""
    where: str
    """`path:line`"""
    because: str
    """The fact against it"""


class Rank(TypedDict):
    """One rank of the job."""

    rank: Count
    """Global rank"""
    host: str | None
    """Null if unknown"""
    pid: Count | None
    """Its first process; null if unknown"""
    state: RankState
    """`cause` failed first; `victim` ended for it; `silent` reported neither an error nor its end"""
    exit: str | None
    """A word: the signal's name or the exit code, `SIGKILL`, `1`; null if unknown"""
    last_step: int | None
    """The highest training step that it printed"""
    last_collective: str | None
    """The last it is known to have been in: `ALLREDUCE #808 of group 3(tp)`"""
    last_line: LastLine | None
    """Its last line of progress or ordinary log"""
    why: str
    """Why it has this state"""
    group: str
    """The same for ranks that ended the same way; for grouping, not for reading"""


class StackFrame(TypedDict):
    """A frame of the user's code, or frames of libraries in a row; innermost first."""

    own: bool
    """Whether it is the user's code; then it has `file`, `line` and `function`"""
    file: NotRequired[str]
    """The file's name, from its package on"""
    line: NotRequired[int]
    """Line of the file"""
    function: NotRequired[str]
    """Name of the function"""
    frames: NotRequired[list[LibraryFrame]]
    """The libraries' frames, where it is not the user's code"""


class LibraryFrame(TypedDict):
    """A frame of a library."""

    file: str
    """The file's name, from its package on"""
    line: int
    """Line of the file"""
    function: str
    """Name of the function"""


class Stack(TypedDict):
    """Ranks with the same frames of their own; the odd ones first."""

    ranks: list[Count]
    """Ascending"""
    pids: list[Count]
    """Processes of unknown rank"""
    count: Count
    """How many stacks are in the group"""
    collective: str | None
    """The collective they are in"""
    code: str | None
    """The user's line, `file:line`"""
    how: str
    """Who took it: `py-spy`, `gdb`, `traceback`, `flight recorder`, `dump`, …"""
    source: str
    """`path` of the source that holds the one shown"""
    line: LineNumber | None
    """Where it begins"""
    frames: list[StackFrame]
    """Of the one shown"""


class Clock(TypedDict):
    """How the clock of one host and kind of stamp was compared with the job's."""

    host: str | None
    """Null if no line names the host"""
    kind: ClockKind
    """`absolute` stamps name their zone, `naive` ones do not, `boot` ones count from the boot"""
    zone_s: float | None
    """Time zone, in seconds east of UTC; null where it is not known"""
    offset_s: float | None
    """Seconds that it was ahead at `at`; null where it could not be compared"""
    drift_ppm: float | None
    """How much faster it ran, in parts per million; null where it does not change or is not known"""
    at: Time | None
    """The moment that `offset_s` and `uncertainty_s` are for"""
    uncertainty_s: Seconds | None
    """One standard deviation, in seconds"""
    events: Count
    """Events that it was compared by"""
    state: ClockState
    """`refused` was not corrected"""
    reason: str
    """Its source, and the doubts about it"""
    sources: list[str]
    """`path` of the sources that it stamped"""


class Source(TypedDict):
    """One file, or one member of an archive, that was read."""

    path: str
    """Relative to the given path; `bundle.tar.gz!/node-a/rank0.log` in an archive"""
    kind: str
    """`console`, `agent`, `kernel`, `flight-recorder`, `stack`, `scheduler`, …; kinds are added"""
    host: str | None
    """If a file or folder name has it"""
    rank: Count | None
    """If a file or folder name has it"""
    local_rank: Count | None
    """If a file or folder name has it"""
    attempt: Count | None
    """If a file or folder name has it"""
    bytes: Count
    """Its size when unpacked"""
    events: Count
    """Events that were found in it"""


class Skipped(TypedDict):
    """Bytes that were not read."""

    path: str
    """Of the file, the member, or the step of the analysis that failed"""
    bytes: Count
    """On disk; 0 where something is missing that takes no room"""
    reason: str
    """Why"""
    lost: NotRequired[bool]
    """true where it was meant to be read; absent otherwise"""


class Ledger(TypedDict):
    """Every byte on disk once: `bytes` is `scanned` plus the bytes of `skipped`."""

    bytes: Count
    """All that was given"""
    scanned: Count
    """Bytes that were read"""
    skipped: list[Skipped]
    """Bytes that were not read, by path"""


class Job(TypedDict):
    """The job that the verdict is about."""

    id: str | None
    """As the scheduler, the cluster or the launcher names it, else the folder that separates it from other jobs; null
    where nothing names it"""
    name: str | None
    """As you named it (`--job-name`), else the folder of its logs; null if neither is known"""
    command: str | None
    """The command that started it; null if no line shows it"""
    world_size: Count | None
    """Number of ranks; null if neither a line nor the ranks show it"""
    hosts: list[str]
    """By name"""
    torch: str | None
    """Version"""
    nccl: str | None
    """Version"""
    attempts: Count
    """How many lives of it are in the logs"""


class OtherJob(TypedDict):
    """Another job in the given logs."""

    id: str | None
    """As in `job`"""
    outcome: Outcome
    """Its outcome"""
    category: Category | None
    """Category of its failure"""
    headline: str
    """One sentence"""


class Replay(TypedDict):
    """Input of `postmortem replay`."""

    scenario: str | None
    """Name of the scenario that re-creates the failure; null where none does"""
    arguments: dict[str, int | float | str]
    """Its parameters, from the logs; durations in seconds"""
    result: NotRequired[dict[str, Any]]
    """Result of `postmortem replay --attach`; its shape is not part of the contract yet"""


class Tool(TypedDict):
    """The program that wrote the document."""

    version: str
    """Of postmortem"""
    library: str
    """Digest of the pattern files"""


class Seen(TypedDict):
    """Earlier occurrences of the same failure in the history; the verdict itself does not
    count."""

    incidents: Count
    """All that was filed before, of whatever cause"""
    times: Count
    """How many of them have this cause: the same `fingerprint`, on whatever hardware"""
    incomparable: NotRequired[Count]
    """How many of the `incidents` have a fingerprint of another scheme, and can not be compared"""
    since: NotRequired[Time]
    """The first of those `times`; where there are none, the first of all"""
    last: NotRequired[Time]
    """The latest of those `times`"""
    id: NotRequired[str]
    """Its ID, for `postmortem history show`"""
    host: NotRequired[str]
    """The host most often at fault in them; where there were several"""
    there: NotRequired[Count]
    """In how many of them"""
    note: NotRequired[str]
    """The latest note attached to one of them, such as the remedy"""
    noted: NotRequired[Time]
    """When it was written"""
    resolved: NotRequired[Count]
    """Resolved incidents of this category, by which the usual causes are weighed; absent where there are none"""
    changes: NotRequired[list[str]]
    """What changed since the last report of this job: the verdict, and the usual causes; absent for its first"""


class TraceStep(TypedDict):
    """A note of the reasoning."""

    step: Count
    """From 1"""
    text: str
    """One sentence"""


class Document(TypedDict):
    """The whole of it; every other output is a function of it."""

    schema: Literal["postmortem/incident/1"]
    """The version of this shape"""
    verdict: Verdict
    """The failure, its cause, and the next steps"""
    chain: list[Finding]
    """The root, its confirmations and its consequences; without a root, the complaints"""
    alternatives: list[Alternative]
    """Other causes"""
    causes: NotRequired[list[Cause]]
    """The usual causes of the verdict where it is a symptom, weighed by the signs in these logs, best first, at most
    5"""
    unexplained: list[Unexplained]
    """Findings that the root does not explain"""
    findings: list[Finding]
    """All that was observed, causes first, at most 200"""
    processes: list[Process]
    """The culprits first, then by rank, launchers and children last, at most 1,024"""
    ranks: list[Rank]
    """A view of the processes by rank: by number, at most 20,000"""
    stacks: list[Stack]
    """Stacks of the ranks, at most 32 groups; empty where one rank's traceback is all that is known"""
    memory: NotRequired[list[GpuMemory]]
    """Snapshots of GPU memory, those of the culprits first, at most 32"""
    quantities: NotRequired[Quantities]
    """Numbers of the logs that bear on the verdict"""
    hang: NotRequired[Hang]
    """Where each rank was, where the verdict is a hang or a mismatch, or ranks timed out"""
    clocks: list[Clock]
    """How clocks were compared"""
    sources: list[Source]
    """Every file that was read"""
    ledger: Ledger
    """Every byte that was given"""
    job: Job
    """Size, hosts, versions"""
    runs: list[Run]
    """One row for each launch of the job, oldest first"""
    attempts: list[Attempt]
    """One row for each life of the job, oldest first, at most 200; one where it did not begin anew"""
    other_jobs: list[OtherJob]
    """The other jobs among the logs"""
    replay: Replay
    """Input of a replay"""
    fingerprint: str | None
    """The same for the same failure at other times, in other files, on other hosts; where hardware is at
    fault, a second part after a hyphen distinguishes them. Begins with the number of its scheme (`2.`): values of
    two schemes can not be compared. Null where there is no root"""
    history: NotRequired[Seen]
    """Where the verdict was filed (`--history`): how often the same was seen before"""
    tool: Tool
    """The program that wrote the document"""
    trace: list[TraceStep]
    """How the verdict came about, at most 500 notes; for people"""
