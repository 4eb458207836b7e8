r"""Exceptions named in one line, without a traceback: by an excepthook or a logger, or where a log was cut.

    2026-01-01 10:00:01 ERROR uncaught exception: KeyError: 'meta'
    2026-01-01 10:00:01 ERROR    wds.r2       ReadError: unexpected end of data
    rank=1 FATAL DuplicateIds('batch 23 holds id 93 twice')
    mypkg.errors.BadShard: shard 17 has 3 columns, expected 4

Programs log exceptions that they caught, too. So such a line is the end of its writer only where the writer
says no more, or a launcher tells of an end right below it; everywhere else it is a mere utterance: it counts
where nothing else gives a reason.
"""

from __future__ import annotations

import re

from postmortem.formats.excerpt import Excerpt, Line
from postmortem.library import Signature
from postmortem.system import lazy as late

OPENER = Signature(
    ":uttered-exception",
    r"(?:\b(?:ERROR|FATAL|CRITICAL|Fatal|[Uu]ncaught|[Uu]nhandled)\b[^\n]{1,80}[A-Z][a-z]\w{1,40}\(['\"]"
    r"|\b[a-z_]\w{1,40}\.[A-Z][a-z]\w{2,40}: \w)",
    after=8192,
    before=512,
)
_CLASS = (
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
    r"(?:Error|Exception|Failure|Fault|Timeout|Refused|Exceeded|NotFound|Missing|Died|Abort)"
)
_ALONE = late.regex(rf"(?:[EFC] )?(?P<said>{_CLASS}: \S.*|(?:[a-z_]\w*\.)+[A-Z][a-z]\w+: \S.*)$")
_UNCAUGHT = late.regex(
    r"(?:^|[\] :|-])(?:[Uu]ncaught|[Uu]nhandled)(?: exception)?(?: in [\w. ]{1,40})?:? "
    rf"(?P<said>{_CLASS}(?:: .*|\(.*\))?)$"
)
_LOGGED = late.regex(
    r"\b(?:ERROR|FATAL|CRITICAL|SEVERE|Fatal|fatal)\b[\]):| -]{0,20}"
    r"(?:[\w.:\[\]-]{1,60}[ \t]+[|:-]{0,2}[ \t]*){0,2}"
    rf"(?P<said>{_CLASS}: \S.*|[A-Z][a-z]+[A-Z]\w*\((?:'[^']|\"[^\"]).*\))$"
)
_REPR = late.regex(r"(?P<type>(?:\w+\.)*[A-Z]\w+)\((?P<quote>['\"])(?P<message>.*)(?P=quote),?\)$")
_AGAIN = late.regex(
    r"\bretr(?:y|ying|ied)\b|\bignor(?:ed|ing)\b|\bskipp(?:ed|ing)\b|\bfall(?:ing)? back\b", re.IGNORECASE
)
_NEWS = late.regex(r"Warning\b|^torch\.[A-Z]|^(?:\w+\.)*(?:Size|Tensor|Module|Linear|Parameter)\b")
_EPILOGUE = late.regex(  # a launcher, a scheduler or a shell tells of an end
    r"failed \(exitcode: -?[1-9]|closing signal SIG|ChildFailedError|srun: error|mpirun"
    r"|exits? with (?:return |error )?code"
    r"|Killing subprocess|exit(?:ed)? (?:status|code)|Command .{1,80} returned non-zero|CalledProcessError"
)  # fmt: skip


def uncaught(body: str) -> str:
    """What an excepthook logs: `Uncaught KeyError: 'x'`; empty where the line is none of it."""
    m = _UNCAUGHT.search(body)
    return _plain(m["said"]) if m else ""


def said(body: str) -> str:
    """The exception that a line names as `Class: message`; empty if it names none, or says that it was dealt
    with."""
    m = _ALONE.match(body.strip()) or _LOGGED.search(body)
    if m is None or _AGAIN.search(body) or _NEWS.search(m["said"].split(":")[0]):
        return ""
    return _plain(m["said"])


def _plain(text: str) -> str:
    """`DuplicateIds('batch 23')` as a traceback would end."""
    m = _REPR.match(text)
    return f"{m['type']}: {m['message']}" if m else text


def is_last_word(excerpt: Excerpt, line: Line, most: int) -> bool:
    """Whether the writer of a line says nothing after it, or an end is told right below it."""
    for other in excerpt.following():
        if other.number <= line.number or not other.text.strip():
            continue
        if _EPILOGUE.search(other.text):
            return True
        if other.envelope.key == line.envelope.key:
            return False
    return excerpt.to_the_end(most)
