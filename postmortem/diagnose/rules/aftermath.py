"""Failures that follow from an earlier one of the same rank, or from another rank's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from postmortem.diagnose.claim import Claim
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.library import regexes
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import LOUD
from postmortem.system import forms

WEAKER = ("native-crash", "python-exception", "environment")
AT_ONCE_S = 0.2  # ranks print the NaN of one step within this time
_REGEXES = forms.regexes("diagnose/lines")
Losses = Mapping[tuple[int | None, str], Claim]  # by rank and log


def peers_lost_before(view: View) -> Iterator[Defeat]:
    """A rank that had lost its peers and then crashes or raises is a victim."""
    losses = _first_losses(view)
    for at, claim in view.numbered("cause"):
        e = claim.event
        rank = view.case.rank_of(e)
        loss = losses.get((rank, e.where.source)) if rank is not None else _all_lost(view, claim, losses)
        if loss is None or e.line <= loss.event.line:
            continue
        weaker = claim.pattern.category in WEAKER or (loss.role != "cause" and claim.of("others"))
        # an aborted all_gather_object allocates whatever its unsent sizes happen to be
        garbage = bool(e.fields.get("collective")) and not claim.of("complaint")
        if weaker or garbage:
            yield Defeat(at, "symptom", f"the rank had lost its peers earlier ({loss.event.where})")


def _all_lost(view: View, claim: Claim, losses: Losses) -> Claim | None:
    """The last complaint in this log, if all ranks in it complain: then a crash without a rank followed one. None for
    other failures."""
    if claim.pattern.category != "native-crash":
        return None
    source = claim.event.where.source
    found = [losses.get((rank, source)) for rank in view.case.writers[source]]
    own = [c for c in found if c is not None]
    return None if len(own) < len(found) else max(own, key=lambda c: c.event.line, default=None)


def _first_losses(view: View) -> Losses:
    """The first complaint of every rank in each of its logs."""
    complaints = [c for c in view.claims if c.of("complaint") and c.accuses and not c.by("outside")]
    own = [c for c in complaints if not _about_a_service(c)]
    in_logs = grouped(((view.case.rank_of(c.event), c.event.where.source), c) for c in own)
    return {place: min(claims, key=lambda c: c.event.line) for place, claims in in_logs.items()}


def _about_a_service(claim: Claim) -> bool:
    """Whether the program itself called a service that is no rank, and raises an error of its own from it:
    `raise RuntimeError("the feature store is gone") from error`."""
    frames = claim.event.fields.get("frames")
    if not claim.event.fields.get("chained") or not frames:
        return False
    own = not any(_REGEXES["communication-library"].search(frame[0]) for frame in frames)
    return own and claim.of("gone")


def nan_that_spread(view: View) -> Iterator[Defeat]:
    """NaN spreads to all ranks with the next all-reduce: the rank that showed it first has it."""
    nans = [(at, c) for at, c in view.numbered("cause", "symptom") if "finite-loss" in c.pattern.survived_by]
    steps = [step for _, c in nans if (step := c.event.fields.get("step")) is not None]
    times = [c.event.at for _, c in nans if c.event.at is not None]
    for at, claim in nans:
        e = claim.event
        in_time = not times or (e.at is not None and e.at <= min(times) + AT_ONCE_S)
        if not (e.fields.get("step") == min(steps) if steps else in_time):
            yield Defeat(at, "symptom", "NaN spreads with the gradients")


def only_tried_again(view: View) -> Iterator[Defeat]:
    """A warning about a retry, where nothing failed."""
    failed = any(c.accuses and not _is_retry(c) and c.pattern.severity in LOUD for c in view.claims)
    for at, claim in view.numbered("cause"):
        if not (failed or view.case.ends) and _is_retry(claim):
            yield Defeat(at, "symptom", "it is retried, and no line shows that it failed for good")


def _is_retry(claim: Claim) -> bool:
    form = claim.pattern.tried_again
    return bool(form) and all(regexes.search(form, e.text) for e in claim.events)
