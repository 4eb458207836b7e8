"""Head and name of a file -> its kind, which decides which parsers read it.

    "[ 2612.607544] python3 invoked oom-killer: gfp_mask=..." -> kernel

The rules are the rows of `kinds.yaml`: the first one that fits wins. What fits no rule is a console: a rank's
output has no form. An `agent` log is a console with lines of torchrun's logger; with `--tee` its workers write
there too.

A binary format is known by its first bytes, any other binary file by its control characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from postmortem.model.vocabulary import OWN_REPORT, STATE
from postmortem.system import forms, lazy

LINES = 12
LINES_WITHIN = 1 << 13
UNIT_WITHIN = 1 << 15  # bytes: the first dozen lines of a machine's journal may well be of one program

# torch's flight recorder is a pickle of plain data (FlightRecorderDetail.hpp); any other pickle is of other objects
FLIGHT_KEYS = (b"pg_config", b"pg_status", b"entries", b"comm_lib_version", b"nccl_version", b"collective_seq_id",
               b"profiling_name")  # fmt: skip
SNAPSHOT_KEYS = (b"segments", b"total_size", b"allocated_size", b"blocks")  # torch/cuda/memory.py
OWN = (b'<meta name="generator" content="postmortem">', b'"schema": "postmortem/incident/')
COMPRESSED = lazy.regex(r"\.(?:gz|xz|bz2|zst|zstd|lz4)$")
_COLLECTED = (
    "gpu-report",
    "slurm",
    "job-report",
    "kubernetes",
    "ras",
)  # documents that are read below the heading of `collect`
_HEADS = forms.byte_regexes("input/heads")
_LAUNCHER = [literal.encode() for literal in forms.rows("input/heads")["launcher"]["literals"]]


class Head:
    """The first 64 KiB, without the NULs that may precede the text, and its first lines."""

    def __init__(self, data: bytes) -> None:
        self.text = data.lstrip(b"\0").removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
        self.last = next((line for line in reversed(self.text.split(b"\n")[-40:]) if line.strip()), b"")
        self.lines = [line for line in self.text[:LINES_WITHIN].splitlines()[:LINES] if line.strip()]

    def mostly(self, pattern: re.Pattern[bytes], share: float) -> bool:
        """True where the pattern fits that share of the first lines."""
        misses = len(self.lines) * (1 - share)
        for line in self.lines:
            if pattern.match(line) is None:
                misses -= 1
                if misses < 0:
                    return False
        return bool(self.lines)


# ── the tests that rules name ───────────────────────────────────────────────────────────────────────────────


def _flight(head: Head) -> bool:
    return sum(b'"%s"' % key in head.text for key in FLIGHT_KEYS) >= 2


def _objects(head: Head) -> bool:
    """True where the first lines are JSON objects, one a line."""
    whole = head.lines if len(head.text) < LINES_WITHIN else head.lines[:-1]
    for line in whole[:2]:
        try:
            if not line.lstrip().startswith(b"{") or not isinstance(json.loads(line), dict):
                return False
        except (ValueError, RecursionError):
            return False
    return bool(whole) or head.text[:2] in (b'{"', b"{ ")


def _launcher(head: Head) -> bool:
    return (
        b"torch" in head.text
        and any(literal in head.text for literal in _LAUNCHER)
        and _HEADS["launcher"].search(head.text) is not None
    )


def _containers(head: Head) -> bool:
    return b"Exit Code:" in head.text and _HEADS["containers"].search(head.text) is not None


def _programs(head: Head) -> bool:
    """True where an export, or its JSON, is the output of programs, with next to no lines of system daemons."""
    tags = [plain or quoted for plain, quoted in _HEADS["identifier"].findall(head.text)]
    own = [tag for tag in tags if not _HEADS["system-daemon"].match(tag)]
    return bool(own) and len(own) * 10 >= 9 * len(tags)


def _unit(head: Head) -> bool:
    """True where one program of one host, and no system daemon, wrote nearly every line."""
    lines = [line for line in head.text[:UNIT_WITHIN].split(b"\n") if line]
    found = [m for line in lines if (m := _HEADS["syslog-line"].match(line))]
    tags = Counter((m[1], m[2]) for m in found if not _HEADS["system-daemon"].match(m[2]))
    return bool(tags) and tags.most_common(1)[0][1] * 10 >= 9 * len(lines)


def _settings(head: Head) -> bool:
    """Whether the settings go on to the end of the head: a batch script may print its environment above the job's log."""
    lines = head.text.splitlines()
    return sum(b"=" in line[:64] for line in lines) * 2 > len(lines)


def _table(head: Head) -> bool:
    """Whether the table goes on to the end of the head: a batch script may print one above the job's log."""
    lines = head.text.splitlines()
    return sum(line[:1] in (b"+", b"|", b"") for line in lines) * 2 > len(lines)


_TESTS: dict[str, Callable[[Head], bool]] = {
    "flight": _flight,
    "objects": _objects,
    "launcher": _launcher,
    "containers": _containers,
    "programs": _programs,
    "unit": _unit,
    "settings": _settings,
    "table": _table,
}


# ── rules ───────────────────────────────────────────────────────────────────────────────────────────────────


