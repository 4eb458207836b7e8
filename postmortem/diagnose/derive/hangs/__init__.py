"""Hangs and desynchronisation: who did not arrive, who went elsewhere, who left, who was only stopped.

Every waiting rank shouts; the guilty one is mostly silent. So: what a report states (flight recorder,
desync report) comes first; then collective numbers; then stacks; then the lines of code in which the ranks
waited; then who had finished; then silence; and last what is left to say where everybody waits alike. Each
step gives at most one claim, with the reason in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs import counted, placed, silent, stated
from postmortem.diagnose.derive.hangs.views import Scene, scene

STEPS: tuple[Callable[[Scene], Claim | None], ...] = (
    stated.fingerprints,
    stated.recorded,
    stated.laggards,
    counted.differ,
    counted.behind,
    placed.witnessed,
    placed.stacks,
    placed.left,
    placed.all_receive,
    placed.cut_off,
    silent.asked_to_stop,
    placed.code,
    silent.silence,
    silent.late,
    silent.busy_rank0,
    silent.behind,
    silent.odd_notice,
    placed.stuck_alike,
    counted.together,
)


def derive(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Claims about a hang, best reasons first. Empty where nothing waits."""
    seen = scene(case, claims)
    if not _something_waits(seen):
        return []
    found = []
    for number, step in enumerate(STEPS):
        claim = step(seen)
        if claim is not None:
            found.append(replace(_with_last_words(seen, claim), step=number))
    return found


def _with_last_words(seen: Scene, claim: Claim) -> Claim:
    """What a suspect said last in the ordinary way shows where it was: put it behind the first proof."""
    words = []
    for rank in claim.ranks[:2]:
        if rank in seen.views:
            words += [e for e in seen.views[rank].last_words if e not in claim.events]
    return replace(claim, events=(*claim.events[:1], *words, *claim.events[1:]))


def _something_waits(seen: Scene) -> bool:
    views = seen.views.values()
    if views and all(v.got_over for v in views):
        return False
    if any(v.complaint or v.lost for v in views) or seen.case.of_kind("recorder"):
        return True
    if any(c.accuses and c.pattern.category in ("hang", "collective-mismatch") for c in seen.claims):
        return True
    return _stacked(seen)


def _stacked(seen: Scene) -> bool:
    """Whether somebody took stacks of ranks that have not finished, or of a process in a collective."""
    views = seen.views.values()
    if any(e.fields.get("collective") for e in seen.sampled) and not seen.case.finished:
        return True
    return sum(v.stack is not None for v in views) >= 2 and not all(v.finished for v in views)
