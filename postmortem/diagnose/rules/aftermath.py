"""What follows from trouble that the same rank had before, or from what another rank had first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from postmortem.diagnose.claims import Claim
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.same import same_host
from postmortem.library import regexes
from postmortem.model.digits import number

LOUD = ("fatal", "error")
COMPLAINTS = ("peer-lost", "network", "hang", "rendezvous", "collective-mismatch")  # what ranks say of others
WEAKER = ("native-crash", "python-exception", "environment")
WAITED = ("hang", "rendezvous", "network")
NEAR = 60  # lines between a library's complaint and what the program makes of it
_OF_RANKS = re.compile(  # libraries through which the processes of a job talk to each other
    r"(?:^|[/\\])(?:torch|multiprocessing|ray|horovod|mpi4py|zmq|distributed|megatron|deepspeed|vllm|sglang)[/\\]"
)
AT_ONCE = 0.2  # seconds within which ranks print the NaN of one step


def peers_lost_before(view: View) -> Iterator[Defeat]:
    """A rank that had already lost its peers and then crashes or raises is a victim, whatever it prints
    while it dies."""
    losses = _first_losses(view)
    for at, claim in view.numbered("cause"):
        e = claim.event
        loss = losses.get((view.case.rank_of(e), e.where.source))
        if view.case.rank_of(e) is None:
            loss = _all_lost(view, claim, losses)
        if loss is None or (e.where.line or 0) <= (loss.event.where.line or 0):
            continue
        weaker = WEAKER if loss.role == "cause" else WEAKER + WAITED
        # an aborted all_gather_object asks for as many bytes as its sizes, which nobody sent, happen to say
        garbage = bool(e.fields.get("collective")) and claim.pattern.category not in COMPLAINTS
        if claim.pattern.category in weaker or garbage:
            yield Defeat(at, "symptom", f"the rank had lost its peers earlier ({loss.event.where})")


def _all_lost(view: View, claim: Claim, losses: Mapping[tuple[int | None, str], Claim]) -> Claim | None:
    """The last of the complaints of all ranks that speak in this log: whichever of them crashed without
    a name had lost its peers. None where one of them had not complained, or where no name is known."""
    source = claim.event.where.source
    ranks = view.case.ranks_of(view.case.by_source[source])
    found = [losses.get((rank, source)) for rank in ranks]
    own = [c for c in found if c is not None]
    if claim.pattern.category != "native-crash" or not own or len(own) < len(found):
        return None
    return max(own, key=lambda c: c.event.where.line or 0)


def _first_losses(view: View) -> dict[tuple[int | None, str], Claim]:
    """The first complaint of every rank in each of its logs."""
    first: dict[tuple[int | None, str], Claim] = {}
    for claim in view.claims:
        e = claim.event
        if (
            claim.accuses
            and claim.pattern.category in COMPLAINTS
            and claim.speaker != "kernel"
            and e.where.line
            and not _of_a_service(claim)
        ):
            key = (view.case.rank_of(e), e.where.source)
            if key not in first or (first[key].event.where.line or 0) > e.where.line:
                first[key] = claim
    return first


def _of_a_service(claim: Claim) -> bool:
    """Whether the program itself called something that is no rank, and says below in its own words what
    that means: `raise RuntimeError("the feature store is gone") from error`."""
    frames = claim.event.fields.get("frames")
    if not claim.event.fields.get("chained") or not isinstance(frames, tuple) or not frames:
        return False
    return claim.pattern.category in ("peer-lost", "network") and not any(
        _OF_RANKS.search(str(frame[0])) for frame in frames
    )


def _on(node: Claim, claim: Claim) -> bool:
    """Whether a claim may be of this node; what is unknown on one side forbids nothing."""
    if not node.hosts or not claim.hosts:
        return True
    return any(same_host(a, b) for a in node.hosts for b in claim.hosts)


def _meet(a: Claim, b: Claim) -> bool:
    return not a.ranks or not b.ranks or bool(set(a.ranks) & set(b.ranks))


def _spreading(view: View) -> list[tuple[int, Claim]]:
    """Claims of what reaches all ranks with the next collective, whatever part is left to them."""
    return [(at, c) for at, c in view.numbered("cause", "symptom") if c.pattern.spreads]


def nan_that_spread(view: View) -> Iterator[Defeat]:
    """NaN spreads to all ranks with the next all-reduce: the rank that showed it first has it."""
    nans = _spreading(view)
    steps = [step for _, c in nans if (step := number(c.event.fields.get("step"))) is not None]
    moments = [c.event.at for _, c in nans if c.event.at is not None]
    for at, claim in nans:
        e = claim.event
        if steps:
            first = number(e.fields.get("step")) == min(steps)
        else:
            first = not moments or (e.at is not None and e.at <= min(moments) + AT_ONCE)
        if not first:
            yield Defeat(at, "symptom", "NaN spreads with the gradients")


def only_tried_again(view: View) -> Iterator[Defeat]:
    """A warning of what is tried again, where nothing failed: nobody can say how it ended."""
    failed = bool(view.case.ends) or any(
        c.accuses and not _is_retry(c) and c.pattern.severity in LOUD for c in view.claims
    )
    for at, claim in view.numbered("cause"):
        if not failed and _is_retry(claim):
            yield Defeat(at, "symptom", "it is retried, and no line shows that it failed for good")


def _is_retry(claim: Claim) -> bool:
    form = claim.pattern.tried_again
    return bool(form) and all(regexes.search(form, e.text) for e in claim.events)
