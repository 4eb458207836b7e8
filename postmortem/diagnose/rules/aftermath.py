"""What follows from trouble that the same rank had before, or from what another rank had first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from postmortem.diagnose import life
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.order import before
from postmortem.diagnose.rules.reading import exception
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.same import same_host
from postmortem.library import regexes
from postmortem.model.digits import number

LOUD = ("fatal", "error")
COMPLAINTS = ("peer-lost", "network", "hang", "rendezvous", "collective-mismatch")  # what ranks say of others
WEAKER = ("native-crash", "python-exception", "environment")
WAITED = ("hang", "rendezvous", "network")
ABORT = ("Aborted", "SIGABRT", "6")
FAILING_S = 600.0  # seconds until a scheduler declares a node down
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


def stopped_after_time_out(view: View) -> Iterator[Defeat]:
    """Who stops a job in which a rank has timed out is a messenger: a person, a wrapper's limit, a
    platform."""
    waited = [c for c in view.claims if c.accuses and c.pattern.category == "hang" and c.speaker == "rank"]
    for at, claim in view.numbered("cause"):
        if not claim.tells("stop") or claim.pattern.category != "external-signal":
            continue
        if first := next((c for c in waited if before(c, claim)), None):
            yield Defeat(at, "symptom", f"a rank had timed out earlier ({first.event.where})")


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


def node_was_lost(view: View) -> Iterator[Defeat]:
    """What a rank sees of a node that fails is the failure from inside: a GPU that does not answer, a
    crash."""
    lost = [c for c in view.claims if c.role == "cause" and c.tells("node-lost")]
    for at, claim in view.numbered("cause"):
        if claim.pattern.category not in ("gpu-fault", "native-crash") or claim.speaker == "kernel":
            continue
        for node in lost:
            soon = node.at is None or claim.at is None or abs(node.at - claim.at) <= FAILING_S
            if soon and _on(node, claim):
                yield Defeat(at, "symptom", f"its node had failed ({node.event.where})")


def _on(node: Claim, claim: Claim) -> bool:
    """Whether a claim may be of this node; what is unknown on one side forbids nothing."""
    if not node.hosts or not claim.hosts:
        return True
    return any(same_host(a, b) for a in node.hosts for b in claim.hosts)


def import_was_optional(view: View) -> Iterator[Defeat]:
    """Nobody died of a failed import on a line without a name, if every rank raises something else under
    its own name further down: the program did without the module. Of others a later one may be the
    consequence."""
    ranks = set(view.case.registry.ranks)
    own: dict[str, dict[int, int]] = {}
    for c in view.claims:
        e = c.event
        if e.fields.get("excepthook") and e.rank is not None and e.where.line:
            last = own.setdefault(e.where.source, {})
            last[e.rank] = max(last.get(e.rank, 0), e.where.line)
    for at, claim in view.numbered("cause"):
        e = claim.event
        later = {r for r, line in own.get(e.where.source, {}).items() if line > (e.where.line or 0)}
        nameless = exception(claim) in ("ModuleNotFoundError", "ImportError") and e.rank is None
        if nameless and ranks and later >= ranks:
            yield Defeat(at, "context", "every rank continued, and raised another exception itself")


def library_said_why(view: View) -> Iterator[Defeat]:
    """A program that raises because a library failed knows less than the library, which said why above."""
    told = [c for c in view.claims if c.role == "cause" and c.event.fields.get("library", "-") != "-"]
    for at, claim in view.numbered("cause"):
        if not claim.pattern.generic:
            continue
        for why in told:
            if why is not claim and _just_above(why, claim):
                yield Defeat(at, "symptom", f"the library had reported the reason ({why.event.where})")


def _just_above(a: Claim, b: Claim) -> bool:
    """Whether `a` stands above `b` in one log, said by the same rank as far as is known."""
    if a.event.where.source != b.event.where.source or not _meet(a, b):
        return False
    opened = number(b.event.fields.get("opened")) or b.event.where.line or 0
    return 0 < opened - (a.event.where.line or 0) <= NEAR


def abort_after_reason(view: View) -> Iterator[Defeat]:
    """SIGABRT is how a process ends that has said why: any other cause of the same process is nearer."""
    reasons = [
        c for c in view.claims if c.role == "cause" and c.pattern.category != "native-crash" and c.speaker != "kernel"
    ]
    for at, claim in view.numbered("cause"):
        if claim.pattern.category != "native-crash" or str(claim.event.fields.get("signal")) not in ABORT:
            continue
        for reason in reasons:
            if reason.event.where.source == claim.event.where.source and _meet(reason, claim):
                why = f"the abort follows from {reason.pattern.id} ({reason.event.where})"
                yield Defeat(at, "symptom", why)


def _meet(a: Claim, b: Claim) -> bool:
    return not a.ranks or not b.ranks or bool(set(a.ranks) & set(b.ranks))


def _spreading(view: View) -> list[tuple[int, Claim]]:
    """Claims of what reaches all ranks with the next collective, whatever part is left to them."""
    return [(at, c) for at, c in view.numbered("cause", "symptom") if c.pattern.spreads]


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


def single_nan(view: View) -> Iterator[Defeat]:
    """One NaN that goes away is no failure. Whether it does, only a later step tells."""
    nans = _spreading(view)
    if len(nans) == 1 and any(life.after(view.case, nans[0][1].event, None)):
        yield Defeat(nans[0][0], "context", "a single NaN that did not recur")


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
