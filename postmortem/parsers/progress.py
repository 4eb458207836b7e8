"""What ordinary lines tell: who is which rank, how far it came,
when it spoke first and last, whether it said goodbye.

    2026-11-20 21:02:50,001 INFO [rank1] train: process group ready: rank 1 of 3, pid 23160
    2026-11-20 21:02:56,633 INFO [rank1] train: epoch 0 step 15 loss 2.2822
    node7:4063850:4063871 [0] NCCL INFO ncclCommInitRank comm 0x24 rank 1 nranks 2 ... - Init COMPLETE

In: the samples of one source (its head and tail).
Out: for every writer in it one `identity`, the first and last
`progress`, a `finished`, its last `line`, and what clocks can be compared by (see `counters`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from postmortem.model import Event, Sample, Source, Where, speaker_in
from postmortem.parsers import interest
from postmortem.parsers.counters import Counters
from postmortem.parsers.envelope import Style, peel
from postmortem.parsers.excerpt import Line, decode, visible
from postmortem.parsers.marks import bare

LINES = 1000  # of a source; fewer where there are thousands of sources
HEAD_SHARE = 0.4  # the rest from its end

_STEP = re.compile(
    r"\b(?:global[_ ]?step|step|iteration|iter|batch|update|it)s?(?:\b|_)[ =:#\[(/]{0,4}(?P<step>\d{1,9})\b",
    re.IGNORECASE,
)
_EPOCH_STEP = re.compile(
    r"\bEpoch:? ?(?:\[\d+\]|\d+)[ :]*\[ *(?P<step>\d{1,9})/\d+[ \]]|\| +(?P<bar>\d{1,9})/\d+ \["
)
_LOSS = re.compile(r"\bloss'?\"?[ =:]{1,3}(?P<loss>nan|[-+]?\d[\d.e+-]*|inf)", re.IGNORECASE)
_OF = re.compile(
    r"\brank[ =:]*(?P<rank>\d{1,6})(?: of |/|,? ?(?:world[_ ]size|nranks|nRanks)[ =:]+)(?P<world>\d{1,6})\b",
    re.IGNORECASE,
)
_WORLD = re.compile(r"\b(?:world[_ ]size|nranks|nRanks|num_processes)[\"']?[ =:]+(?P<world>\d{1,6})\b")
_PID = re.compile(r"\bpid[ =:]+(?P<pid>\d{2,8})\b")
_BUS = re.compile(r"\bbusId (?P<bus>[0-9a-f]{3,8})\b")
_RANK_PAIR = re.compile(
    r"\(ip=(?P<ip>[\w.:]+), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+)"
)
_VERSION = re.compile(
    r"\btorch(?:[ _]version)?[ =:]+(?P<torch>\d\.\d+\.\d+[\w.+]*)|NCCL version (?P<nccl>\d+\.\d+\.\d+)"
)
MAX_NOTICES = 60
_NOTICE = re.compile(
    r"\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
    r"|\b(?:[Ss]kip(?:ped|ping)?|[Ee]xception|[Ff]ailed|[Rr]etry(?:ing)?|[Cc]ould not|[Cc]annot|[Uu]nable to"
    r"|[Ss]tall\w*|corrupt\w*)\b"
)
_BENIGN = re.compile(
    r"UserWarning|FutureWarning|DeprecationWarning|Warning: |0 (?:failed|errors?|skipped)|OMP_NUM_THREADS"
)
# speaks of steps too, and is no rank; Ray's folded copies come seconds late, so they are no later progress
_KEEPER = re.compile(
    r"Script (?:started|done)\b|(?:srun|scancel|sbatch|slurmstepd[\w-]{0,40}): |\*\*\* (?:STEP|JOB) \d|\[repeated \d+x across cluster\]"
)
_PLANNED = re.compile(
    (
        r"\b(?:total|max(?:imum)?|num(?:ber)?(?: of)?|planned)[ _](?:\w+[ _]){0,2}"
        r"(?:step|iter(?:ation)?|update|batch)(?:e?s)?[ =:]"
    ),
    re.IGNORECASE,
)
_PREPARING = re.compile(
    r"\W{0,4}(?:Loading|Downloading|Fetching|Tokenizing|Filter|Map|Generating)\b[^|%]{0,80}: +\d+%\|"
)
_MILESTONE = re.compile(
    (
        r"\b(?:epoch|shard|phase|round|stage)\b[^.]{0,30}\b(?:finished|done|complete[d]?|end(?:ed)?)\b"
        r"|\b\d+ batches\b"
    ),
    re.IGNORECASE,
)
_GOODBYE = re.compile(
    r"\b(?:training|train|run|job|fit|trial|experiment|script|benchmark|evaluation|all epochs?)\b[^.]{0,24}"
    r"\b(?:finished|complete[d]?|done|ended|succeeded|successful(?:ly)?|stopped)\b"
    r"|^\W*(?:\w+ ?[:\-] ?)*(?:finished|completed|all done|exiting normally|bye)\b"
    r"|`Trainer\.fit` stopped: `max_|# Avg bus bandwidth|exit: 0 failed|Exiting with code 0",
    re.IGNORECASE,
)
# all that a logger's line says, and the last line;
# `epoch 3: done` and `[12/60] done` say it of something else
_DONE = re.compile(
    r"(?:^|\| ?|\bINFO:?[ \t]+|\bINFO:[\w.]{1,60}:|[^\W\d][ _-]?\d{0,6}[\])\u3011] ?"
    r"|\b(?!(?i:epoch|step|iter\w*|batch|stage|phase|round|fold|shard|part|chunk|file|layer)\b)"
    r"[^\W\d]{1,20}[ _#]?\d{1,6}: ?|^\d{1,6}: )"
    r"done[.!]?(?:[ \t]+[\w./-]{1,80}\.py:\d+)?[ \t]*$"
)
_NOT_GOODBYE = re.compile(
    r"not (?:finished|complete|done)|incomplete|before|error|fail(?!ed, 0|ures?: 0)|dataset|download|load"
    r"|tokeniz|epoch \d+ (?:done|finished|complete)"
    r"|(?:finished|completed) (?:\w+ )?(?:epoch|step|iteration|batch|round|phase)\b",
    re.IGNORECASE,
)


_NO_ERROR = re.compile(
    (
        r"\b(?:0|no|without)(?: \w+)? (?:errors?|failures?|failed)\b"
        r"|\b(?:errors?|failures?|failed): ?(?:0|none)\b"
    ),
    re.IGNORECASE,
)


@dataclass
class _Writer:
    """One rank (or the nameless rest) of a source."""

    first: Line | None = None
    last: Line | None = None
    first_step: tuple[Line, int] | None = None
    last_step: tuple[Line, int] | None = None
    went_on: Line | None = None  # a loss without a step's number, after the last step that has one
    finished: Line | None = None
    notices: list[Line] = field(default_factory=list)
    milestone: Line | None = None
    # lines that may name a step; only the last that does is looked for
    steps: list[Line] = field(default_factory=list)
    goodbyes: list[Line] = field(default_factory=list)
    milestones: list[Line] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    facts_line: Line | None = None


def parse(source: Source, samples: tuple[Sample, ...], style: Style, most: int = LINES) -> Iterator[Event]:
    """Read the samples of a console-like source, of each of them at most about `most` lines."""
    writers: dict[int | None, _Writer] = {}
    counters = Counters()
    notices = max(1, MAX_NOTICES * most // LINES)
    number, whole = 0, True
    for line, marks in _lines(samples, style, most):
        whole, number = whole and line.number == number + 1, line.number
        env = line.envelope
        if not line.text.strip() or env.kernel:
            continue
        rank = env.rank if env.rank is not None else source.rank
        _read(
            writers.setdefault(rank, _Writer()),
            line,
            marks,
            env.rank is not None or (rank is not None and env.gpu is not None),
        )
        counters.read(line, rank, not whole)
        yield from _pairs(source, line)
    for rank, writer in writers.items():
        _settle(writer, notices)
        yield from _events(source, rank, writer)
    yield from counters.events(source)


def _lines(samples: tuple[Sample, ...], style: Style, most: int) -> Iterator[tuple[Line, int]]:
    head = int(most * HEAD_SHARE)
    # where few lines are read, each is looked into for a step
    asked_all = interest.STEP if most < LINES else 0
    for i, sample in enumerate(samples):
        data = sample.text
        marks = interest.Marks(data, asked_all)
        if len(samples) == 1:
            wanted = _starts(data, head, most - head)
        else:
            wanted = _starts(data, head, 0, most - head) if i == 0 else _starts(data, 0, most - head)
        if asked_all:
            wanted |= marks.picked()
        number, at = sample.line, 0
        for start in sorted(wanted):
            number, at = number + data.count(b"\n", at, start), start
            end = data.find(b"\n", start)
            raw = data[start : end if end >= 0 else len(data)]
            text = visible(decode(raw[:4096] if b"\r" not in raw else raw[-4096:]))
            yield Line(number, bare(text), peel(text, style)), marks.of(start, start + len(raw)) | asked_all


def _starts(data: bytes, first: int, last: int, all_of: int = 0) -> set[int]:
    """Where the first and the last lines begin;
    all lines, if they are no more than `first + last` or `all_of`."""
    found: list[int] = []
    at = 0
    while at < len(data) and len(found) <= max(first + last, all_of):
        found.append(at)
        at = data.find(b"\n", at) + 1 or len(data)
    if len(found) <= max(first + last, all_of):
        return set(found)
    out, end = set(found[:first]), len(data) - data.endswith(b"\n")
    for _ in range(last):
        out.add(start := data.rfind(b"\n", 0, end) + 1)
        end = start - 1
    return out


def _read(writer: _Writer, line: Line, marks: int, own: bool) -> None:
    """`own`: the pid on the line is the rank's, because it names the rank,
    or NCCL wrote it into the rank's file."""
    body = line.envelope.body
    if not _KEEPER.match(body):
        if line.envelope.stamp is not None and writer.first is None:
            writer.first = line
        writer.last = line
    if marks & interest.STEP:
        if writer.first_step is None and (step := _step(body)):
            writer.first_step = (line, step[0])
        writer.steps.append(line)
    if marks & interest.BYE:
        writer.goodbyes.append(line)
    if (
        marks & interest.NOTICE
        and len(writer.notices) < MAX_NOTICES
        and _NOTICE.search(body)
        and not _BENIGN.search(body)
    ):
        writer.notices.append(line)
    if marks & interest.MILESTONE:
        writer.milestones.append(line)
    _introduce(writer, line, bool(marks & interest.FACTS), own)


