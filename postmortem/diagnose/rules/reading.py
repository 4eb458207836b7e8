"""What a line is: quoted, raised in a signal's handler, how a process is asked to stop, or a peer's silence
in other words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive import rank_lists
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.wording import ranks_text
from postmortem.model import Event
from postmortem.privacy import cut

_TRANSPORT = re.compile(
    # `ProcessGroupGloo::scatter: Incorrect input list size 2` finds fault with the caller
    r"gloo/transport/|ProcessGroup(?:Gloo|NCCL|UCC|MPI)(?!::\w+(?:: | takes ))|\bc10d\b|TCPStore"
    r"|\bNCCL (?:error|Async Error|operation timed out|\w+ failed)\b"
)
_ABORT = re.compile(r"c10::Dist|c10d|gloo::|ProcessGroup|NCCL|[Ww]atchdog")
_RESULT = re.compile(r"NCCL (?:error|Async Error|\w+ failed)|\bnccl[A-Z]\w+(?:Error|Usage|Argument)\b")
FAR = 40  # lines of a message below its head
DISTRIBUTED = (  # torch/distributed and Ray: what these say of is a peer or the store
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "DistError",
    "DistQueueEmptyError",
    "RendezvousTimeoutError",
    "RendezvousConnectionError",
    "GetTimeoutError",  # ray.exceptions: an object of another process did not come
)


def quoted(view: View) -> Iterator[Defeat]:
    for number, claim in view.numbered("cause", "confirms"):
        if claim.event.fields.get("quoted"):
            yield Defeat(number, "context", "the line is quoted (`> …`), so it is about another time or place")


def ignored(view: View) -> Iterator[Defeat]:
    """`Exception ignored in: <function Loader.__del__ …>`: Python prints what a destructor or an exit handler
    raised, and goes on."""
    for number, claim in view.numbered("cause", "symptom"):
        if claim.event.fields.get("ignored"):
            yield Defeat(number, "context", "Python ignored it: a destructor or an exit handler raised it")


def transport(view: View) -> Iterator[Defeat]:
    """An exception of the collective library without a name of its own says that somebody else did not
    answer."""
    for number, claim in view.numbered("cause"):
        if is_transport(claim):
            yield Defeat(number, "symptom", f"{exception(claim)} reports that a peer or the store did not answer")


def is_transport(claim: Claim) -> bool:
    said = str(claim.event.fields.get("line", ""))
    return claim.pattern.generic and (exception(claim) in DISTRIBUTED or bool(_TRANSPORT.search(said)))


def lists_who(view: View) -> Iterator[Defeat]:
    """An exception whose text lists one value for each rank tells of the rank that differs, whoever raised
    it."""
    for number, claim in view.numbered("cause"):
        told = rank_lists.odd(claim.event) if claim.pattern.category == "python-exception" else None
        if told is not None:
            yield Defeat(number, "symptom", f"its own list shows that {ranks_text(told.ranks)} differed")


def abort_of_a_collective(view: View) -> Iterator[Defeat]:
    """An abort on an uncaught exception of the collective library only repeats that exception: with @record
    torchrun switches faulthandler on, so every NCCL watchdog's abort prints `Fatal Python error: Aborted`."""
    for number, claim in view.numbered("cause"):
        fields = claim.event.fields
        told = f"{fields.get('terminate') or ''} {fields.get('what') or ''}".strip()
        if claim.pattern.category == "native-crash" and _ABORT.search(told):
            why = f"the process aborted on an exception of the collective library ({cut(told, 60)})"
            yield Defeat(number, "symptom", why)


def opens_a_message(view: View) -> Iterator[Defeat]:
    """What only opens a message gives way to what the message says: a result code of NCCL above `Last
    error:`, an uncaught C++ exception above its what(), a list of ranks above the reason that each of
    them sent."""
    for number, claim in view.numbered("cause"):
        for other in view.claims:
            if _below(claim.event, other.event) and _says_more(claim, other):
                yield Defeat(number, "symptom", f"its own message says more ({other.event.where})")


def _below(e: Event, x: Event) -> bool:
    """Whether `x` stands in the lines below `e` that may belong to its message."""
    return x.where.source == e.where.source and 0 < (x.where.line or 0) - (e.where.line or 0) <= FAR


def _says_more(claim: Claim, other: Claim) -> bool:
    text, x = claim.event.text, other.event
    if "CheckpointException ranks:" in text:
        return other.role == "cause" and not other.pattern.generic and x.fields.get("reported_by") == "parent"
    if not other.accuses or x.rank != claim.event.rank:
        return False
    if "terminate called after" in text:
        return "what()" in x.text and other.role == "cause"
    return bool(x.fields.get("last_error")) and bool(_RESULT.search(text))


def exception(claim: Claim) -> str:
    """The short name of an exception's class."""
    return str(claim.event.fields.get("type", "")).split("(")[0].rsplit(".", 1)[-1]
