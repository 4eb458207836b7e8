"""The values that flow through the pipeline: frozen, plain, with the standard library only.

    paths ─collect─▶ Source ─scan─▶ Hit ─parse─▶ Event ─align─▶ Timeline ─diagnose─▶ Incident ─report─▶ text

Times are seconds since the epoch as in the stamp, UTC where a stamp has no zone; `align` adds corrected ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from postmortem.model.details import Details
from postmortem.model.vocabulary import EventKind as EventKind

Role = Literal["cause", "symptom", "confirms", "context"]
Severity = Literal["fatal", "error", "warning", "info"]
Bytes = bytes  # a dataclass with a field `bytes` has to call the type by another name
Outcome = Literal["incident", "recovered", "healthy", "undetermined"]
RunEnd = Literal["finished", "unfinished", "unknown"]
Confidence = Literal["established", "supported", "hypothesis"]
ClockKind = Literal["absolute", "naive", "boot", "none"]
Speaker = Literal["rank", "launcher", "kernel", "scheduler", "cluster", "tool"]
RankState = Literal["cause", "victim", "silent", "healthy", "unknown"]


# ── patterns ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Variant:
    """The same observation in other words. `gate` is None where it is derived from `regex`."""

    regex: str
    gate: str | None = None
    since: Mapping[str, str] = field(default_factory=dict)
    on: str = ""  # the parser's event kind whose decisive line it reads, if not every line


@dataclass(frozen=True, slots=True)
class Explains:
    """An edge of the causal graph: this pattern explains findings of pattern `id` with an entity joined by `join`."""

    id: str
    join: str
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReadsAs:
    """The pattern that this observation means where a version is older than `before` or unknown."""

    id: str
    before: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    """What to do, of a closed kind, in a sentence."""

    kind: str
    text: str
    unless: str = ""  # a word of AT_HAND, CULPRITS or PLACES: left out where that holds
    at: str = ""  # in place of `text` where the line of code is known, which is put in for {code}


@dataclass(frozen=True, slots=True)
class Example:
    """A test of a pattern, in its file. `text` may have several lines, as in the log."""

    text: str
    captures: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    because: str = ""
    incident: str = ""
    source: str = ""  # the source kind this text is read as; empty = sniffed


@dataclass(frozen=True, slots=True)
class Pattern:
    """One observation in logs: data, documentation and tests in one (see patterns/README.md)."""

    id: str
    family: str
    title: str
    status: str
    category: str | None
    role: Role
    severity: Severity
    entity: str
    what: str
    sources: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()  # the file's own `regex`/`gate`/`since` is the first of them
    on: str = ""  # the parser's event kind that this pattern reads, where one line is not enough
    frame: str = ""  # a regex for the innermost frame of the exception, as `file function`
    derived: bool = False  # found by reasoning in `diagnose`, not by reading a line
    strength: str = "stated"  # its evidence: a line that states it, or less (see patterns/README.md)
    tells: tuple[str, ...] = ()  # its meaning for the reasoning, words of TELLS
    generic: bool = False  # gives way to any other name of the same line
    survived_by: tuple[str, ...] = ()  # signs that it was got over: words of SURVIVED_BY, or patterns
    if_last: str = ""  # context that is trouble where nothing comes after it: `once`, or `repeated` to the end
    cause_if: tuple[str, ...] = ()  # promoted to a cause under any of these CONDITIONS
    cause_if_near: str = ""  # or where a line around it matches this
    reads_as: ReadsAs | None = None  # another pattern's observation under other versions
    says_why: bool = False  # the rank itself gives the reason, so no other is needed
    bears_out: tuple[str, ...] = ()  # categories of other lines that this line confirms
    tried_again: str = ""  # a line that matches this is a warning of a retry: it accuses where something failed
    topic: str = ""  # words that may name its category: its `own`, or those `around` it too
    stands_for: str = ""  # the category of a failure of which only this is known
    headline: str = ""  # a sentence with {who}, {code}, {ending} and the captures, where the title is too little
    explains: tuple[Explains, ...] = ()
    why: str = ""
    actions: tuple[Action, ...] = ()
    not_to_be_confused_with: str = ""
    replay: str = ""
    references: tuple[str, ...] = ()
    matches: tuple[Example, ...] = ()
    no_matches: tuple[Example, ...] = ()
    path: str = ""


# ── sources and the results of the scan ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Source:
    """One log: a file, or a member of an archive (`bundle.tar.gz!/node-a/rank0.log`).

    `path` is its name for the user, relative to the given path. `kind` is one of `input/kinds.yaml`, console or
    binary. Rank, host, attempt and run are None where the path has none.
    """

    path: str
    kind: str
    size: int
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    run: str | None = None
    stream: str | None = None  # stdout | stderr, by its name


class Where(NamedTuple):
    """The address of evidence. Lines count from 1; None in binary and JSON files.

    `line` is the place in the order of writing. Where a collector wrapped a log (JSON records, newest first),
    `file_line` is the line of the file.
    """

    source: str
    line: int | None
    end_line: int | None = None
    file_line: int | None = None

    @property
    def shown(self) -> int | None:
        """The line to look up in the file."""
        return self.line if self.file_line is None else self.file_line

    @property
    def shown_end(self) -> int | None:
        return self.end_line if self.file_line is None else None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.shown}"


class Match(NamedTuple):
    """A pattern confirmed on a line, with its named groups."""

    pattern: str
    captures: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """The whole lines before a line, and those after it, cut from a page that neighboring hits share. Two are equal
    if these lines are, whatever else is on their pages."""

    page: bytes
    low: int
    start: int
    end: int
    high: int

    @classmethod
    def of(cls, before: bytes, after: bytes) -> Around:
        """Make a page of its own for one line."""
        return cls(before + after, 0, len(before), len(before), len(before) + len(after))

    @property
    def before(self) -> bytes:
        """Ends where the line starts."""
        return self.page[self.low : self.start]

    @property
    def after(self) -> bytes:
        """Starts where the next line starts."""
        return self.page[self.end : self.high]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Around) and (self.before, self.after) == (other.before, other.after)


class Hit(NamedTuple):
    """A line with a match, with its surroundings.

    `text` is the line in the file, at most 16 KiB of it around the match, without its line end. `offset` is that of
    the line in the (decompressed) source. `matches` are the confirmed patterns, `openers` the parsers' block openers
    on the line.
    """

    line: int
    offset: int
    text: bytes
    around: Around
    matches: tuple[Match, ...]
    openers: tuple[str, ...]

    @property
    def before(self) -> bytes:
        return self.around.before

    @property
    def after(self) -> bytes:
        return self.around.after


@dataclass(frozen=True, slots=True)
class Sample:
    """Lines without a hit, to learn clocks, identities and progress: `text` is whole lines from line `line` on."""

    line: int
    offset: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Skip:
    """Bytes that were not scanned, and the reason: a row of the ledger. `meant`: left out on purpose, such as a
    program or a link. Any other row is a loss, and with a loss nothing is called healthy."""

    path: str
    bytes: int
    reason: str
    meant: bool = False


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of one pass over one source. `content` is the whole of a document-like source."""

    source: Source
    bytes: int
    lines: int
    hits: tuple[Hit, ...]
    samples: tuple[Sample, ...]  # the head, single lines in between, the tail
    counts: Mapping[str, int]  # hits by signature, beyond the caps too
    content: Bytes | None = None
    skips: tuple[Skip, ...] = ()


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────


