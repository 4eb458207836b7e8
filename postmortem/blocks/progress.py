"""Events of ordinary lines: identities, progress, last lines, completions.

    2026-11-20 21:02:50,001 INFO [rank1] train: process group ready: rank 1 of 3, pid 23160
    2026-11-20 21:02:56,633 INFO [rank1] train: epoch 0 step 15 loss 2.2822
    node7:4063850:4063871 [0] NCCL INFO ncclCommInitRank comm 0x24 rank 1 nranks 2 ... - Init COMPLETE

In: the samples of one source (its begin and end). Out: for every writer in it one `identity`, the first and
last `progress`, a `finished`, its last `line`, the last signs of work (`worked`), the lines where it began
`restart`, and marks for the comparison of clocks (see `counters`). Of the whole source, the ids of its `job`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from postmortem.blocks import identities, measures, signs
from postmortem.blocks.counters import Counters
from postmortem.formats import jobs
from postmortem.formats.envelope import Envelope, Style, peel
from postmortem.formats.excerpt import Line, decode, line_event, starts_of_lines, visible
from postmortem.formats.marks import bare
from postmortem.model import Event, EventKind, Sample, Source
from postmortem.model.details import Details
from postmortem.system import forms

LINES = 1000  # of a source; fewer where there are thousands of sources
FULL = 100  # of a source of which the values of the steps are read, too
HEAD_SHARE = 0.4  # the rest from its end
SHOWN = 1000  # characters of a line
RESULT = 8  # last lines of a writer that may be a result
TAIL = 64  # last lines of a writer in which a table may be repeated
SHAPES, ONCE = 512, (8, 16)  # shapes of lines that are remembered; first and last lines that came once
OF_ERRORS = ("(most recent call ", "what():")  # heads of tracebacks, and the message of an uncaught C++ exception
RESTARTS = 24  # restarts of a count and starts of one script that are reported
BEATS = 8  # copies of a line right below each other: it is no opening line
COUNTS, COUNTED = (24, 96), 64  # first and last lines in which counts are followed; the most names of counts
TURNS, OPENING, BANNER = 1, 12, 4  # between copies of an opening line; its letters; the lines among which it is
MAX_NOTICES = 60
MAX_NAMES = 40  # ids of jobs in a source
_MILESTONE = forms.regexes("blocks/signs")["milestone"]


@dataclass
class _Writer:
    """One rank (or the nameless rest) of a source, as read so far."""

    first: Line | None = None
    last: Line | None = None
    first_step: tuple[Line, int] | None = None
    grew: Line | None = None  # the last line with a count that is larger than before
    grown: deque[int] = field(default_factory=lambda: deque(maxlen=signs.ENOUGH))  # the numbers of the last such lines
    full: bool = False  # in that line a count reached its total
    answered: Line | None = None
    up: Line | None = None  # a server reported that it runs
    counted: dict[str, int] = field(default_factory=dict)
    counting: int = 0  # lines that may have counts
    counting_last: deque[Line] = field(default_factory=lambda: deque(maxlen=COUNTS[1]))
    fell: list[tuple[Line, int]] = field(default_factory=list)  # a count restarted; the line where it last grew
    openings: deque[Line] = field(default_factory=lambda: deque(maxlen=RESTARTS))  # the last copies of the opening line
    opening: str = ""  # the first line of its own words, without its numbers
    opened: int = 0  # the number of its last copy
    banner: int = 0  # lines that could have been it
    beats: int = 0  # its copies right below each other
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=TAIL))
    once: dict[str, Line | None] = field(default_factory=dict)  # by shape; None for a shape that came again
    notices: list[Line] = field(default_factory=list)
    steps: list[Line] = field(default_factory=list)  # lines that may have a step
    completions: list[Line] = field(default_factory=list)
    milestones: list[Line] = field(default_factory=list)
    facts: Details = field(default_factory=Details)
    facts_line: Line | None = None


def parse(source: Source, samples: tuple[Sample, ...], style: Style, most: int = LINES) -> Iterator[Event]:
    """Read the samples of a console-like source, of each of them at most about `most` lines."""
    writers: dict[tuple[int | None, str], _Writer] = {}
    counters, named = Counters(), dict[tuple[str, str, int], Line]()
    number, whole = 0, True
    for line, flags in _lines(samples, style, most):
        whole, number = whole and line.number == number + 1, line.number
        env = line.envelope
        if not line.text.strip() or env.kernel or (source.kind == "kernel" and not env.program):
            continue
        rank = env.rank if env.rank is not None else source.rank
        key = (rank, _nameless(env) if rank is None else "")
        writer = writers.get(key)
        if writer is None:
            writer = writers[key] = _Writer()
        look = signs.look(env.body)
        _read(writer, line, look, flags, env.rank is not None or (rank is not None and env.gpu is not None))
        counters.read(line, look.counter, rank, not whole)
        nameless = env.rank is None and (env.writer or "ank " in env.body)
        if look.ends or nameless or "pid" in line.text.lower():
            yield from _pairs(source, line)
        if flags & signs.JOB:
            for kind, name in jobs.ids(env.body).items():
                named.setdefault((kind, name, line.number if kind == jobs.COMMAND else 0), line)
    for (rank, _), writer in writers.items():
        for kind, line, fields in _found(writer, most):
            if kind != "identity":
                yield line_event(source, kind, line, rank, fields, SHOWN)
            elif source.kind in ("console", "json-lines", "ray") or rank is not None:
                who = rank if rank is not None else fields.get("stated_rank")
                yield line_event(source, kind, line, who, fields, SHOWN)
    for (kind, name, _), line in islice(named.items(), MAX_NAMES):
        yield line_event(source, "job", line, None, {"job_name": (kind, name)}, SHOWN)
    yield from counters.events(source)


def _nameless(env: Envelope) -> str:
    """The name of a writer without a rank: its process or pod, or its local rank."""
    return env.writer or ("" if env.local_rank is None else f"local {env.local_rank}")


def _lines(samples: tuple[Sample, ...], style: Style, most: int) -> Iterator[tuple[Line, int]]:
    """The first and the last lines of the samples, with their flags."""
    head = int(most * HEAD_SHARE)
    # where few lines are read, each is searched for a step and for counts
    forced = signs.STEP | signs.COUNT if most < LINES else 0
    for i, sample in enumerate(samples):
        data = sample.text
        flags = signs.Flags(data, forced)
        if len(samples) == 1:
            wanted = starts_of_lines(data, head, most - head)
        else:
            wanted = starts_of_lines(data, head, 0, most - head) if i == 0 else starts_of_lines(data, 0, most - head)
        if forced:
            wanted |= flags.picked()
        number, at = sample.line, 0
        for start in sorted(wanted):
            number, at = number + data.count(b"\n", at, start), start
            end = data.find(b"\n", start)
            raw = data[start : end if end >= 0 else len(data)]
            text = visible(decode(raw[:4096] if b"\r" not in raw else raw[-4096:]))
            yield Line(number, bare(text), peel(text, style)), flags.of(start, start + len(raw)) | forced


def _read(writer: _Writer, line: Line, look: signs.Look, flags: int, own: bool) -> None:
    """Update a writer by a line; `own`: the pid of the line is that of the rank."""
    env = line.envelope
    if not look.foreign:
        if env.stamp is not None and writer.first is None:
            writer.first = line
        writer.last = line
        writer.tail.append(line)
        if look.shape in writer.once or len(writer.once) < SHAPES:
            writer.once[look.shape] = None if look.shape in writer.once else line
        if look.shape == writer.opening:
            _reopen(writer, line)
        elif not writer.opening and not look.setup:
            _open(writer, line, look)
    if flags & signs.STEP:
        if writer.first_step is None and (step := signs.step(env.body)) is not None:
            writer.first_step = (line, step)
        writer.steps.append(line)
    if flags & (signs.STEP | signs.COUNT):
        if writer.counting >= COUNTS[0]:
            writer.counting_last.append(line)
        elif look.counts:
            _count(writer, line)
        writer.counting += 1
    if flags & signs.ANSWER:
        if signs.SIEVE["answer"].search(env.body):
            writer.answered = line
        elif signs.SIEVE["serves"].search(env.body):
            writer.up = line
    if flags & signs.END:
        writer.completions.append(line)
    if flags & signs.NOTICE and look.complains and len(writer.notices) < MAX_NOTICES and signs.complains(env.body):
        writer.notices.append(line)
    if flags & signs.MILESTONE:
        writer.milestones.append(line)
    if flags & signs.FACTS:
        identities.learn(writer.facts, env.body)
    if env.world is not None:
        writer.facts.setdefault("world", env.world)
    if own and env.pid is not None:
        writer.facts.setdefault("pid", env.pid)
    if writer.facts and writer.facts_line is None:
        writer.facts_line = line


def _open(writer: _Writer, line: Line, look: signs.Look) -> None:
    """Take a writer's opening line, one of its first lines that has words and neither a count nor a loss; an error is
    none."""
    writer.banner += 1
    of_error = any(word in look.shape for word in OF_ERRORS) or signs.has_error(look.shape)
    measured = "loss" in look.shape or "Loss" in look.shape
    unique = not measured and sum(map(str.isalpha, look.shape)) >= OPENING and not signs.counts(line.envelope.body)
    if unique and not of_error:
        writer.opening, writer.opened = look.shape, line.number
    elif of_error or writer.banner >= BANNER:
        writer.opening = "-"


def _reopen(writer: _Writer, line: Line) -> None:
    """Find copies of a writer's opening line: a script that is started twice appends to its log. A heartbeat that
    ticks on opens nothing."""
    if line.number - writer.opened > TURNS:
        writer.openings.append(line)
    else:
        writer.beats += 1
    writer.opened = line.number
    if writer.beats > BEATS:
        writer.opening = "-"
        writer.openings.clear()


def _count(writer: _Writer, line: Line) -> None:
    """Follow the counts of a line: work where one grows, a restart where one falls to 0 or 1, or a new one begins."""
    grew = writer.grew
    for name, value in signs.counts(line.envelope.body):
        before = writer.counted.get(name, 0)
        begins = value < before or (name not in writer.counted and grew is not None)
        if begins and value <= 1 and len(writer.fell) < RESTARTS:
            writer.fell.append((line, grew.number if grew else 0))
        if value > before and (name in writer.counted or signs.SIEVE["rated"].search(line.envelope.body)):
            writer.full = name == f"of {value}" or (writer.full and writer.grew is line)
            if writer.grew is not line:
                writer.grown.append(line.number)
            writer.grew = line
        if name in writer.counted or len(writer.counted) < COUNTED:
            writer.counted[name] = value


def _pairs(source: Source, line: Line) -> Iterator[Event]:
    """Events about the process of a rank: its end, its pid; of Ray's map those of all ranks."""
    env = line.envelope
    end = identities.end_in(env.body, env.rank, env.writer)
    if end and not signs.is_foreign(env.body) and env.gpu is None:  # srun and NCCL have patterns
        exit_: Details = {"exitcode": end.code, "reported_by": "script"}
        event = line_event(source, "exit", line, end.rank, exit_, SHOWN)
        yield event._replace(pid=end.pid or event.pid, speaker="launcher", severity="error" if end.code else "info")
    if one := identities.member(env):
        member: Details = {"pid": one.pid, "member": one.number, "of": one.world}
        yield line_event(source, "pid", line, None, member, SHOWN)
    found = identities.named(line.text, env)
    if found is None:
        return
    fields: Details = {"pid": found.pid, "stated_rank": found.rank}
    if found.world is not None and source.kind == "run":  # of which nothing else is read
        fields["world"] = found.world
    if found.local_rank is None:
        yield line_event(source, "pid", line, found.rank, fields, SHOWN)
        return
    event = line_event(source, "identity", line, found.rank, fields | {"local_rank": found.local_rank}, SHOWN)
    yield event._replace(pid=found.pid, host=found.host)


