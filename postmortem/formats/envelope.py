"""The prefixes of a line (launchers, loggers, collectors): rank, host, pid, time; and the rest of the line.

    [default1]:[rank3]: Traceback (most recent call last):      torchrun --tee 3: local rank 1, global rank 3
    (Worker_TP0 pid=4062) ERROR 09-05 01:18:30 [core.py:708] ... vLLM: nested processes, then its logger

Prefixes nest and repeat, so they are removed one by one; envelopes.yaml lists them. A leading "0: " is a label
only where the whole file has it (see `style`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from postmortem.formats import forms, marks, records, times
from postmortem.formats.style import COLUMNS, HOST, LABELS, NEAR, SRUN, Style, learn, rank_in
from postmortem.model import Stamp
from postmortem.model.digits import whole
from postmortem.system import lazy


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


class _Prefix(NamedTuple):
    form: re.Pattern[str]
    groups: tuple[tuple[str, bool], ...]  # fields that are groups, and whether they are numbers
    key: str
    writer: str
    time: bool
    tag: bool
    constants: dict[str, Any]


_ROWS = forms.rows("formats/envelopes")
_REGEXES = forms.regexes("formats/envelopes")
_ANSI, _TALOS = _REGEXES["ansi"], _REGEXES["talos"]
_NUMBERS = {"rank": True, "local_rank": True, "world": True, "pid": True, "host": False, "gpu": False}
_IN_TEXT = [_REGEXES[name] for name, row in _ROWS.items() if "in_text" in row]
_PREFIX_NAMES = [name for name, row in _ROWS.items() if "prefix" in row]


def _any_of(*left_out: str) -> re.Pattern[str]:
    """All prefixes as one regex. Most lines have one prefix or none, so one match decides."""
    names = {name: name.replace("-", "_") for name in _PREFIX_NAMES if name not in left_out}
    unnamed = {name: re.sub(r"\(\?P<\w+>", "(?:", _ROWS[name]["regex"]) for name in names}
    return lazy.regex("|".join(f"{unnamed[name]}(?P<{group}>)" for name, group in names.items()))


_NEXT, _NEXT_UNTIMED, _NEXT_FAR = _any_of(), _any_of("stamped"), _any_of("stamped", "syslog")


@lru_cache(maxsize=64)
def _prefix(group: str) -> _Prefix:
    name = group.replace("_", "-")
    row = _ROWS[name]
    groups = tuple((field, number) for field, number in _NUMBERS.items() if f"(?P<{field}>" in row["regex"])
    return _Prefix(
        _REGEXES[name],
        groups,
        row.get("key", ""),
        row.get("writer", ""),
        row.get("time", False),
        "(?P<tag>" in row["regex"],
        row.get("set", {}),
    )


def clean(text: str) -> str:
    """The line without colors, window titles and NUL bytes."""
    if "\x1b" in text or "\x00" in text:
        mark, rest = marks.mark_of(text)
        text = mark + _ANSI.sub("", rest)
    return text


@lru_cache(maxsize=1024)  # the contexts of two hits share lines
def peel(text: str, style: Style = Style()) -> Envelope:
    """Remove all prefixes of a line. Never raises; what is not a prefix stays in `body`."""
    number, facts, text = marks.read(clean(text))
    found = None
    if text.startswith("{") and text.rstrip().endswith("}") and len(text) < 65536:
        found = _json_line(text, style)
    if found is None:
        found = _Peeler(text, style).envelope()
    return found if number is None else _of_record(found, number, facts)


def _of_record(env: Envelope, number: int, facts: marks.Facts) -> Envelope:
    """A line of a record: rank and host of the line take precedence, the time of the record does."""
    if env.rank is not None and facts.rank is not None and env.rank != facts.rank:
        facts = facts._replace(local_rank=None)
    # a journal has the process that opened the stream, which all children of a unit share
    own = not facts.program or facts.rank is not None
    key = [*env.key, *(part for part in (facts.writer, str(facts.pid or "")) if part)]
    if facts.rank is not None:
        key.append(f"rank {facts.rank}")
    return env._replace(
        key=tuple(key),
        rank=facts.rank if env.rank is None else env.rank,
        local_rank=facts.local_rank if env.local_rank is None else env.local_rank,
        world=facts.world if env.world is None else env.world,
        host=env.host or facts.host,
        pid=facts.pid if env.pid is None and own else env.pid,
        stamp=facts.stamp or env.stamp,
        line=number,
        writer=env.writer or facts.writer,
        kernel=env.kernel or facts.program == "kernel",
        program=env.program or ("" if facts.program == "kernel" else facts.program),
    )


class _Peeler:
    """The state of one line: the position, and the fields read so far. The first value of a field counts."""

    def __init__(self, text: str, style: Style) -> None:
        self.text, self.style = text, style
        self.at = 0
        self.key: list[str] = []
        self.fields: dict[str, Any] = {}
        self._labels()
        for _ in range(8):
            forms_ = _NEXT_FAR if self.at >= 200 else _NEXT_UNTIMED if "stamp" in self.fields else _NEXT
            m = forms_.match(text, self.at)
            if m is None:
                break
            self._take(_prefix(str(m.lastgroup)))

    def match(self, form: re.Pattern[str]) -> re.Match[str] | None:
        m = form.match(self.text, self.at)
        if m:
            self.at = m.end()
        return m

    def learn(self, **fields: Any) -> None:
        for name, value in fields.items():
            if value is not None:
                self.fields.setdefault(name, value)

    def _labels(self) -> None:
        """Read the label that each line of this file has."""
        style = self.style
        if style.margin:
            self.at = len(self.text) - len(self.text.removeprefix(">").removeprefix(" "))
        if style.srun and (m := self.match(SRUN)):
            self.key.append(m[0].strip())
            # slurmstepd writes into the pipe of some task and is no task
            if not self.text.startswith("slurmstepd", self.at):
                self.learn(rank=whole(m["rank"]))
        elif ": kern" in self.text and (m := self.match(_TALOS)):
            self.learn(host=m["host"], stamp=times.find(m[2]), kernel=True)
        elif style.label and (m := self.match(LABELS[style.label])):
            self.key.append(m["writer"])
            self.learn(stamp=times.find(m[0]), rank=rank_in(m["writer"]), writer=m["writer"])
        elif style.lead and (m := self.match(re.compile(style.lead))):
            who = m["who"].strip()
            self.key.append(who)
            self.learn(writer=who, rank=rank_in(who.strip(" \t:|>[]()")))
            self.learn(stamp=times.find(m["at"]) if m["at"] else None)
            lead = m[0][len(m["at"]) :]
            if HOST.match(lead + "x"):
                self.learn(host=lead.strip(" \t:|"))
        elif style.host and (m := self.match(HOST)):
            self.key.append(m["host"])
            self.learn(host=m["host"], writer=m["host"])

    def _take(self, prefix: _Prefix) -> None:
        m = prefix.form.match(self.text, self.at)
        assert m is not None
        self.at = m.end()
        if "role" in m.re.groupindex:
            self._tee(m)
            return
        if prefix.key:
            self.key.append(m[prefix.key])
        if prefix.writer:
            self.learn(writer=m[prefix.writer])
        if prefix.tag:
            tag = m["tag"]
            self.learn(rank=rank_in(tag), **({"kernel": True} if tag == "kernel" else {"program": tag}))
        for name, number in prefix.groups:
            if (value := m[name]) is not None:
                self.fields.setdefault(name, whole(value) if number else value)
        if prefix.time and "stamp" not in self.fields:
            self.learn(stamp=times.find(m[0]))
        if prefix.constants:
            self.learn(**prefix.constants)

    def _tee(self, m: re.Match[str]) -> None:
        name = "rank" if m["role"].lower() == "rank" else "local_rank"
        if name == "rank" and "rank" in self.fields and self.text[m.start() - 2 : m.start()] == "]:":
            # `[rank0]:[rank2]: `: a role that is called rank, with its local rank
            self.fields["local_rank"] = self.fields.pop("rank")
        if name == "local_rank" and self.fields.pop(name, None) is not None:
            self.key.clear()  # a writer interrupted the line of another
        self.key.append(m[0].strip())
        self.learn(**{name: whole(m["number"])})

    def envelope(self) -> Envelope:
        body = self.text[self.at :]
        head = body[:160]
        fields, style = self.fields, self.style
        if "rank" not in fields and "rank" in head.lower():
            found = next((m for form in _IN_TEXT if (m := form.search(head))), None)
            self.learn(rank=whole(found[1]) if found else None)
        if "rank" not in fields and style.column and (m := COLUMNS[style.column].match(self.text)):
            fields["rank"] = whole(m[1])
        nameless = style.word and "rank" not in fields and "writer" not in fields
        if nameless and (m := re.compile(style.word).search(self.text, 0, NEAR)):
            fields["writer"] = f"{m['word'].lower() or 'writer'}-{m['n']}"
        if "stamp" not in fields and head:
            fields["stamp"] = times.find(head)
        if not fields.get("kernel") and "NVRM: " in head and body.lstrip().startswith("NVRM: "):
            fields["kernel"] = True
        return Envelope(body=body, key=tuple(self.key), **fields)


def _json_line(text: str, style: Style) -> Envelope | None:
    """A record among other lines. Logs of records only are unwrapped before."""
    record = records.load(text)
    found = records.body_of(record) if record is not None else None
    if record is None or found is None:
        return None
    body, facts = found[1], records.facts(record)
    if found[0] == "log" and "stream" in record:  # Docker's json-file
        inner = peel(body.rstrip("\n"), style)
        return inner._replace(stamp=facts.stamp or inner.stamp)
    kernel = facts.program == "kernel"
    return Envelope(
        body + records.measured(record),
        rank=facts.rank,
        local_rank=facts.local_rank,
        world=facts.world,
        host=facts.host,
        pid=facts.pid,
        stamp=facts.stamp,
        kernel=kernel,
        program="" if kernel else facts.program,
    )


__all__ = ["Envelope", "Style", "clean", "learn", "peel"]
