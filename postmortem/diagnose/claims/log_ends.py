"""The last lines of a log: an error that no pattern knows, or a wait that never ended.

(VllmWorker rank=3 pid=44710) ERROR 08-20 09:48:31 [pynccl_wrapper.py:229] Failed to load NCCL library from /root/nccl/libnccl.so
[2025-04-16 18:02:10,426 E 4034584 4034584] core_worker.cc:228: Failed to register worker 0100ffff to Raylet.
2025-03-26 05:53:17 - INFO - trl.extras.vllm_client - Server is not up yet. Retrying in 2.0 seconds...
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from postmortem.diagnose import liveness
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, by
from postmortem.formats.lineform import shape
from postmortem.model import Event, Where
from postmortem.system import forms

BEHIND = 4  # lines that a shell or a trap may still print after the error
ENOUGH = 3  # lines of one wait: fewer may be a compilation
_REGEXES = forms.regexes("diagnose/lines")


def derive(case: Case, claims: list[Claim]) -> list[Claim]:
    """At most one claim, where no pattern knows a failure and nothing shows the writers at work or done."""
    if liveness.all_done(case) or any(c.accuses for c in claims):
        return []
    benign = {e.where for c in claims if c.role == "context" for e in c.events} | case.known_benign
    alive = liveness.is_alive(case)  # then a log without progress may be a tool's
    sources = [source for source in case.by_source if not alive or liveness.last_line(case, source)]
    found = [end for source in sources if (end := _end(case, source, benign)) is not None]
    if not found:
        return []
    e, name = min(found, key=lambda end: end[1] != "log-ends-with-error")
    made = case.claim(name, case.ranks_of([e]), [e], f"the log ends at {e.where}")
    return [made] if made else []


def _end(case: Case, source: str, benign: Set[Where]) -> tuple[Event, str] | None:
    """The last line of one log that reports a failure, and the pattern's name."""
    worked = liveness.last_line(case, source)
    lines = [e for e in case.by_source[source] if e.kind in ("line", "notice") and not by(e, "outside")]
    end = max((e.line * (e.kind == "line") for e in lines), default=0)
    last = [e for e in lines if e.line > max(end - BEHIND - 1, worked)]
    errors = [e for e in _unanswered(last) if e.where not in benign and not _is_of_script(e, worked)]
    if errors:
        return max(errors, key=lambda e: e.where), "log-ends-with-error"
    waits = [e for e in last if e.line == end and _repeats(e, lines)]
    return (waits[0], "log-ends-in-retries") if waits else None


def _is_of_script(e: Event, worked: int) -> bool:
    """Whether a shell could not run a line of the script, which goes on where its program has ended without an error."""
    return worked > 0 and _REGEXES["of-script"].search(e.text) is not None


def _repeats(final: Event, lines: Sequence[Event]) -> bool:
    """Whether the last line announces another try, as several before it."""
    if final.kind != "line" or not _REGEXES["again"].search(final.text):
        return False
    form = shape(final.text)
    return len({e.line for e in lines if shape(e.text) == form}) >= ENOUGH


def _unanswered(last: Sequence[Event]) -> list[Event]:
    """Errors after which a server answered no request, and nothing is tried again."""
    answers = [
        e.where
        for e in last
        if _REGEXES["answered"].search(e.text)
        or (_REGEXES["again"].search(e.text) and not e.fields.get("reports_error"))
    ]
    return [e for e in last if e.fields.get("reports_error") and (not answers or e.where > max(answers))]


def repeated_to_the_end(case: Case, e: Event) -> bool:
    """Whether this is the last line of its log, which repeats it while no rank makes progress."""
    own = case.by_source[e.where.source]
    same = sorted(x.where for x in own if x.pattern == e.pattern)
    if len(same) < ENOUGH or e.where != same[-1] or any(x.where > e.where for x in own if x.kind == "line"):
        return False
    return not any(x.where > same[-ENOUGH] for x in own if x.kind in ("worked", "finished"))
