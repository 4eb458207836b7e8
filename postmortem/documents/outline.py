"""Nested documents -> their values, each with its path and line: JSON, YAML, and indented text.

    {"status": {"phase": "Failed"}}             Leaf(("status", "phase"), "Failed", 0)

    GPU 00000000:5D:00.0                        Leaf(("GPU 00000000:5D:00.0", "Remapped Rows", "Pending"), "Yes", 2)
        Remapped Rows
            Pending                    : Yes

JSON is read as YAML, by libyaml: its events have line numbers, and those before the place where a document is cut, or
nested without end, are there. An alias is not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from postmortem.formats.excerpt import decode, source_event
from postmortem.model import Event, Source

DEEPEST = 100  # levels; the answers of Kubernetes and Slurm have 20
LARGEST = 8 << 20  # bytes of one document: 2 s of reading
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ROW = re.compile(r"( *)(\S.{0,200}?)(?:\s{0,200}(?::\s|:$|\.{4,}:?)\s*(.*))?$")


class Leaf(NamedTuple):
    """A value that is no mapping and no list. `line` counts from 0."""

    path: tuple[str | int, ...]
    value: str
    line: int

    @property
    def dotted(self) -> str:
        return ".".join(map(str, self.path))


def lines_of(source: Source, content: bytes) -> tuple[list[str], list[Event]]:
    """The lines of a text, and an event `unreadable` where it is too long."""
    lines = [decode(line) for line in content[:LARGEST].split(b"\n")]
    return lines, [] if len(content) <= LARGEST else [unread(source, f"it is longer than {LARGEST >> 20} MiB")]


def unread(source: Source, reason: str) -> Event:
    """The event of a document that is not read to its end."""
    return source_event(source, "unreadable", f"The document is not read to its end: {reason}.", severity="warning")


class Broken(ValueError):
    """A document that cannot be read to its end."""


def read(source: Source, content: bytes) -> tuple[list[Leaf], list[Event]]:
    """The values of JSON or YAML, and an event `unreadable` where it cannot be read to its end."""
    found: list[Leaf] = []
    try:
        for leaf in _tree(content):
            found += [leaf] if leaf.path else []
    except Broken as error:
        return found, [unread(source, str(error))]
    return found, []


def _tree(content: bytes) -> Iterator[Leaf]:
    import yaml

    text = content[:LARGEST].decode("utf-8", "replace").expandtabs(1)
    text = _SURROGATE.sub("?", _CONTROL.sub("\ufffd", text))
    walk, line = _Walk(), 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CLoader", yaml.Loader)):
            line = getattr(event.start_mark, "line", line)
            if len(walk.open) > DEEPEST:
                raise Broken(f"it is nested more than {DEEPEST} levels deep on line {line + 1}")
            if (leaf := walk.step(event, line)) is not None:
                yield leaf
    except yaml.YAMLError:
        if len(content) > LARGEST:
            raise Broken(f"it is longer than {LARGEST >> 20} MiB") from None
        raise Broken(f"its JSON or YAML is cut or broken near line {line + 1}") from None


class _Walk:
    """The place in a tree: for each open level the key, or the number in a list."""

    def __init__(self) -> None:
        self.open: list[list[Any]] = []  # [is a mapping, key or number, a key comes next]

    def step(self, event: Any, line: int) -> Leaf | None:
        name = type(event).__name__
        if name in ("MappingStartEvent", "SequenceStartEvent"):
            self.open.append([name[0] == "M", None if name[0] == "M" else 0, name[0] == "M"])
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            self.open.pop()
            self._value()
        elif name in ("ScalarEvent", "AliasEvent"):
            if self.open and self.open[-1][2]:
                self.open[-1][1:] = [getattr(event, "value", "*"), False]
                return None
            leaf = Leaf(tuple(level[1] for level in self.open), getattr(event, "value", ""), line)
            self._value()
            return leaf
        return None

    def _value(self) -> None:
        if self.open and self.open[-1][0]:
            self.open[-1][2] = True
        elif self.open:
            self.open[-1][1] += 1


def indented(lines: Sequence[str]) -> Iterator[Leaf]:
    """The rows `key : value` of indented text; a row without a value is a heading."""
    above: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        m = _ROW.match(line[:400].expandtabs(8)[:400])
        if m is None:
            continue
        indent = len(m[1])
        while above and above[-1][0] >= indent:
            above.pop()
        if m[3]:
            yield Leaf((*(key for _, key in above), m[2]), m[3].rstrip(), number)
        if len(above) < DEEPEST:
            above.append((indent, m[2]))


def items(leaves: Iterable[Leaf], depth: int) -> Iterator[tuple[tuple[str | int, ...], list[Leaf]]]:
    """The values below each path of `depth` keys, without that path."""
    for path, group in groupby(leaves, key=lambda leaf: leaf.path[:depth]):
        yield path, [leaf._replace(path=leaf.path[depth:]) for leaf in group]


__all__ = ["Leaf", "indented", "items", "lines_of", "read", "unread"]
