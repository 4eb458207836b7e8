"""What one says and another does not: where to look when no pattern knows the failure.

    INFO:train:rank 3 saved /data/run-7/ckpt_120.pt on gpu-017   ->   INFO:train:rank N saved /ckpt_N.pt on H

Lines are compared by their form: what differs from rank to rank and from run to run taken off. What all ranks
print is weather; what one rank prints is a lead, and so is what a healthy run never printed. `--baseline` and
`postmortem diff` use the same forms.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Set
from functools import lru_cache

from postmortem.diagnose.case import Case
from postmortem.model import Event
from postmortem.say.wording import gist, shape

MOST = 8
_FOLDER = re.compile(r"(?<![\w.])(?:file://|[a-z]:)?(?:/[\w.+@=%~:-]{1,80}){1,32}/(?=[\w.+-])")
_ID = re.compile(  # of a run, a group, a temporary file: letters and digits mixed as nobody names things
    r"(?<![A-Za-z0-9])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,64}|(?=[A-Za-z0-9]{6,40}(?![A-Za-z0-9]))[A-Za-z]*\d+[A-Za-z]+\d[A-Za-z0-9]*"
    r"|(?<=none_)[a-z0-9_]{8}|(?<=tmp)[a-z0-9_]{8})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:e[-+]?\d+)?(?![A-Za-z_])", re.IGNORECASE)
_DRAWN = re.compile(r"[█▉▊▋▌▍▎▏░▒▓━╸╺ ]*[█▉▊▋▌▍▎▏░▒▓━╸╺]+[█▉▊▋▌▍▎▏░▒▓━╸╺ ]*|([^\w\s])\1{2,}")


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


def leads(case: Case, known: Set[object], usual: Set[str]) -> list[Event]:
    """Troubled lines that one rank alone printed and a healthy run does not, latest first. `known` are
    addresses that a pattern accounts for, `usual` the forms of that run. A job with one voice has no other to
    compare with; then only a healthy run tells."""
    if len(case.by_rank) < 2 and not usual:
        return []
    speakers: dict[str, dict[int | None, Event]] = defaultdict(dict)
    for e in case.of_kind("notice", "exception"):
        form = alike(e.text)
        if form not in usual and (e.where.source, e.where.line) not in known:
            speakers[form].setdefault(case.rank_of(e), e)
    alone = len(case.by_rank) < 2
    lone = [next(iter(found.values())) for found in speakers.values() if len(found) == 1 or alone]
    return sorted(lone, key=lambda e: (e.at or 0.0, e.where.source, e.where.line or 0), reverse=True)[:MOST]


def shapes(events: Iterable[Event]) -> frozenset[str]:
    """Forms of the troubled lines of a run, to subtract from another's."""
    return frozenset(alike(e.text) for e in events if e.kind in ("notice", "exception"))
