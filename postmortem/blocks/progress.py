"""What ordinary lines tell: who is which rank, how far it came, when it spoke, whether it said goodbye.

    2026-11-20 21:02:50,001 INFO [rank1] train: process group ready: rank 1 of 3, pid 23160
    2026-11-20 21:02:56,633 INFO [rank1] train: epoch 0 step 15 loss 2.2822
    node7:4063850:4063871 [0] NCCL INFO ncclCommInitRank comm 0x24 rank 1 nranks 2 ... - Init COMPLETE

In: the samples of one source (its head and tail). Out: for every writer in it one `identity`, the first and
last `progress`, a `finished`, its last `line`, the last sign that it worked (`worked`), where it began `anew`,
and what clocks can be compared by (see `counters`). What is a sign of what stands in `signs`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from postmortem.blocks import ends, interest, introductions, signs, words
from postmortem.blocks.counters import Counters
from postmortem.blocks.statements import Statements
from postmortem.formats.envelope import Envelope, Style, peel
from postmortem.formats.excerpt import Line, decode, starts_of_lines, visible
from postmortem.formats.marks import bare
from postmortem.model import Event, Sample, Source, Where, speaker_in
from postmortem.privacy import cut

LINES = 1000  # of a source; fewer where there are thousands of sources
HEAD_SHARE = 0.4  # the rest from its end
RESULT = 8  # last lines of a writer, among which a result may stand
TAIL = 64  # and among which a table may be printed again and again
ANEW = 24  # new beginnings that are told
LAUNCHES = 8  # of one script that are told apart
COUNTS, COUNTED = (24, 96), 64  # first and last lines in which counts are followed, and by how many names
TURNS, OPENING = 1, 12  # lines within which several say the same at one start; letters of one known again

MAX_NOTICES, _NUMBERS = 60, re.compile(r"\d+")
_MILESTONE = re.compile(
    (
        r"\b(?:epoch|shard|phase|round|stage)\b[^.]{0,30}\b(?:finished|done|complete[d]?|end(?:ed)?)\b"
        r"|\b\d+ batches\b"
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
    grew: Line | None = None  # the last line with a count that is larger than before
    answered: Line | None = None
    up: Line | None = None  # a server said that it runs
    counted: dict[str, int] = field(default_factory=dict)
    counting: int = 0  # lines that may count
    late: deque[Line] = field(default_factory=lambda: deque(maxlen=COUNTS[1]))  # the last of them
    fell: list[tuple[Line, int]] = field(default_factory=list)  # a count, to its beginning; where it last grew
    anew: list[Line] = field(default_factory=list)  # where the first line came again
    opening: str = ""  # the first line, without its numbers
    opened: int = 0  # where it stood last
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=TAIL))
    notices: list[Line] = field(default_factory=list)
    milestone: Line | None = None
    steps: list[Line] = field(default_factory=list)  # may name one; the last that does is looked for
    goodbyes: list[Line] = field(default_factory=list)
    milestones: list[Line] = field(default_factory=list)
    stated: Statements = field(default_factory=Statements)
    words: tuple[int, ...] = ()  # the shapes of its last ordinary lines, as numbers
    facts: dict[str, object] = field(default_factory=dict)
    facts_line: Line | None = None


def parse(source: Source, samples: tuple[Sample, ...], style: Style, most: int = LINES) -> Iterator[Event]:
    """Read the samples of a console-like source, of each of them at most about `most` lines."""
    writers: dict[tuple[int | None, str], _Writer] = {}
    counters = Counters()
    notices = max(1, MAX_NOTICES * most // LINES)
    number, whole = 0, True
    for line, marks in _lines(samples, style, most):
        whole, number = whole and line.number == number + 1, line.number
        env = line.envelope
        if not line.text.strip() or env.kernel or (source.kind == "kernel" and not env.program):
            continue
        rank = env.rank if env.rank is not None else source.rank
        _read(
            writers.setdefault((rank, _nameless(env) if rank is None else ""), _Writer()),
            line,
            marks,
            env.rank is not None or (rank is not None and env.gpu is not None),
            most >= LINES,
        )
        counters.read(line, rank, not whole)
        yield from _pairs(source, line)
    for (rank, _), writer in writers.items():
        _settle(writer, notices)
        if most >= LINES:
            writer.words = words.shapes(writer.tail)
        yield from _events(source, rank, writer)
    yield from counters.events(source)


def _nameless(env: Envelope) -> str:
    """What tells a writer without a rank from the others: its process or pod, or its local rank."""
    return env.writer or ("" if env.local_rank is None else f"local {env.local_rank}")


def _lines(samples: tuple[Sample, ...], style: Style, most: int) -> Iterator[tuple[Line, int]]:
    head = int(most * HEAD_SHARE)
    # where few lines are read, each is looked into for a step
    asked_all = interest.STEP if most < LINES else 0
    for i, sample in enumerate(samples):
        data = sample.text
        marks = interest.Marks(data, asked_all)
        if len(samples) == 1:
            wanted = starts_of_lines(data, head, most - head)
        else:
            wanted = starts_of_lines(data, head, 0, most - head) if i == 0 else starts_of_lines(data, 0, most - head)
        if asked_all:
            wanted |= marks.picked()
        number, at = sample.line, 0
        for start in sorted(wanted):
            number, at = number + data.count(b"\n", at, start), start
            end = data.find(b"\n", start)
            raw = data[start : end if end >= 0 else len(data)]
            text = visible(decode(raw[:4096] if b"\r" not in raw else raw[-4096:]))
            yield Line(number, bare(text), peel(text, style)), marks.of(start, start + len(raw)) | asked_all


def _read(writer: _Writer, line: Line, marks: int, own: bool, compared: bool) -> None:
    """`own`: the pid on the line is the rank's: the line names it, or NCCL wrote it into the rank's file.
    `compared`: enough lines of each log are read to compare what ranks say."""
    body = line.envelope.body
    if not signs.of_a_keeper(body):
        if line.envelope.stamp is not None and writer.first is None:
            writer.first = line
        writer.last = line
        writer.tail.append(line)
        if compared:
            writer.stated.read(line)
        _open(writer, line)
    if marks & interest.STEP:
        if writer.first_step is None and (step := signs.step(body)) is not None:
            writer.first_step = (line, step)
        writer.steps.append(line)
    if marks & (interest.STEP | interest.COUNT):
        if writer.counting < COUNTS[0]:
            _count(writer, line)
        else:
            writer.late.append(line)
        writer.counting += 1
    if marks & interest.ANSWER:
        _serve(writer, line)
    if marks & interest.BYE:
        writer.goodbyes.append(line)
    if marks & interest.NOTICE and len(writer.notices) < MAX_NOTICES and signs.complains(body):
        writer.notices.append(line)
    if marks & interest.MILESTONE:
        writer.milestones.append(line)
    _introduce(writer, line, bool(marks & interest.FACTS), own)


def _open(writer: _Writer, line: Line) -> None:
    """Know the first line of a writer again: who starts a script twice appends its log to the first one's.
    One that counts is no opening, and one that comes often is no start."""
    said = _NUMBERS.sub("N", line.envelope.body.strip())[:120]
    if not writer.opening:
        begins = "(most recent call " not in said and not signs.cries(said)
        telling = sum(map(str.isalpha, said)) >= OPENING and not any(signs.counts(line.envelope.body))
        writer.opening, writer.opened = said if begins and telling else "-", line.number
    elif said == writer.opening:
        if line.number - writer.opened > TURNS and len(writer.anew) < ANEW:
            writer.anew.append(line)
        writer.opened = line.number


def _count(writer: _Writer, line: Line) -> None:
    """Follow what a line counts: it gets on where a count grows, and begins anew where one falls to its
    beginning."""
    for name, value in signs.counts(line.envelope.body):
        before = writer.counted.get(name, 0)
        if value > before:
            writer.grew = line
        elif value < before and value <= 1 and len(writer.fell) < ANEW:
            writer.fell.append((line, writer.grew.number if writer.grew else 0))
        if name in writer.counted or len(writer.counted) < COUNTED:
            writer.counted[name] = value


def _serve(writer: _Writer, line: Line) -> None:
    if signs.answers(line.envelope.body):
        writer.answered = line
    elif signs.serves(line.envelope.body):
        writer.up = line


def _settle(writer: _Writer, notices: int) -> None:
    """Find the last step, the last milestone, and the goodbye that no step came after; keep the last notices
    where few may stay."""
    for line in writer.late:
        _count(writer, line)
    late = [line for line in _last(writer) if signs.troubled(line.envelope.body)]
    writer.notices = writer.notices[-notices:]
    writer.notices += [line for line in late if line not in writer.notices]
    for line in reversed(writer.steps):
        body = line.envelope.body
        if (step := signs.step(body)) is not None:
            writer.last_step = (line, step)
            break
        sums_up = signs.of_a_keeper(body) or signs.closes(body)
        if writer.went_on is None and signs.LOSS.search(body) and not sums_up:
            writer.went_on = line
    for line in reversed(writer.goodbyes):
        if writer.grew is not None and line.number < writer.grew.number:
            break
        if signs.goodbye(line.envelope.body):
            writer.finished = line
            break
    if writer.finished is None and writer.last is not None and signs.done(writer.last.envelope.body):
        writer.finished = writer.last
    writer.milestone = next(
        (line for line in reversed(writer.milestones) if _MILESTONE.search(line.envelope.body)), None
    )


def _introduce(writer: _Writer, line: Line, marked: bool, own: bool) -> None:
    body = line.envelope.body
    facts = writer.facts
    if marked:
        introductions.learn(facts, body)
    if line.envelope.world is not None:
        facts.setdefault("world", line.envelope.world)
    for name, value in (("pid", line.envelope.pid), ("gpu", line.envelope.gpu)):
        if value is not None and own:
            facts.setdefault(name, value)
    if facts and writer.facts_line is None:
        writer.facts_line = line


def _pairs(source: Source, line: Line) -> Iterator[Event]:
    """What a line says of a rank's process; only Ray's map speaks for the whole job."""
    body = line.envelope.body
    end = ends.told(body, line.envelope.rank, line.envelope.writer)
    if end and not signs.of_a_keeper(body) and line.envelope.gpu is None:  # srun and NCCL word it themselves
        told: dict[str, object] = {"exitcode": str(end.code), "told_by": "script"}
        who = _event(source, "exit", line, end.rank, told)
        yield who._replace(pid=end.pid or who.pid, speaker="launcher", severity="error" if end.code else "info")
    if one := introductions.member(line.envelope):
        yield _event(source, "pid", line, None, {"pid": one.pid, "member": one.number, "of": one.world})
    found = introductions.named(line.text, line.envelope)
    if found is None:
        return
    fields: dict[str, object] = {"pid": found.pid, "said_rank": found.rank}
    if found.world is not None and source.kind == "run":  # of which nothing else is read
        fields["world"] = found.world
    if found.local_rank is None:
        yield _event(source, "pid", line, found.rank, fields)
    else:
        fields["local_rank"] = found.local_rank
        yield _event(source, "identity", line, found.rank, fields)._replace(pid=found.pid, host=found.host)


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
            m = signs.LOSS.search(line.envelope.body)
            yield _event(source, "progress", line, rank, {"step": step} | ({"loss": m["loss"]} if m else {}))
    if writer.went_on and (m := signs.LOSS.search(writer.went_on.envelope.body)):
        yield _event(source, "progress", writer.went_on, rank, {"loss": m["loss"]})
    yield from (_event(source, "notice", line, rank, _cry(line)) for line in writer.notices)
    if writer.finished:
        last_word = signs.last_word(writer.finished.envelope.body)
        yield _event(source, "finished", writer.finished, rank, {"last_word": True} if last_word else {})
    for by, line in _worked(writer):
        yield _event(source, "worked", line, rank, {"by": by})
    for line, grew in writer.fell:
        yield _event(source, "anew", line, rank, {"grew": grew})
    for line in writer.anew if len(writer.anew) <= LAUNCHES else ():
        yield _event(source, "anew", line, rank, {"first": True})
    if writer.milestone and writer.milestone is not writer.last:
        yield _event(source, "line", writer.milestone, rank, {"milestone": True})
    if writer.last:
        fields: dict[str, object] = (
            {"last": True} | ({"words": writer.words} if writer.words else {}) | _cry(writer.last)
        )
        fields |= {"stated": told} if (told := writer.stated.told()) else {}
        yield _event(source, "line", writer.last, rank, fields)


def _cry(line: Line) -> dict[str, object]:
    """Mark a line that tells of an error, and quotes none (`> ValueError: …`)."""
    cries = signs.cries(line.envelope.body) or signs.cries(line.text)
    return {"cries": True} if cries and not line.text.lstrip().startswith(">") else {}


def _worked(writer: _Writer) -> Iterator[tuple[str, Line]]:
    """The last signs that a writer worked, each with its kind."""
    for by, line in (
        ("count", writer.grew),
        ("loss", writer.went_on),
        ("answer", writer.answered),
        ("up", writer.up),
    ):
        if line is not None:
            yield by, line
    if found := next((line for line in reversed(_last(writer)) if signs.result(line.envelope.body)), None):
        yield "result", found
    bodies = [line.envelope.body for line in writer.tail] if writer.grew is None else []
    for by, at in (("count", signs.series(bodies)), ("rounds", signs.rounds(bodies))):
        if at is not None:
            yield by, writer.tail[at]


def _last(writer: _Writer) -> list[Line]:
    return list(writer.tail)[-RESULT:]


def _event(source: Source, kind: str, line: Line, rank: int | None, fields: dict[str, object]) -> Event:
    env = line.envelope
    stamp = env.stamp
    local = env.local_rank if env.local_rank is not None else source.local_rank
    if local is not None:
        fields.setdefault("local_rank", local)
    if env.writer:
        fields.setdefault("writer", env.writer)
    if env.line is not None and len(env.body) > len(line.text):
        fields["said"] = cut(env.body, 1000)  # with the level that the record has beside its text
    return Event(
        kind=kind,
        where=Where(source.path, line.number, None, env.line),
        text=cut(line.text, 1000),
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
