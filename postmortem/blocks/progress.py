"""Events of ordinary lines: identities, progress, last lines, goodbyes.

    2026-11-20 21:02:50,001 INFO [rank1] train: process group ready: rank 1 of 3, pid 23160
    2026-11-20 21:02:56,633 INFO [rank1] train: epoch 0 step 15 loss 2.2822
    node7:4063850:4063871 [0] NCCL INFO ncclCommInitRank comm 0x24 rank 1 nranks 2 ... - Init COMPLETE

In: the samples of one source (its begin and end). Out: for every writer in it one `identity`, the first and
last `progress`, a `finished`, its last `line`, the last signs of work (`worked`), the lines where it began
`anew`, and marks for the comparison of clocks (see `counters`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from postmortem.blocks import ends, interest, introductions, sentences, signs
from postmortem.blocks.counters import Counters
from postmortem.formats import forms
from postmortem.formats.envelope import Envelope, Style, peel
from postmortem.formats.excerpt import Line, decode, starts_of_lines, visible
from postmortem.formats.marks import bare
from postmortem.model import Event, Sample, Source, Where, speaker_in
from postmortem.privacy import cut

LINES = 1000  # of a source; fewer where there are thousands of sources
HEAD_SHARE = 0.4  # the rest from its end
RESULT = 8  # last lines of a writer that may be a result
TAIL = 64  # last lines of a writer in which a table may be repeated
ANEW = 24  # restarts of a count that are reported
LAUNCHES = 8  # starts of one script that are reported
COUNTS, COUNTED = (24, 96), 64  # first and last lines in which counts are followed; the most names of counts
TURNS, OPENING = 1, 12  # distance between copies of one opening line; letters of an opening line
MAX_NOTICES = 60
_MILESTONE = forms.regexes("blocks/signs")["milestone"]


@dataclass
class _Writer:
    """One rank (or the nameless rest) of a source."""

    first: Line | None = None
    last: Line | None = None
    first_step: tuple[Line, int] | None = None
    last_step: tuple[Line, int] | None = None
    loss: Line | None = None  # without the number of a step, after the last step with one
    finished: Line | None = None
    grew: Line | None = None  # the last line with a count that is larger than before
    answered: Line | None = None
    up: Line | None = None  # a server reported that it runs
    counted: dict[str, int] = field(default_factory=dict)
    counting: int = 0  # lines that may have counts
    counting_last: deque[Line] = field(default_factory=lambda: deque(maxlen=COUNTS[1]))
    fell: list[tuple[Line, int]] = field(default_factory=list)  # a count restarted; the line where it last grew
    anew: list[Line] = field(default_factory=list)  # copies of the first line
    opening: str = ""  # the first line, without its numbers
    opened: int = 0  # the number of its last copy
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=TAIL))
    notices: list[Line] = field(default_factory=list)
    milestone: Line | None = None
    steps: list[Line] = field(default_factory=list)  # lines that may have a step
    goodbyes: list[Line] = field(default_factory=list)
    milestones: list[Line] = field(default_factory=list)
    shapes: tuple[int, ...] = ()  # of its last ordinary lines
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
        )
        counters.read(line, rank, not whole)
        yield from _pairs(source, line)
    for (rank, _), writer in writers.items():
        _settle(writer, notices)
        if most >= LINES:
            writer.shapes = sentences.shapes(writer.tail)
        yield from _events(source, rank, writer)
    yield from counters.events(source)


def _nameless(env: Envelope) -> str:
    """The name of a writer without a rank: its process or pod, or its local rank."""
    return env.writer or ("" if env.local_rank is None else f"local {env.local_rank}")


def _lines(samples: tuple[Sample, ...], style: Style, most: int) -> Iterator[tuple[Line, int]]:
    head = int(most * HEAD_SHARE)
    # where few lines are read, each is searched for a step
    forced = interest.STEP if most < LINES else 0
    for i, sample in enumerate(samples):
        data = sample.text
        marks = interest.Marks(data, forced)
        if len(samples) == 1:
            wanted = starts_of_lines(data, head, most - head)
        else:
            wanted = starts_of_lines(data, head, 0, most - head) if i == 0 else starts_of_lines(data, 0, most - head)
        if forced:
            wanted |= marks.picked()
        number, at = sample.line, 0
        for start in sorted(wanted):
            number, at = number + data.count(b"\n", at, start), start
            end = data.find(b"\n", start)
            raw = data[start : end if end >= 0 else len(data)]
            text = visible(decode(raw[:4096] if b"\r" not in raw else raw[-4096:]))
            yield Line(number, bare(text), peel(text, style)), marks.of(start, start + len(raw)) | forced


def _read(writer: _Writer, line: Line, marks: int, own: bool) -> None:
    """Update a writer by a line; `own`: the pid of the line is that of the rank."""
    body = line.envelope.body
    if not signs.is_foreign(body):
        if line.envelope.stamp is not None and writer.first is None:
            writer.first = line
        writer.last = line
        writer.tail.append(line)
        _open(writer, line)
    if marks & interest.STEP:
        if writer.first_step is None and (step := signs.step(body)) is not None:
            writer.first_step = (line, step)
        writer.steps.append(line)
    if marks & (interest.STEP | interest.COUNT):
        if writer.counting < COUNTS[0]:
            _count(writer, line)
        else:
            writer.counting_last.append(line)
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
    """Find copies of a writer's first line: a script that is started twice appends to its log. A line with a
    count is no opening, and one that comes often is no start."""
    shape = sentences.NUMBERS.sub("N", line.envelope.body.strip())[:120]
    if not writer.opening:
        begins = "(most recent call " not in shape and not signs.has_error(shape)
        unique = sum(map(str.isalpha, shape)) >= OPENING and not any(signs.counts(line.envelope.body))
        writer.opening, writer.opened = shape if begins and unique else "-", line.number
    elif shape == writer.opening:
        if line.number - writer.opened > TURNS and len(writer.anew) < ANEW:
            writer.anew.append(line)
        writer.opened = line.number


def _count(writer: _Writer, line: Line) -> None:
    """Follow the counts of a line: work where one grows, a restart where one falls to 0 or 1, or a new one begins."""
    grew = writer.grew
    for name, value in signs.counts(line.envelope.body):
        before = writer.counted.get(name, 0)
        begins = value < before or (name not in writer.counted and grew is not None)
        if begins and value <= 1 and len(writer.fell) < ANEW:
            writer.fell.append((line, grew.number if grew else 0))
        if value > before:
            writer.grew = line
        if name in writer.counted or len(writer.counted) < COUNTED:
            writer.counted[name] = value


def _serve(writer: _Writer, line: Line) -> None:
    if signs.answers(line.envelope.body):
        writer.answered = line
    elif signs.serves(line.envelope.body):
        writer.up = line


def _settle(writer: _Writer, notices: int) -> None:
    """Find the last step, the last milestone, the goodbye after which no count grew, and the last notices."""
    for line in writer.counting_last:
        _count(writer, line)
    last = [line for line in _last(writer) if signs.troubled(line.envelope.body)]
    writer.notices = writer.notices[-notices:]
    writer.notices += [line for line in last if line not in writer.notices]
    for line in reversed(writer.steps):
        body = line.envelope.body
        if (step := signs.step(body)) is not None:
            writer.last_step = (line, step)
            break
        sums_up = signs.is_foreign(body) or signs.is_summary(body)
        if writer.loss is None and signs.LOSS.search(body) and not sums_up:
            writer.loss = line
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
    """Events about the process of a rank: its end, its pid; of Ray's map those of all ranks."""
    body = line.envelope.body
    end = ends.end_in(body, line.envelope.rank, line.envelope.writer)
    if end and not signs.is_foreign(body) and line.envelope.gpu is None:  # srun and NCCL have patterns
        exit_: dict[str, object] = {"exitcode": str(end.code), "told_by": "script"}
        event = _event(source, "exit", line, end.rank, exit_)
        yield event._replace(pid=end.pid or event.pid, speaker="launcher", severity="error" if end.code else "info")
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
    if writer.loss and (m := signs.LOSS.search(writer.loss.envelope.body)):
        yield _event(source, "progress", writer.loss, rank, {"loss": m["loss"]})
    yield from (_event(source, "notice", line, rank, _error(line)) for line in writer.notices)
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
            {"last": True} | ({"words": writer.shapes} if writer.shapes else {}) | _error(writer.last)
        )
        yield _event(source, "line", writer.last, rank, fields)


def _error(line: Line) -> dict[str, object]:
    """Mark a line that reports an error and does not quote one (`> ValueError: …`)."""
    error = signs.has_error(line.envelope.body) or signs.has_error(line.text)
    return {"cries": True} if error and not line.text.lstrip().startswith(">") else {}


def _worked(writer: _Writer) -> Iterator[tuple[str, Line]]:
    """The last signs of work of a writer, by kind."""
    for by, line in (("count", writer.grew), ("loss", writer.loss), ("answer", writer.answered), ("up", writer.up)):
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
        fields["said"] = cut(env.body, 1000)  # with the level of its record
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
