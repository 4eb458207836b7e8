"""Lines that are no cause of their own: quoted, ignored by Python, about a silent peer, or the head of a message."""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare import rank_lists
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.wording import ranks_text
from postmortem.model.grouped import grouped
from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("diagnose/lines")
ON_A_GPU = ("gpu-fault", "gpu-oom", "gpu-hardware")
FAR = 40  # lines of a message below its head
BESIDE = 60  # lines: C++ frames of c10d between its own message and the traceback of the launcher
APART = 8  # lines between two tracebacks of a chain


def quoted(view: View) -> Iterator[Defeat]:
    for number, claim in view.numbered("cause", "confirms"):
        if claim.event.fields.get("quoted"):
            yield Defeat(number, "context", "the line is quoted (`> …`), so it is about another time or place")


def ignored(view: View) -> Iterator[Defeat]:
    """`Exception ignored in: <function Loader.__del__ …>`, or the text of a warning (sklearn's FitFailedWarning)."""
    for number, claim in view.numbered("cause", "symptom"):
        if claim.event.fields.get("ignored"):
            yield Defeat(
                number,
                "context",
                "Python printed it and went on: a destructor or an exit handler raised it, or a warning quotes it",
            )


def raised_again(view: View) -> Iterator[Defeat]:
    """Of two exceptions of one kind, the second raised while the first was handled, the second ended the program: a
    download that was tried again another way."""
    later = {(c.event.where.source, c.event.fields.get("opened")): c for _, c in view.numbered("cause")}
    for number, claim in view.numbered("cause"):
        e = claim.event
        near = (later.get((e.where.source, e.end + n)) for n in range(1, APART)) if e.fields.get("chained") else ()
        other = next((c for c in near if c is not None and c.pattern.id == claim.pattern.id), None)
        x = e if other is None else other.event
        if e.fields.get("type") == x.fields.get("type") and e.fields.get("message") != x.fields.get("message"):
            yield Defeat(number, "symptom", f"it was handled, and raised again ({x.where})")


def raised_by_the_caller(view: View) -> Iterator[Defeat]:
    """What a remote call raised is printed by the rank that ran it, which goes on, and raised by the rank that made it."""
    calls = [(n, c.event) for n, c in view.numbered("cause") if "ran_on" in c.event.fields]
    for number, e in calls:
        again = (x for _, x in calls if x.rank != e.rank and x.fields.get("message") == e.fields.get("message"))
        if e.rank == e.fields["ran_on"] and (caller := next(again, None)) is not None:
            yield Defeat(number, "symptom", f"the rank that made the call raised it ({caller.where})")


def of_another_launch(view: View) -> Iterator[Defeat]:
    """A launcher that cannot open its store starts no rank (elastic/agent/server/api.py, _initialize_workers): ranks
    that work or fail further down are those of another launch in the same log."""
    ends = [*view.case.telling("death"), *view.case.of_kind("worked")]
    claims = [*view.numbered("cause", "symptom", "confirms")]
    stores = (c.event for _, c in claims if c.tells("store"))
    for at in (e for e in stores if any(frame[2] == "next_rendezvous" for frame in e.fields.get("frames", ()))):
        because = [
            f"its launcher started no rank, and others ran ({e.where}): another launch" for e in ends if e.below(at)
        ]
        for number, claim in claims if because else ():
            e = claim.event
            beside = claim.tells("store") and abs(e.line - at.line) <= BESIDE
            if e.where.source == at.where.source and (beside or e.line == at.line):
                yield Defeat(number, "context", because[0])


def of_a_tracker(view: View) -> Iterator[Defeat]:
    """An exception without a frame of the program, raised in the threads or processes of an experiment tracker: it
    ends these, and often because the program ended."""
    for number, claim in view.numbered("cause"):
        frames = claim.event.fields.get("frames", ())
        if not claim.event.fields.get("code") and any(_REGEXES["tracker"].search(frame[0]) for frame in frames):
            yield Defeat(number, "symptom", "it was raised in an experiment tracker's own threads or processes")


def lists_who(view: View) -> Iterator[Defeat]:
    """An exception that lists one value per rank is about the rank that differs, whichever raised it."""
    for number, claim in view.numbered("cause"):
        odd = rank_lists.odd(claim.event) if claim.pattern.category == "python-exception" else None
        if odd is not None:
            yield Defeat(number, "symptom", f"its own list shows that {ranks_text(odd.ranks)} differed")


def abort_of_a_collective(view: View) -> Iterator[Defeat]:
    """An abort on an uncaught exception of the collective library repeats that exception: with @record torchrun
    switches faulthandler on, so every NCCL watchdog's abort prints `Fatal Python error: Aborted`."""
    for number, claim in view.numbered("cause"):
        fields = claim.event.fields
        text = f"{fields.get('terminate') or ''} {fields.get('what') or ''}".strip()
        if claim.pattern.category == "native-crash" and _REGEXES["collective-library"].search(text):
            because = f"the process aborted on an exception of the collective library ({cut(text, 60)})"
            yield Defeat(number, "symptom", because)


def abort_of_a_gpu_error(view: View) -> Iterator[Defeat]:
    """A process that meets a GPU error aborts on it. The fault handler writes without a buffer, so its line may be
    above that of the error."""
    errors = [c for c in view.claims if c.role == "cause" and c.pattern.category in ON_A_GPU and not c.by("outside")]
    for number, claim in view.numbered("cause"):
        if claim.pattern.category == "native-crash" and claim.event.fields.get("signal") == "Aborted":
            own = (c for c in errors if c.event.where.source == claim.event.where.source)
            if found := next((c for c in own if not claim.ranks or not c.ranks or claim.ranks == c.ranks), None):
                yield Defeat(number, "symptom", f"the process aborted on a GPU error ({found.event.where})")


def opens_a_message(view: View) -> Iterator[Defeat]:
    """The head of a message yields to its text: a result code of NCCL to `Last error:`, an uncaught C++ exception to
    its what(), a list of ranks to the reason of each."""
    at = grouped(((c.event.where.source, c.event.line), c) for c in view.claims)
    for number, claim in view.numbered("cause"):
        head = claim.event.where
        for line in range(FAR):
            for other in at.get((head.source, (head.line or 0) + line + 1), ()):
                if _is_more_specific(claim, other):
                    yield Defeat(number, "symptom", f"its own message is more specific ({other.event.where})")


def _is_more_specific(claim: Claim, other: Claim) -> bool:
    text, x = claim.event.text, other.event
    if "CheckpointException ranks:" in text:
        return other.role == "cause" and not other.pattern.generic and x.fields.get("reported_by") == "parent"
    if not other.accuses or x.rank != claim.event.rank:
        return False
    if "terminate called after" in text:
        return "what()" in x.text and other.role == "cause"
    return x.fields.get("last_error", False) and bool(_REGEXES["nccl-result"].search(text))