class Rule(NamedTuple):
    """A row of `kinds.yaml`."""

    kind: str
    why: str
    name: re.Pattern[str] | None
    start: re.Pattern[bytes] | None
    line: re.Pattern[bytes] | None
    share: float
    end: re.Pattern[bytes] | None
    holds: list[bytes]
    tests: list[Callable[[Head], bool]]
    unless: list[Callable[[Head], bool]]

    def fits(self, path: str, head: Head) -> bool:
        return (
            (self.name is None or self.name.search(path) is not None)
            and (self.start is None or self.start.match(head.text) is not None)
            and (self.line is None or head.mostly(self.line, self.share))
            and (self.end is None or self.end.match(head.last) is not None)
            and all(literal in head.text for literal in self.holds)
            and all(test(head) for test in self.tests)
            and not any(test(head) for test in self.unless)
        )


class Rules(NamedTuple):
    """The rules by what they need, and the union of their beginnings and of their lines: most heads match neither."""

    rows: dict[tuple[bool, bool], list[Rule]]  # by whether a beginning, and a line, matches
    starts: re.Pattern[bytes]
    lines: re.Pattern[bytes]


@cache
def _rules() -> Rules:
    rows, starts, lines = [], [], []
    for why, row in forms.rows("input/kinds").items():
        name, start, line = (
            value if isinstance(value := row.get(key, ""), str) else "|".join(value)
            for key in ("name", "start", "line")
        )
        rows.append(
            Rule(
                row["kind"],
                why,
                lazy.regex(name) if name else None,
                lazy.regex(start.encode(), re.MULTILINE) if start else None,
                lazy.regex(line.encode()) if line else None,
                row.get("share", 0.5),
                lazy.regex(row["end"].encode()) if "end" in row else None,
                [literal.encode() for literal in row.get("holds", ())],
                [_TESTS[test] for test in row.get("test", ())],
                [_TESTS[test] for test in row.get("unless", ())],
            )
        )
        starts += [f"(?:{start})"] if start else []
        lines += [f"(?:{line})"] if line else []
    able = {
        (started, formed): [rule for rule in rows if (started or not rule.start) and (formed or not rule.line)]
        for started in (False, True)
        for formed in (False, True)
    }
    return Rules(able, re.compile("|".join(starts).encode(), re.MULTILINE), re.compile("|".join(lines).encode()))


def kind(path: str, head: bytes) -> tuple[str, str]:
    """Return a file's kind and the reason. `path` is its label, `head` its first 64 KiB, decompressed."""
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5") and magic(head) is None:
        if sum(key in head for key in FLIGHT_KEYS) >= 2:
            return "flight-recorder", "a pickle with the flight recorder's fields"
        if all(key in head for key in SNAPSHOT_KEYS):
            return "memory-snapshot", "a pickle with the segments of GPU memory"
        return "binary", "binary (pickle)"
    if (reason := binary(head)) in IN_PARTS:
        return IN_PARTS[reason], reason
    if reason:
        return "binary", f"binary ({reason})"
    if m := _HEADS["collected"].match(head):
        found = kind(path, head[m.end() :]) if m[1] else ("console", "")
        return found if found[0] in _COLLECTED else ("binary", STATE)
    if _HEADS["own-report"].match(head) or any(mark in head[:4096] for mark in OWN):
        return "binary", OWN_REPORT
    name, text, rules = COMPRESSED.sub("", path).lower(), Head(head), _rules()
    able = rules.starts.match(text.text) is not None, any(map(rules.lines.match, text.lines))
    for rule in rules.rows[able]:
        if rule.fits(name, text):
            return rule.kind, rule.why
    return "console", "no other rule fits"


# ── binary formats ──────────────────────────────────────────────────────────────────────────────────────────

ELF_TYPES = {1: "ELF object", 2: "ELF program", 3: "ELF library or program", 4: "ELF core"}
IN_PARTS = {"ELF core": "core", "minidump": "minidump"}  # formats that are documents, and their kinds of source
CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\v\f\r\b\x1b\a") + b"\x7f"
HOLES = re.compile(rb"\0{64,}")  # shorter runs of NULs are numbers in binary data, longer ones are holes in a text

_ZIPS = forms.byte_regexes("input/formats")
_STARTS = [
    (start.encode("latin-1"), row.get("at", 0), name)
    for name, row in forms.rows("input/formats").items()
    for start in row.get("starts", ())
]


def magic(head: bytes) -> str | None:
    """Return the name of a binary format by its first bytes, or None."""
    if head[:4] == b"\x7fELF":
        return ELF_TYPES.get(int.from_bytes(head[16:18], "big" if head[5:6] == b"\2" else "little"), "ELF")
    if head[:4] == b"PK\x03\x04":  # zips of other things may hold logs
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return next((kind for kind, first_member in _ZIPS.items() if first_member.search(name)), None)
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 100 << 20:
        return "safetensors"
    return next((name for start, at, name in _STARTS if head.startswith(start, at)), None)


def binary(head: bytes) -> str | None:
    """Return the reason why a head is not text, or None.

    Control characters decide, not NULs alone: a text log may have NULs where the disk lost a page or where
    logrotate truncated a file that its writer did not open for appending. Text in an old encoding has bad
    UTF-8 but no controls.
    """
    if name := magic(head):
        return name
    if head.isascii() and b"\0" not in head:
        return None
    text = HOLES.sub(b"", head)
    controls = len(text) - len(text.translate(None, CONTROLS))
    bad = len(text) - len(text.decode("utf-8", "ignore").encode())
    if controls > 0.1 * len(text) or bad > 0.3 * len(text) and controls > 0.01 * len(text):
        return "no text"
    return None
