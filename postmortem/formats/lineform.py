"""The form of a log line: without prefix, hosts, folders, ids and numbers.

    INFO:train:rank 3 saved /data/run-7/ckpt_120.pt on gpu-017   ->   INFO:train:rank N saved /ckpt_N.pt on H

Lines of several ranks or runs are compared by their form.
"""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache

from postmortem.privacy import cut

_NOISE = re.compile(r"0x[0-9a-f]+|\d+")
_PREFIX = re.compile(
    r"(?:\s*(?:\[[^\]]{1,60}\]:?|\(\w+ pid=[^)]{1,60}\)|\d{1,5}:(?=\s)|<\d{1,3}>|kern +:\w+ *:"
    r"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|[\w.-]{1,64} kernel:)\s*)+"
)
_FIELD = re.compile(r'"(?:msg|message|event)": ?"(?P<said>(?:[^"\\]|\\.){3,})"')
_LEVEL = re.compile(r"\b(?:INFO|WARN(?:ING)?|ERROR)\b[\s\]|:-]*(?:\[?rank ?\d+\]?[\s|:-]*)?(?P<said>\S.{3,})")
_STAMP = re.compile(  # the second is glog's and absl's
    r"\A(?:\d{4}[-/]\d\d[-/]\d\d[T _])?\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\s+(?:[IWE]\s+)?(?:\[\d{1,5}\]\s+)?"
    r"|\A[IWEF]\d{4} [\d:.]{8,15} +\d+ [\w./-]{1,80}:\d+\] "
)
SHOWN = 80
_FOLDER = re.compile(r"(?<![\w.])(?:file://|[a-z]:)?(?:/[\w.+@=%~:-]{1,80}){1,32}/(?=[\w.+-])")
_ID = re.compile(  # of a run, a group, a temporary file: letters and digits mixed as nobody names things
    r"(?<![A-Za-z0-9])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,64}|(?=[A-Za-z0-9]{6,40}(?![A-Za-z0-9]))[A-Za-z]*\d+[A-Za-z]+\d[A-Za-z0-9]*"
    r"|(?<=none_)[a-z0-9_]{8}|(?<=tmp)[a-z0-9_]{8})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:e[-+]?\d+)?(?![A-Za-z_])", re.IGNORECASE)
_DRAWN = re.compile(r"[█▉▊▋▌▍▎▏░▒▓━╸╺ ]*[█▉▊▋▌▍▎▏░▒▓━╸╺]+[█▉▊▋▌▍▎▏░▒▓━╸╺ ]*|([^\w\s])\1{2,}")


def message(text: str) -> str:
    """What a line says, without what its logger put before it, as much of it as a sentence holds."""
    m = _FIELD.search(text) or _LEVEL.search(text)
    said = m["said"] if m else _STAMP.sub("", gist(text), count=1)
    return said if len(said) <= SHOWN else said[:SHOWN].rsplit(" ", 1)[0] + "…"


@lru_cache(maxsize=1 << 17)
def gist(text: str) -> str:
    """A line without prefixes and blanks: what the copies of one event share, however they were carried."""
    prefix = _PREFIX.match(text)
    return cut(" ".join((text[prefix.end() :] if prefix else text).split()), 300)


def shape(text: str) -> str:
    """A line without its numbers: the same failure on another rank or sample."""
    return _NOISE.sub("N", gist(text))


def alike(text: str, names: Set[str] = frozenset()) -> str:
    """The form of a line: without prefix, hosts (`names`), folders, ids and numbers."""
    said = gist(text)
    if names:
        said = _named(frozenset(names)).sub("H", said)
    said = _DRAWN.sub("#", _FOLDER.sub("/", said))
    return shape(_VALUE.sub("0", _ID.sub("0", said)))


@lru_cache(maxsize=8)
def _named(names: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(filter(None, names), key=lambda name: (-len(name), name))
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?:\.[\w.-]+)?(?![\w-])")