# ── the events of one writer ────────────────────────────────────────────────────────────────────────────────

Found = tuple[EventKind, Line, Details]  # kind, line, fields


def _found(writer: _Writer, most: int) -> Iterator[Found]:
    """The events of a writer whose last line was read."""
    for line in writer.counting_last:
        _count(writer, line)
    last = list(writer.tail)[-RESULT:]
    if writer.facts and writer.facts_line:
        yield "identity", writer.facts_line, writer.facts
    if writer.first:
        yield "line", writer.first, {"first": True}
    last_step, loss = _last_step(writer)
    if writer.first_step and last_step:
        measured = measures.series(writer.steps) if most >= FULL else None
        yield "progress", writer.first_step[0], {**_loss(writer.first_step[0]), "step": writer.first_step[1]}
        whole: Details = {"series": measured} if measured else {}
        yield "progress", last_step[0], {**_loss(last_step[0]), "step": last_step[1], **whole}
    if loss:
        yield "progress", loss, _loss(loss)
    notices = writer.notices[-max(1, MAX_NOTICES * most // LINES) :]
    notices += [line for line in last if signs.troubled(line.envelope.body) and line not in notices]
    yield from (("notice", line, _error(line)) for line in notices)
    if finished := _last_completion(writer):
        yield "finished", finished, {"last_word": True} if signs.last_word(finished.envelope.body) else {}
    if loss is None and writer.grew is None and writer.first_step and _loss(writer.first_step[0]):
        loss = writer.first_step[0]
    works = [("count", writer.grew), ("loss", loss), ("answer", writer.answered), ("up", writer.up)]
    works.append(
        ("result", next((line for line in _lines_of_results(writer) if signs.result(line.envelope.body)), None))
    )
    tail = _last_of_one_process(writer) if writer.grew is None and len(writer.tail) >= signs.ENOUGH else []
    bodies = [line.envelope.body for line in tail]
    series, rounds = [tail[i] for i in signs.series(bodies)], signs.rounds(bodies)
    works += [("count", series[-1] if series else None), ("rounds", None if rounds is None else tail[rounds])]
    writer.grown.extend(line.number for line in series)
    since: Details = {"since": writer.grown[0]} if len(writer.grown) == signs.ENOUGH else {}
    for by, at_work in works:
        if at_work is not None:
            full: Details = {"full": True} if writer.full and at_work is writer.grew else {}
            yield "worked", at_work, {"by": by, **full, **since}
    yield from (("restart", line, Details(grew=grew)) for line, grew in writer.fell)
    yield from (("restart", line, Details(first=True, alone=not writer.beats)) for line in writer.openings)
    milestones = (line for line in reversed(writer.milestones) if _MILESTONE.search(line.envelope.body))
    if (milestone := next(milestones, None)) and milestone is not writer.last:
        yield "line", milestone, {"milestone": True}
    if writer.last:
        once = _once(writer)
        lines: Details = {"once": once} if once else {}
        if (final := next(filter(signs.is_ordinary, reversed(writer.tail)), None)) is not None:
            lines["final"] = final.number, final.text[:SHOWN]
        yield "line", writer.last, {"last": True, **lines, **_error(writer.last)}


def _last_of_one_process(writer: _Writer) -> list[Line]:
    """The last lines; those of one pid where the ranks of a console are known by their pids alone (absl, glog)."""
    pid = writer.tail[-1].envelope.pid if writer.tail else None
    return [line for line in writer.tail if pid is None or line.envelope.pid in (None, pid)]


def _once(writer: _Writer) -> tuple[tuple[int, str, str], ...]:
    """Number, text and body of the first and last ordinary lines with a shape of their own."""
    lines = (line for line in writer.once.values() if line is not None and signs.is_ordinary(line))
    found = [(line.number, line.text[:SHOWN], line.envelope.body[:SHOWN]) for line in lines]
    return tuple(found[: ONCE[0]] + found[max(ONCE[0], len(found) - ONCE[1]) :])


def _lines_of_results(writer: _Writer) -> list[Line]:
    """The last lines, and those above the complaints and the library's lines with which a log may end, latest first."""
    lines = list(writer.tail)
    last = lines[-RESULT:]
    while lines and not signs.is_ordinary(lines[-1]):
        lines.pop()
    return [*reversed(last), *reversed(lines[-RESULT:])]


def _loss(line: Line) -> Details:
    m = signs.LOSS.search(line.envelope.body)
    return {"loss": m["loss"]} if m else {}


def _last_step(writer: _Writer) -> tuple[tuple[Line, int] | None, Line | None]:
    """The last line with a step and the step, and the last line after it with a loss but without a step."""
    loss = None
    for line in reversed(writer.steps):
        body = line.envelope.body
        if (step := signs.step(body)) is not None:
            return (line, step), loss
        sums_up = signs.is_foreign(body) or signs.is_summary(body)
        if loss is None and signs.LOSS.search(body) and not sums_up:
            loss = line
    return None, loss


def _last_completion(writer: _Writer) -> Line | None:
    """The last completion, if no count grew after it."""
    for line in reversed(writer.completions):
        if writer.grew is not None and line.number < writer.grew.number:
            break
        if signs.completion(line.envelope.body):
            return line
    return writer.last if writer.last and signs.SIEVE["done"].search(writer.last.envelope.body) else None


def _error(line: Line) -> Details:
    """Mark a line that reports an error and does not quote one (`> ValueError: …`)."""
    error = signs.has_error(line.envelope.body) or signs.has_error(line.text)
    return {"reports_error": True} if error and not line.text.lstrip().startswith(">") else {}