def _settle(writer: _Writer, notices: int) -> None:
    """Find the last step, the last milestone, and the goodbye that no step came after;
    keep the last notices where few may stay."""
    writer.notices = writer.notices[-notices:]
    for line in reversed(writer.steps):
        if step := _step(line.envelope.body):
            writer.last_step = (line, step[0])
            break
        if (
            writer.went_on is None
            and _LOSS.search(line.envelope.body)
            and not _KEEPER.search(line.envelope.body)
        ):
            writer.went_on = line
    for line in reversed(writer.goodbyes):
        if writer.last_step is not None and line.number < writer.last_step[0].number:
            break
        body = line.envelope.body
        if (
            _GOODBYE.search(body)
            and not _NOT_GOODBYE.search(_NO_ERROR.sub("", body))
            and not _KEEPER.search(body)
        ):
            writer.finished = line
            break
    if writer.finished is None and writer.last is not None and _DONE.search(writer.last.envelope.body):
        writer.finished = writer.last
    writer.milestone = next(
        (line for line in reversed(writer.milestones) if _MILESTONE.search(line.envelope.body)), None
    )


def _introduce(writer: _Writer, line: Line, marked: bool, own: bool) -> None:
    body = line.envelope.body
    facts = writer.facts
    if marked and (
        "rank " in body
        or "Rank " in body
        or "rank=" in body
        or "world" in body
        or "pid" in body
        or "torch" in body
        or "NCCL version" in body
    ):
        _learn(facts, body)
    if line.envelope.world is not None:
        facts.setdefault("world", line.envelope.world)
    for name, value in (("pid", line.envelope.pid), ("gpu", line.envelope.gpu)):
        if value is not None and own:
            facts.setdefault(name, value)
    if facts and writer.facts_line is None:
        writer.facts_line = line