class Stamp(NamedTuple):
    """A time as in a line. `sigma` is its resolution in seconds (one standard deviation)."""

    time: float
    clock: ClockKind
    raw: str
    sigma: float = 0.001


class Event(NamedTuple):
    """Something that happened, by one parser's reading; `Details` has the fields of each kind."""

    kind: EventKind
    where: Where
    text: str
    time: float | None = None
    clock: ClockKind = "none"
    sigma: float = 0.0
    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    attempt: int | None = None
    run: str | None = None
    pattern: str | None = None
    severity: Severity = "info"
    fields: Details = {}
    context: tuple[str, ...] = ()
    raw_time: str = ""
    before: int = 0  # number of lines of `context` before the decisive line
    source_kind: str = ""
    speaker: Speaker = "rank"  # the writer of the line; set by the parsers, with `speaker_in`
    at: float | None = None  # the time on the job's one clock, filled in by align: the last two fields
    at_sigma: float = 0.0

    @property
    def line(self) -> int:
        """The line of its log; 0 in a document without lines."""
        return self.where.line or 0

    @property
    def end(self) -> int:
        """The last line of its block."""
        return self.where.end_line or self.line

    @property
    def place(self) -> tuple[str, int | None]:
        """File and line."""
        return self.where.source, self.where.line

    def below(self, other: Event) -> bool:
        """Whether it is below another event in the same log."""
        return self.where.source == other.where.source and self.line > other.line


_TOOL: Speaker = "tool"
_TOOLS = "gpu-report ras debug-server inspector process-table cgroup core-note core core-head minidump abrt coredumpctl"
_SPEAKERS: Mapping[str, Speaker] = {
    "agent": "launcher",
    "run": "launcher",
    "kernel": "kernel",
    "scheduler": "scheduler",
    "slurm": "scheduler",
    **dict.fromkeys(("job-report", "unit-status"), "scheduler"),
    "kubernetes": "cluster",
    **dict.fromkeys((*_TOOLS.split(), "memory-snapshot", "apport", "environment", "stack"), _TOOL),
}


def speaker_in(kind: str, kernel: bool = False, rank: int | None = None, program: str = "") -> Speaker:
    """Return the writer of a line in a source of this kind. With --tee a launcher's console has its ranks' lines too,
    any console may have the kernel's, and a journal the lines of any `program`."""
    if kernel:
        return "kernel"
    if kind == "kernel" and program:
        return "rank"
    speaker = _SPEAKERS.get(kind, "rank")
    return "rank" if speaker == "launcher" and rank is not None else speaker


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one host and kind, by align. Seconds; `uncertainty` is one standard deviation."""

    host: str | None
    kind: ClockKind
    zone: float | None
    offset: float | None
    drift_ppm: float | None
    at: float | None
    uncertainty: float | None
    events: int
    state: str  # aligned | weak | refused
    reason: str
    sources: tuple[str, ...] = ()


T = TypeVar("T")

# as `_make`, in a third of its time
event_of: Callable[[Iterable[Any]], Event] = partial(tuple.__new__, Event)
where_of: Callable[[Iterable[Any]], Where] = partial(tuple.__new__, Where)


def once(values: Sequence[T]) -> list[T]:
    """Return a column with one object for equal values, all of one type."""
    return [*map(dict[T, T]().setdefault, values, values)]
