"""Small blocks: our own verdict, the kernel's table of tasks, and logs that are only the middle of a stack.

INCIDENT  host memory · established                   our own verdict (report/terminal.py), printed into the log of a job
                                                      by a recipe or a hook: not evidence
Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …

  culprit  rank 3 · host node-b · pid 29502

[  pid  ]   uid  tgid total_vm      rss ... name      the tasks among which the kernel's OOM killer chose
[  32688]     0 32688   356486   200908 ... python3   (mm/oom_kill.c dump_tasks)
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.formats.envelope import Style
from postmortem.formats.excerpt import MAX_BLOCK, Excerpt
from postmortem.library import Signature
from postmortem.model import Around, Event, EventKind, Hit, Source
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.system import forms

OWN_VERDICT = Signature(
    ":own-verdict", r"\b(?:INCIDENT|RECOVERED|UNDETERMINED)  \w|\bHEALTHY(?:[\"\\\s]|$)", after=8192
)
KIND: EventKind = "own-verdict"
_REGEXES = forms.regexes("formats/excerpts")


def own_verdict(excerpt: Excerpt) -> Iterator[Event]:
    """One event from the first line of the verdict to its last field."""
    lines = excerpt.block()
    if not _REGEXES["verdict"].match(next(lines).envelope.body):
        return
    last, paragraph = 0, 0
    for line in lines:
        body = line.envelope.body
        paragraph += not body.strip()
        if paragraph > 2 or (last and not body.startswith("  ")):
            break
        if last or (paragraph == 2 and _REGEXES["verdict-field"].match(body)):
            last = line.number
    if last:
        yield excerpt.event(KIND, excerpt.first, end=last)


def without_own_verdicts(events: list[Event]) -> list[Event]:
    """The events outside of our own verdicts."""
    spans = [(e.line, e.where.end_line or 0) for e in events if e.kind == KIND]
    return [e for e in events if not any(a <= e.line <= b for a, b in spans)] if spans else events


OOM = Signature(":oom-tasks", r"oom-kill:constraint=CONSTRAINT_", after=0, before=16384)
LARGEST = 8  # tasks whose pages are kept


def oom_tasks(excerpt: Excerpt) -> Iterator[Event]:
    """The pids in the table above the kernel's OOM summary, the largest tasks with their pages, and the use of the
    memory cgroup above the table."""
    fields: Details = {}
    pids: list[int] = []
    rows: list[tuple[int, str, int, int]] = []
    for line in excerpt.preceding():
        if m := _REGEXES["oom-task"].search(line.text):
            pids.append(whole(m["pid"]))
            rows += [(pids[-1], m["name"], whole(m["virtual"]), whole(m["resident"]))] if m["name"] else []
        elif m := _REGEXES["oom-usage"].search(line.text):
            fields["usage"] = whole(m["used"]), whole(m["limit"]), line.number
            break
        elif _REGEXES["oom-summary"].search(line.text):  # of the kill before
            break
    victim = _REGEXES["oom-victim"].search(excerpt.text)
    if pids and victim:
        largest = sorted(rows, key=lambda row: -row[3])[:LARGEST]
        fields |= {"tasks": tuple(pids[:4096]), "resident": tuple(largest)}
        yield excerpt.event("oom-tasks", excerpt.first, fields=fields, pid=whole(victim["pid"]))


MOST_BYTES = 65536  # bytes of an excerpt
NEAR = 8  # first lines among which a frame has to be
_FRAMES = forms.regexes("formats/exceptions")


def cut_excerpt(source: Source, data: bytes, style: Style) -> Iterator[Event]:
    """A `cut` event on the first frame, if all lines belong to frames."""
    lines = data.splitlines(keepends=True)[:MAX_BLOCK]
    texts = [line.decode("utf-8", "backslashreplace").rstrip() for line in lines]
    found = ((i, m) for i, text in enumerate(texts[:NEAR]) if (m := _FRAMES["inner-frame"].match(text)))
    at, m = next(found, (-1, None))
    if m is not None:
        lead = m["lead"]
        if not all(text in ("", lead.rstrip()) or text.startswith(f"{lead}  ") for text in texts):
            return
    else:
        frames = [i for i, text in enumerate(texts) if _FRAMES["native-frame"].search(text)]
        head = any("frame #0" in text for text in texts)
        if head or len(frames) < 3 or frames[0] >= NEAR or frames[-1] < len(texts) - NEAR:
            return
        at = frames[0]
    hit = Hit(at + 1, 0, lines[at].rstrip(), Around.of(b"", b"".join(lines[at + 1 :])), (), ())
    excerpt = Excerpt(source, hit, style)
    yield excerpt.event("cut", excerpt.first, fields={"opened": excerpt.number})