def _learn(facts: dict[str, object], body: str) -> None:
    if m := _OF.search(body):
        if facts.setdefault("said_rank", int(m["rank"])) != int(m["rank"]):
            facts["said_rank"] = None  # several ranks write here and their lines do not say which
        facts.setdefault("world", int(m["world"]))
        if p := _PID.search(body):
            facts.setdefault("pid", int(p["pid"]))
    elif m := _WORLD.search(body):
        facts.setdefault("world", int(m["world"]))
    if m := _BUS.search(body):
        facts.setdefault("bus", m["bus"])
    if m := _VERSION.search(body):
        for name in ("torch", "nccl"):
            if m[name]:
                facts.setdefault(name, m[name])


def _step(body: str) -> tuple[int] | None:
    if (m := _EPOCH_STEP.search(body)) and not _PREPARING.match(body):
        step = int(m["step"] or m["bar"])
    elif m := _STEP.search(body):
        step = int(m["step"])
    else:
        return None
    return None if _KEEPER.search(body) or (_PLANNED.search(body) and not _LOSS.search(body)) else (step,)


def _pairs(source: Source, line: Line) -> Iterator[Event]:
    """Ray Train prints the whole map: (ip=192.0.2.2, pid=23762) world_rank=1, local_rank=1."""
    if "world_rank=" in line.text and (m := _RANK_PAIR.search(line.text)):
        fields: dict[str, object] = {
            "pid": int(m["pid"]),
            "said_rank": int(m["rank"]),
            "local_rank": int(m["local"]),
        }
        yield _event(source, "identity", line, int(m["rank"]), fields)._replace(
            pid=int(m["pid"]), host=m["ip"]
        )


