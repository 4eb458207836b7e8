"""What stands at the very end of a log, and what that shows: an error of unknown words, or a wait that
nothing ended.

    (VllmWorker rank=3 pid=44710) ERROR 08-20 09:48:31 [pynccl_wrapper.py:229] Failed to load NCCL library
    from /root/nccl/libnccl.so [2025-04-16 18:02:10,426 E 4034584 4034584] core_worker.cc:228: Failed to
    register worker 0100ffff to Raylet. 2025-03-26 05:53:17 - INFO - trl.extras.vllm_client - Server is not
    up yet. Retrying in 2.0 seconds...

Whoever hands in a log that ends so, and in which nobody is at work, does not hand in a healthy one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from postmortem.diagnose import life
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.wording import shape
from postmortem.model import Event, Where

ERROR, RETRIES = "log-ends-with-error", "log-ends-in-retries"
BEHIND = 4  # lines that may follow: what a shell or a trap still prints
ENOUGH = 3  # a wait of which one or two lines tell may be a compilation
_AGAIN = re.compile(r"\b(?:[Rr]etrying|RETRYING|[Tt]rying again|(?:will|then) (?:re)?try again)\b")
_ANSWERED = re.compile(
    r'\bHTTP/1\.[01]" [1-4]\d\d\b'
)  # a server that has an answer for the next request got over it


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
    p = case.library.get(name)
    return (
        [
            Claim(
                p,
                p.role,
                (e,),
                (),
                (),
                (),
                (),
                case.attempt,
                f"{e.where} is the end of what was written",
                p.strength,
            )
        ]
        if p
        else []
    )


def _end(case: Case, source: str, benign: Set[Where]) -> Iterator[tuple[Event, str]]:
    """The last words of one log, if they tell of trouble, and the name of what they tell. Where other logs
    show life, one that never did may be a tool's."""
    events, alive = case.by_source[source], life.last_line(case, source)
    if not alive and life.is_alive(case):
        return
    said = [e for e in events if e.kind in ("line", "notice") and e.speaker != "kernel"]
    end = max((e.where.line or 0 for e in said if e.kind == "line"), default=0)
    last = [e for e in said if (e.where.line or 0) >= end - BEHIND]
    known = {
        e.where for e in events if e.pattern and (p := case.library.get(e.pattern)) and p.role == "context"
    }  # benign, it knows
    loud = [
        e
        for e in last
        if e.where not in known | benign and e.fields.get("cries") and (e.where.line or 0) > alive
    ]
    after = max((e.where for e in last if _ANSWERED.search(e.text)), default=None)
    loud = [e for e in loud if after is None or e.where > after]
    if loud:
        yield max(loud, key=lambda e: e.where), ERROR
    for e in (
        e for e in last if e.where.line == end and e.kind == "line" and _AGAIN.search(e.text) and end > alive
    ):
        if len({x.where.line for x in said if shape(x.text) == shape(e.text)}) >= ENOUGH:
            yield e, RETRIES


def said_to_the_end(case: Case, e: Event) -> bool:
    """Whether this is the last line of its log, which had said the same again and again, and no rank got on
    meanwhile."""
    own = case.by_source[e.where.source]
    same = sorted(x.where for x in own if x.pattern == e.pattern)
    if len(same) < ENOUGH or e.where != same[-1] or any(x.where > e.where for x in own if x.kind == "line"):
        return False
    return not any(x.where > same[-ENOUGH] for x in own if x.kind in ("worked", "finished"))
