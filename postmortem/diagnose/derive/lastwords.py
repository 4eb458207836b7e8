"""What stands at the very end of a log, and what that shows: an error of unknown words, or a wait that
nothing ended.

    (VllmWorker rank=3 pid=44710) ERROR 08-20 09:48:31 [pynccl_wrapper.py:229] Failed to load NCCL library from /root/nccl/libnccl.so
    [2025-04-16 18:02:10,426 E 4034584 4034584] core_worker.cc:228: Failed to register worker 0100ffff to Raylet.
    2025-03-26 05:53:17 - INFO - trl.extras.vllm_client - Server is not up yet. Retrying in 2.0 seconds...

Whoever hands in a log that ends so, and in which nobody is at work, does not hand in a healthy one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from postmortem.diagnose import life
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import make
from postmortem.formats.lineform import shape
from postmortem.model import Event, Where

ERROR, RETRIES = "log-ends-with-error", "log-ends-in-retries"
BEHIND = 4  # lines that may follow: what a shell or a trap still prints
ENOUGH = 3  # a wait of which one or two lines tell may be a compilation
_AGAIN = re.compile(r"\b(?:[Rr]etrying|RETRYING|[Tt]rying again|(?:will|then) (?:re)?try again)\b")
_ANSWERED = re.compile(r'\bHTTP/1\.[01]" [1-4]\d\d\b')  # a server that has an answer for the next request got over it


def derive(case: Case, claims: list[Claim]) -> list[Claim]:
    """What a log ends with, where no pattern knows any trouble, and nothing shows its writers at work or
    done after it."""
    if life.all_done(case) or any(c.accuses for c in claims):
        return []
    benign = {e.where for c in claims if c.role == "context" for e in c.events}
    found = [told for source in case.by_source for told in _end(case, source, benign)]
    if not found:
        return []
    e, name = min(found, key=lambda told: told[1] != ERROR)
    made = make(case, name, (), [e], f"the log ends at {e.where}")
    return [made] if made else []


def _end(case: Case, source: str, benign: Set[Where]) -> Iterator[tuple[Event, str]]:
    """The last words of one log, if they tell of trouble, and the name of what they tell. Where other logs
    show life, one that never did may be a tool's."""
    alive = life.last_line(case, source)
    if not alive and life.is_alive(case):
        return
    said = [e for e in case.by_source[source] if e.kind in ("line", "notice") and e.speaker != "kernel"]
    end = _end_line(said)
    last = [e for e in said if (e.where.line or 0) > max(end - BEHIND - 1, alive)]
    loud = [e for e in _loud(case, last) if e.where not in benign]
    if loud:
        yield max(loud, key=lambda e: e.where), ERROR
    yield from ((e, RETRIES) for e in last if e.where.line == end and _retries(e, said))


def _end_line(said: Sequence[Event]) -> int:
    return max((e.where.line or 0 for e in said if e.kind == "line"), default=0)


def _loud(case: Case, last: Sequence[Event]) -> list[Event]:
    """Last words that cry and that nothing answers: not what a pattern knows as harmless, nor what a server
    said before it answered the next request, nor what is tried again right after it."""
    answers = (e.where for e in last if _ANSWERED.search(e.text) or _goes_on(e))
    after = max(answers, default=None)
    loud = [e for e in last if e.fields.get("cries") and e.where not in case.known_benign]
    return [e for e in loud if after is None or e.where > after]


def _goes_on(e: Event) -> bool:
    """Whether a calm line says that what failed is tried again."""
    return not e.fields.get("cries") and bool(_AGAIN.search(e.text))


def _retries(e: Event, said: Sequence[Event]) -> bool:
    """Whether a last line says that something is tried again, and said so several times."""
    if e.kind != "line" or not _AGAIN.search(e.text):
        return False
    return len({x.where.line for x in said if shape(x.text) == shape(e.text)}) >= ENOUGH


def said_to_the_end(case: Case, e: Event) -> bool:
    """Whether this is the last line of its log, which had said the same again and again, and no rank got on
    meanwhile."""
    own = case.by_source[e.where.source]
    same = sorted(x.where for x in own if x.pattern == e.pattern)
    if len(same) < ENOUGH or e.where != same[-1] or any(x.where > e.where for x in own if x.kind == "line"):
        return False
    return not any(x.where > same[-ENOUGH] for x in own if x.kind in ("worked", "finished"))