def _events(source: Source, rank: int | None, writer: _Writer) -> Iterator[Event]:
    if writer.facts and writer.facts_line:
        who = rank if rank is not None else writer.facts.get("said_rank")
        if source.kind in ("console", "json-lines", "ray") or rank is not None:
            yield _event(
                source,
                "identity",
                writer.facts_line,
                who if isinstance(who, int) else None,
                dict(writer.facts),
            )
    if writer.first:
        yield _event(source, "line", writer.first, rank, {"first": True})
    if writer.first_step and writer.last_step:
        for line, step in (writer.first_step, writer.last_step):
            fields: dict[str, object] = {"step": step}
            if m := _LOSS.search(line.envelope.body):
                fields["loss"] = m["loss"]
            yield _event(source, "progress", line, rank, fields)
    if writer.went_on and (m := _LOSS.search(writer.went_on.envelope.body)):
        yield _event(source, "progress", writer.went_on, rank, {"loss": m["loss"]})
    for line in writer.notices:
        yield _event(source, "notice", line, rank, {})
    if writer.finished:
        yield _event(source, "finished", writer.finished, rank, {})
    if writer.milestone and writer.milestone is not writer.last:
        yield _event(source, "line", writer.milestone, rank, {"milestone": True})
    if writer.last:
        yield _event(source, "line", writer.last, rank, {"last": True})


def _event(source: Source, kind: str, line: Line, rank: int | None, fields: dict[str, object]) -> Event:
    env = line.envelope
    stamp = env.stamp
    local = env.local_rank if env.local_rank is not None else source.local_rank
    if local is not None:
        fields.setdefault("local_rank", local)
    if env.line is not None and len(env.body) > len(line.text):
        fields["said"] = env.body[:1000]  # with the level that the record has beside its text
    return Event(
        kind=kind,
        where=Where(source.path, line.number, None, env.line),
        text=line.text[:1000],
        time=stamp.time if stamp else None,
        clock=stamp.clock if stamp else "none",
        sigma=stamp.sigma if stamp else 0.0,
        raw_time=stamp.raw if stamp else "",
        rank=rank,
        host=source.host or env.host,
        pid=env.pid,
        attempt=source.attempt,
        run=source.run,
        fields=fields,
        source_kind=source.kind,
        speaker=speaker_in(source.kind, env.kernel, rank, env.program),
    )
