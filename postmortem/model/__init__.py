"""The values that flow through the pipeline;
all frozen, all plain, nothing imported but the standard library.

    paths ─collect─▶ Source ─scan─▶ Hit ─parse─▶ Event ─align─▶ Timeline ─diagnose─▶ Incident ─report─▶ text

Times are seconds since the epoch as the stamp says them, UTC assumed where a stamp has no zone;
`align` corrects them, and nobody overwrites a raw stamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Role = Literal["cause", "symptom", "confirms", "context"]
Severity = Literal["fatal", "error", "warning", "info"]
Bytes = bytes  # a dataclass with a field `bytes` has to call the type by another name
Outcome = Literal["incident", "recovered", "healthy", "undetermined"]
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
    """An edge of the causal graph: this pattern explains findings of pattern `id`
    whose entity joins by `join`."""

    id: str
    join: str
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReadsAs:
    """The pattern that this observation means where a version is older than `before` or is not told."""

    id: str
    before: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    """What to do, of a closed kind, in a sentence."""

    kind: str
    text: str
    unless: str = ""  # what it asks for, of AT_HAND: it is left out where that is here


@dataclass(frozen=True, slots=True)
class Example:
    """A test of a pattern that lives in its file. `text` may hold several lines, as the log has them."""

    text: str
    captures: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    because: str = ""
    incident: str = ""
    source: str = ""  # the source kind this text is read as; empty = sniffed


@dataclass(frozen=True, slots=True)
class Pattern:
    """One thing that can be seen in logs: data, documentation and tests in one (see patterns/README.md)."""

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
    on: str = ""  # the parser's event kind this pattern reads, where no single line is enough
    frame: str = ""  # what the innermost frame of the exception has to match, as `file function`
    derived: bool = False  # found by reasoning in `diagnose`, not by reading a line
    strength: str = "stated"  # what it rests on: a line that states it, or less (see patterns/README.md)
    tells: tuple[str, ...] = ()  # what it tells the reasoning, of TELLS
    generic: bool = False  # gives way to any other name of the same line
    survivable: str = ""  # `anyone`: harmless where anything goes on after it; `never`: nobody goes on after it
    restored_by: str = ""  # the pattern whose line ends the trouble
    if_last: str = ""  # context that is trouble where nothing comes after it: `once`, or `repeated` to the end
    cause_if: tuple[str, ...] = ()  # promoted to a cause under any of these CONDITIONS
    cause_if_near: str = ""  # or where a line around it matches this
    reads_as: ReadsAs | None = None  # another pattern's observation under other versions
    spreads: bool = False  # to all ranks with the next collective, so the first to show it has it
    says_why: bool = False  # the rank's own word on the reason, so nobody else's is needed
    bears_out: tuple[str, ...] = ()  # categories that others tell of, which this line confirms
    names_ranks_of: str = ""  # the category of which it names the ranks, where the cause's line does not
    tried_again: str = ""  # a line that matches this is a warning of a retry: it accuses where something failed
    topic: str = ""  # its category is what its words tell, if they do: its `own`, or those `around` it too
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


# ── sources and what the scan brings back ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Source:
    """One log: a file, or a member of an archive (`bundle.tar.gz!/node-a/rank0.log`).

    `path` is what the user reads: relative to the given path, `/` on every system. `kind` names what it is:
    console, agent, kernel, error-file, flight-recorder, stack, scheduler, kubernetes, process-table, cgroup,
    gpu-report, ray, environment, json-lines, binary. Rank, host, attempt and run are None where neither name
    nor folder tells.
    """

    path: str
    kind: str
    size: int
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    run: str | None = None
    stream: str | None = None  # stdout | stderr, where the name tells


class Where(NamedTuple):
    """The only address of evidence. Lines count from 1; None in binary and JSON files.

    `line` gives the order of what was written. In a log whose collector wrapped it (JSON records, newest
    first) that is no line of the file: `file_line` is the one that holds it.
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
    """The whole lines in front of a line, and those behind it, cut from a page:
    hits that stand close together share one.

    Two are equal if they say the same, whatever else stands on their pages.
    """

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
    """A line that deserves a look, with its surroundings.

    `text` is the line as it stands in the file, at most 16 KiB of it around the match, without its line end.
    `offset` counts (decompressed) bytes from the start of the source to the start of the line. `matches`
    names the confirmed patterns; `openers` the parsers' block openers that were seen on the line.
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
    """Lines read without a hit, to learn clocks, identities and progress:
    `text` is whole lines from line `line` on."""

    line: int
    offset: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Skip:
    """Bytes that were not scanned, and why. Rows of the ledger.

    `meant`: left out on purpose, such as a program or a link: no log is missing for it. Any other row is a
    loss, and with a loss nothing is called healthy.
    """

    path: str
    bytes: int
    reason: str
    meant: bool = False


@dataclass(frozen=True, slots=True)
class Scanned:
    """All that one pass over one source brought back. `content` is the whole of a document-like source."""

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
    """A time as a line says it. `sigma` is its resolution in seconds (one standard deviation)."""

    time: float
    clock: ClockKind
    raw: str
    sigma: float = 0.001


class Event(NamedTuple):
    """Something that happened, by one parser's reading. Shape-free details are in `fields`.

    `kind` is one of: pattern (a pattern matched a line), exception, crash, fault, exit, kill, timeout,
    collective, stack, progress, identity, pid (of a rank), finished (a goodbye), worked (a sign of work),
    anew (a count or a script begins again), attempt, line. `order` keeps the order inside one source whatever
    the clocks say.
    """

    kind: str
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
    fields: Mapping[str, object] = {}
    context: tuple[str, ...] = ()
    raw_time: str = ""
    before: int = 0  # how many lines of `context` stand before the decisive line
    source_kind: str = ""
    speaker: Speaker = "rank"  # whose words these are; set by the parsers, by `speaker_in`
    at: float | None = None  # the time on the job's one clock, filled in by align: the last two fields
    at_sigma: float = 0.0


_SPEAKERS: Mapping[str, Speaker] = {
    "agent": "launcher",
    "run": "launcher",
    "kernel": "kernel",
    "scheduler": "scheduler",
    "kubernetes": "cluster",
    "gpu-report": "tool",
    "process-table": "tool",
    "cgroup": "tool",
    "core-note": "tool",
    "environment": "tool",
    "stack": "tool",
}


def speaker_in(kind: str, kernel: bool = False, rank: int | None = None, program: str = "") -> Speaker:
    """Who speaks a line of a source of this kind.

    With --tee a launcher's console holds its ranks' lines too, anybody's console may hold the kernel's, and
    a journal the lines of any `program`.
    """
    if kernel:
        return "kernel"
    if kind == "kernel" and program:
        return "rank"
    speaker = _SPEAKERS.get(kind, "rank")
    return "rank" if speaker == "launcher" and rank is not None else speaker


@dataclass(frozen=True, slots=True)
class Clock:
    """What align found out about the clock of one host and kind.
    Seconds; `uncertainty` is one standard deviation."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """One pattern seen on one entity, with its events, best address first."""

    pattern: Pattern
    role: Role
    events: tuple[Event, ...]
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    attempt: int | None = None
    because: str = ""
    derived_confidence: Confidence | None = None

    @property
    def event(self) -> Event:
        return self.events[0]

    @property
    def at(self) -> float | None:
        return min((e.at for e in self.events if e.at is not None), default=None)
