"""Which processes are seen at work, and which finished: the ground of `healthy` and of "it went on".

    2026-03-02 10:00:11 | INFO | iter 400 loss 2.1        worked: a count that grew (see blocks/signs.py)
    Training finished.                                    finished
    :::MLLOG {… "key": "run_stop", … "success"}           finished, with a line that no failing run has

Not a sign: a progress bar that is drawn again after a traceback, wandb's summary at exit, `echo done` behind a script
that failed, and any line of others than the writer of the trouble.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.diagnose.case import RANK_LOGS, Case
from postmortem.formats.endings import SHELL, surely_finished
from postmortem.model import Event

_BAR = re.compile(r"\d%\|.{0,400}(?:it/s|s/it|\?it)")
NEAR = 6  # lines


def is_alive(case: Case) -> bool:
    """Whether any process is seen at work, or finished."""
    return bool(case.by_kind["worked"] or case.by_kind["finished"] or case.telling("works"))


def shown_at_work(case: Case) -> bool:
    """Whether any process is seen at work or finished, and not only up, or with a result."""
    return bool(case.telling("works") or case.at_work)


def after(case: Case, e: Event, rank: int | None) -> Iterator[Event]:
    """Signs of work or of a finish of a writer below a line of its log."""
    for x in case.at_work[e.where.source]:
        own = rank is None or case.rank_of(x) in (rank, None)
        if own and x.below(e) and not _redrawn(case, x, e):
            yield x


def is_bar(e: Event) -> bool:
    """Whether a line is a progress bar of tqdm."""
    return _BAR.search(e.text) is not None


def _redrawn(case: Case, x: Event, e: Event) -> bool:
    """Whether it is a progress bar that ends the log right below a traceback: tqdm draws it once more when
    the process that raised leaves."""
    if e.kind not in ("exception", "pattern") or not e.fields.get("frames") or not is_bar(x):
        return False
    near = x.line - e.end <= NEAR
    return near and not any(other.kind == "line" and other.below(x) for other in case.by_source[x.where.source])


def all_done(case: Case) -> bool:
    """Whether all ranks finished or, where such lines have no rank, every console has one; and no bad end is known. A
    final message that a script prints behind a launcher in any case counts where that reports no error code."""
    consoles = {e.where.source for e in case.of_kind("line", "progress") if e.source_kind in RANK_LOGS}
    done = {e.where.source for e in case.of_kind("finished") if surely_finished(e) or not _has_error_code(case, e)}
    if not done or not all(map(case.unharmed, case.ends)):
        return False
    return case.all_finished or done >= consoles


def _has_error_code(case: Case, bye: Event) -> bool:
    """Whether a launcher or a shell reports a process that exited with an error code above a final message."""
    ends = (x for x in case.telling("end") if not x.fields.get("frames"))
    codes = (x for x in ends if 0 < (x.fields.get("exitcode") or 0) < SHELL)
    return any(bye.below(x) for x in codes if x.where.source == bye.where.source)


def left_behind(case: Case) -> set[int]:
    """Ranks that worked and did not finish, where most others did and got further."""
    silent = case.ranks_of(case.of_kind("worked")) - case.finished
    if not 0 < len(silent) < len(case.finished):
        return set()
    steps = {p.rank: p.last_step for p in case.processes if p.last_step is not None}
    furthest = max((steps.get(rank, 0) for rank in case.finished), default=0)
    return {rank for rank in silent if steps.get(rank, furthest) < furthest}


def last_finish(case: Case, source: str) -> Event | None:
    """The last line of a log that reports a finish."""
    found = [e for e in case.of_kind("finished") if e.where.source == source]
    return max(found, key=lambda e: e.line, default=None)


def at_its_end(case: Case, e: Event) -> bool:
    """Whether the writers of its log had nothing left to do before it: the last sign of work above, but for results,
    is a count that reached its total."""
    works = [x for x in case.by_source[e.where.source] if x.kind == "worked" and x.fields.get("by") != "result"]
    last = max(works, key=lambda x: x.line, default=None)
    return last is not None and e.below(last) and last.fields.get("full", False)


def last_line(case: Case, source: str) -> int:
    """The line of the last sign of work or of a finish in a log; 0 where it has none."""
    return max((e.line for e in case.by_source[source] if e.kind in ("worked", "finished")), default=0)
