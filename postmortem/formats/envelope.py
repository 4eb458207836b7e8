"""The prefixes of a line (launchers, loggers, collectors): rank, host, pid, time; and the rest of the line.

    [default1]:[rank3]: Traceback (most recent call last):      torchrun --tee 3: local rank 1, global rank 3
    (Worker_TP0 pid=4062) ERROR 09-05 01:18:30 [core.py:708] ... vLLM: nested processes, then its logger

Prefixes nest and repeat, so they are removed one by one; envelopes.yaml lists them. A leading "0: " is a label
only where the whole file has it (see `style`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from postmortem.formats import marks, records, times
from postmortem.formats.style import COLUMNS, HOST, LABELS, NEAR, RANKED, SRUN, Style, learn
from postmortem.model import Stamp
from postmortem.model.digits import KEPT, LONG, key_of, whole
from postmortem.system import forms, lazy


class Envelope(NamedTuple):
    """The prefixes of a line. `key` distinguishes the writers of a merged file; None is unknown."""

    body: str
    key: tuple[str, ...] = ()
    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    stamp: Stamp | None = None
    kernel: bool = False
    quoted: bool = False
    program: str = ""  # the program of a syslog or journal line, unless it is the kernel
    line: int | None = None  # of the file, where the log was unwrapped
    writer: str = ""  # a pod or process, as named by a collector or a runner


_ROWS, _REGEXES = forms.rows("formats/envelopes"), forms.regexes("formats/envelopes")
_ANSI, _TALOS = _REGEXES["ansi"], _REGEXES["talos"]
_NUMBERS = {"rank": True, "local_rank": True, "world": True, "pid": True, "host": False, "gpu": False}
_CERTAIN = re.compile(r"(?:<0{1,3}>)?\[?0{10}|<0{1,3}>0 ")  # zeros of prefixes with certain digits: of 1970, RFC 5424
_IN_TEXT = [_REGEXES[name] for name, row in _ROWS.items() if "in_text" in row]


def _any_of(*left_out: str) -> re.Pattern[str]:
    """All prefixes as one regex. Most lines have one prefix or none, so one match decides."""
    names = [name for name, row in _ROWS.items() if "prefix" in row and name not in left_out]
    unnamed = {name: re.sub(r"\(\?P<\w+>", "(?:", _ROWS[name]["regex"]) for name in names}
    return lazy.regex("|".join(f"{unnamed[name]}(?P<{name.replace('-', '_')}>)" for name in names))


_NEXT, _NEXT_UNTIMED, _NEXT_FAR = _any_of(), _any_of("stamped"), _any_of("stamped", "syslog")


def clean(text: str) -> str:
    """The line without colors, window titles and NUL bytes."""
    if "\x1b" in text or "\x00" in text:
        mark, rest = marks.mark_of(text)
        text = mark + _ANSI.sub("", rest)
    return text


@lru_cache(maxsize=1024)  # the contexts of two hits share lines
def peel(text: str, style: Style = Style()) -> Envelope:
    """Remove all prefixes of a line. Never raises; what is not a prefix stays in `body`."""
    number, facts = None, marks.NOTHING
    if text.startswith(marks.MARK) or "\x1b" in text or "\0" in text:
        number, facts, text = marks.read(clean(text))
    found = None
    if text.startswith("{") and text.rstrip().endswith("}") and len(text) < 65536:
        found = _json_line(text, style)
    if found is None:
        found = _peeled(text, style)
    if number is None:
        return found
    key = (facts.writer, str(facts.pid or ""), "" if facts.rank is None else f"rank {facts.rank}")
    # a journal has the process that opened the stream, which all children of a unit share
    pid = facts.pid if not facts.program or facts.rank is not None else None
    merged = _with_facts(found, facts._replace(pid=pid))
    return merged._replace(key=(*found.key, *filter(None, key)), line=number, writer=found.writer or facts.writer)


def _peeled(text: str, style: Style) -> Envelope:
    """The envelope of a line, by the places of its prefixes, which it shares with the lines of other digits."""
    alike = key_of(text)
    places = _places(alike, style) if len(alike) < LONG else None
    if places is not None:
        found = places.read(text)
        if found.stamp is not None or not places.timed:
            return found  # a date that is none, such as that of a month 13, leaves the place to another
    return _Peeler(text, style, of_digits=True).places().read(text)


@lru_cache(maxsize=KEPT)
def _places(alike: bytes, style: Style) -> _Places | None:
    """The places in a line with zeros for digits; None if they depend on the digits."""
    peeler = _Peeler(alike.decode("utf-8", "surrogatepass"), style)
    return None if peeler.certain else peeler.places()


def _with_facts(env: Envelope, facts: marks.Facts) -> Envelope:
    """A line of a record: rank and host of the line take precedence, the time of the record does."""
    if env.rank is not None and facts.rank is not None and env.rank != facts.rank:
        facts = facts._replace(local_rank=None)
    unknown = [name for name in ("rank", "local_rank", "world", "pid") if getattr(env, name) is None]
    kernel = facts.program == "kernel"
    return env._replace(
        host=env.host or facts.host,
        stamp=facts.stamp or env.stamp,
        kernel=env.kernel or kernel,
        program=env.program or ("" if kernel else facts.program),
        **{name: getattr(facts, name) for name in unknown},
    )


def _json_line(text: str, style: Style) -> Envelope | None:
    """A record among other lines. Logs of records only are unwrapped before."""
    record = records.load(text)
    found = records.body_of(record) if record is not None else None
    if record is None or found is None:
        return None
    facts = records.facts(record)
    if found[0] == "log" and "stream" in record:  # Docker's json-file
        inner = peel(found[1].rstrip("\n"), style)
        return inner._replace(stamp=facts.stamp or inner.stamp)
    return _with_facts(Envelope(found[1] + records.measured(record)), facts)


Part = tuple[int, Callable[[str], Any], slice]  # the number of a field, what reads it, and where


class _Places(NamedTuple):
    """Where a line has its prefixes, and what is the same in all lines that differ in digits only."""

    at: int  # the length of all prefixes
    key: tuple[slice, ...]
    constant: list[Any]  # the fields of an envelope
    parts: list[Part]
    timed: bool

    def read(self, text: str) -> Envelope:
        values = self.constant.copy()
        values[0] = text[self.at :]
        if self.key:
            values[1] = tuple([text[place] for place in self.key])
        for number, read, place in self.parts:
            values[number] = read(text[place])
        return _new(Envelope, values)


_FIELDS = {name: number for number, name in enumerate(Envelope._fields)}
_UNKNOWN = list(Envelope(""))
_new = tuple.__new__  # what `Envelope._make` calls


class _Peeler:
    """Finds the places of the prefixes of one line, which may have zeros for digits. The first value of a field counts.
    `of_digits`: the digits are those of the line, and may show that a time is none."""

    def __init__(self, text: str, style: Style, of_digits: bool = False) -> None:
        self.text, self.style, self.of_digits = text, style, of_digits
        self.at = 0
        self.key: list[slice] = []
        self.fields: dict[str, Any] = {}  # a constant, or what reads the value, and where
        self.certain = _CERTAIN.match(text) is not None
        self._label()
        for _ in range(8):
            self.certain = self.certain or _CERTAIN.match(text, self.at) is not None
            form = _NEXT_FAR if self.at >= 200 else _NEXT_UNTIMED if "stamp" in self.fields else _NEXT
            if (m := form.match(text, self.at)) is None:
                break
            self._take(str(m.lastgroup).replace("_", "-"))

    def match(self, form: re.Pattern[str]) -> re.Match[str] | None:
        if m := form.match(self.text, self.at):
            self.at = m.end()
        return m

    def learn(self, name: str, start: int, end: int, read: Callable[[str], Any] = str) -> None:
        self.fields.setdefault(name, (read, slice(start, end)))

    def learn_rank(self, start: int, end: int) -> None:
        if m := RANKED.search(self.text[start:end]):
            self.learn("rank", start + m.start(1), start + m.end(1), whole)

    def learn_time(self, start: int, end: int) -> None:
        text = self.text[start:end]
        if self.of_digits and (stamp := times.find(text)):
            self.fields.setdefault("stamp", stamp)
        elif not self.of_digits and (read := times.reader(text)):
            self.learn("stamp", start, end, read)

    def stripped(self, start: int, end: int, letters: str | None = None) -> tuple[int, int]:
        text = self.text[start:end]
        return start + len(text) - len(text.lstrip(letters)), end - len(text) + len(text.rstrip(letters))

    def _label(self) -> None:
        """Read the label that each line of this file has."""
        style = self.style
        if style.margin:
            self.at = len(self.text) - len(self.text.removeprefix(">").removeprefix(" "))
        if style.srun and (m := self.match(SRUN)):
            self.key.append(slice(*self.stripped(*m.span())))
            # slurmstepd writes into the pipe of some task and is no task
            if style.task:
                self.learn("writer", *m.span("rank"), lambda n: f"task {n}")
            elif not self.text.startswith("slurmstepd", self.at):
                self.learn("rank", *m.span("rank"), whole)
        elif ": kern" in self.text and (m := self.match(_TALOS)):
            self.learn("host", *m.span("host"))
            self.learn_time(*m.span(2))
            self.fields["kernel"] = True
        elif style.label and (m := self.match(LABELS[style.label])):
            self.key.append(slice(*m.span("writer")))
            self.learn_time(*m.span())
            self.learn_rank(*m.span("writer"))
            self.learn("writer", *m.span("writer"))
        elif style.lead and (m := self.match(re.compile(style.lead))):
            who, lead = self.stripped(*m.span("who")), m[0][len(m["at"]) :]
            self.key.append(slice(*who))
            self.learn("writer", *who)
            self.learn_rank(*self.stripped(*who, " \t:|>[]()"))
            self.learn_time(*m.span("at"))
            if HOST.match(lead + "x"):
                self.learn("host", *self.stripped(m.end("at"), m.end(), " \t:|"))
        elif style.host and (m := self.match(HOST)):
            self.key.append(slice(*m.span("host")))
            self.learn("host", *m.span("host"))
            self.learn("writer", *m.span("host"))

    def _take(self, name: str) -> None:
        """Remove the prefix `name`, and read its fields."""
        row, m = _ROWS[name], self.match(_REGEXES[name])
        assert m is not None
        groups = m.groupdict()
        if "role" in groups:
            self._tee(m)
            return
        if "key" in row:
            self.key.append(slice(*m.span(row["key"])))
        if "writer" in row:
            self.learn("writer", *m.span(row["writer"]))
        if tag := groups.get("tag"):
            self.learn_rank(*m.span("tag"))
            self.fields.setdefault(
                *(("kernel", True) if tag == "kernel" else ("program", (str, slice(*m.span("tag")))))
            )
        for field, value in groups.items():
            if value is not None and field in _NUMBERS:
                self.learn(field, *m.span(field), whole if _NUMBERS[field] else str)
        if "time" in row and "stamp" not in self.fields:
            self.learn_time(*m.span())
        for field, value in row.get("set", {}).items():
            self.fields.setdefault(field, value)

    def _tee(self, m: re.Match[str]) -> None:
        name = "rank" if m["role"].lower() == "rank" else "local_rank"
        if name == "rank" and "rank" in self.fields and self.text[m.start() - 2 : m.start()] == "]:":
            # `[rank0]:[rank2]: `: a role that is called rank, with its local rank
            self.fields["local_rank"] = self.fields.pop("rank")
        if name == "local_rank" and self.fields.pop(name, None) is not None:
            self.key.clear()  # a writer interrupted the line of another
        self.key.append(slice(*self.stripped(*m.span())))
        self.learn(name, *m.span("number"), whole)

    def places(self) -> _Places:
        body = self.text[self.at :]
        head = body[:160]
        fields, style = self.fields, self.style
        ranked = "rank" not in fields and "rank" in head.lower()
        if ranked and (m := next((m for form in _IN_TEXT if (m := form.search(head))), None)):
            self.learn("rank", self.at + m.start(1), self.at + m.end(1), whole)
        if "rank" not in fields and style.column and (m := COLUMNS[style.column].match(self.text)):
            self.learn("rank", *m.span(1), whole)
        nameless = style.word and "rank" not in fields and "writer" not in fields
        if nameless and (m := re.compile(style.word).search(self.text, 0, NEAR)):
            word = m["word"].lower() or "writer"
            self.learn("writer", *m.span("n"), lambda n: f"{word}-{n}")
        if "stamp" not in fields:
            self.learn_time(self.at, self.at + len(head))
        if "NVRM: " in head and body.lstrip().startswith("NVRM: "):
            fields["kernel"] = True
        constant, parts = _UNKNOWN.copy(), []
        for name, value in fields.items():
            if type(value) is tuple:
                parts.append((_FIELDS[name], *value))
            else:
                constant[_FIELDS[name]] = value
        return _Places(self.at, tuple(self.key), constant, parts, "stamp" in fields)


__all__ = ["Envelope", "Style", "clean", "learn", "peel"]
