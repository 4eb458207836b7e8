"""The category of an error that no pattern knows, by its words (topics.yaml) or by the file that raised it (frames.yaml).

    RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)       environment
    PMIX ERROR: NOT-FOUND in file server/pmix_server.c at line 229                       environment
    MPID_Init(441).......:  MPIR_pmi_init(110)...: PMI_Init returned 1                   rendezvous

A pattern that states only that something failed (`topic` in its file) takes its category from its own line, or also
from the errors right above.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, has
from postmortem.formats.excerpt import CONTEXT
from postmortem.model.vocabulary import OF_PEERS, OF_THE_GROUP, TELLS
from postmortem.system import forms

MOST_CHARACTERS = 600  # characters of a line
_REGEXES = forms.regexes("diagnose/lines")
OF_RAY = "GetTimeoutError"  # ray.exceptions: an object of another process did not come; mostly a controller reports it
DISTRIBUTED = (  # exceptions of torch.distributed and Ray about a peer or the store
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "DistError",
    "DistQueueEmptyError",
    "RendezvousTimeoutError",
    "RendezvousConnectionError",
    OF_RAY,
)


def of(text: str) -> str:
    """The category of a message; empty where its words are of none."""
    return _topic(text).partition(" ")[0]


@lru_cache(maxsize=4096)
def _topic(text: str) -> str:
    """The first topic whose words a message has, as `category part`."""
    found = (name for name, form in forms.regexes("diagnose/topics").items() if form.search(text, 0, MOST_CHARACTERS))
    return next(found, "")


def read(claim: Claim) -> Claim:
    """The claim of a generic pattern, with the part and the category that its words have: what the collective library
    raises about others is a symptom, and where ranks differ no rank is known. Other exceptions stay causes, and only a
    verdict has their category (`named`)."""
    pattern = claim.pattern
    if not (pattern.generic and pattern.topic and claim.accuses):
        return claim
    found, _, part = _words(claim).partition(" ")
    if exception_class(claim) == OF_RAY:
        return replace(claim, role="symptom")
    if not found:
        return claim if pattern.category or pattern.stands_for else replace(claim, role="context")
    pattern = replace(pattern, category=found, generic=False)
    if has(found, "job"):
        return replace(claim, role="cause", ranks=(), pattern=replace(pattern, entity="job"))
    if not has(found, "others"):
        return replace(claim, role="cause", pattern=pattern)
    tells = (part or "wait",) if claim.ranks and (found == "hang" or part in TELLS) else ()
    return replace(claim, role="symptom", pattern=replace(pattern, tells=tells))


def _words(claim: Claim) -> str:
    """The topic of a line that is nothing without it, of an exception of the collective library, and of an interrupt."""
    fields = claim.event.fields
    text = fields.get("line") or fields.get("detail") or claim.event.text
    if claim.pattern.category is None or is_transport(claim) or exception_class(claim) == "KeyboardInterrupt":
        # what it raises without known words reports that a peer did not answer
        return _topic(text) or ("peer-lost" if is_transport(claim) else "")
    frames = fields.get("frames")
    inside = fields.get("collective") and frames and "/torch/distributed/" in frames[-1][0]
    return found if inside and (found := _topic(text)).partition(" ")[0] in (*OF_THE_GROUP, "peer-lost") else ""


def is_transport(claim: Claim) -> bool:
    """Whether the collective library raised it."""
    text = claim.event.fields.get("line") or claim.event.text
    return claim.pattern.generic and (exception_class(claim) in DISTRIBUTED or bool(_REGEXES["transport"].search(text)))


def exception_class(claim: Claim) -> str:
    """The short name of an exception's class."""
    return claim.event.fields.get("type", "").split("(")[0].rsplit(".", 1)[-1]


def named_causes(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """All claims, causes with a category by their words."""
    return [named(case, c) if c.role == "cause" else c for c in claims]


def named(case: Case, root: Claim) -> Claim:
    """The claim with a category by its words, where its pattern has none of its own."""
    if not root.pattern.topic:
        return root
    *_, (file, line, _) = root.event.fields.get("frames") or (("", 0, ""),)  # the innermost frame
    of_library = (
        name for name, form in forms.regexes("diagnose/frames").items() if form.search(file.replace("\\", "/"))
    )
    found = next(filter(None, map(of, _lines(case, root))), "") or next(of_library, "")
    # a class of the program's own is no hang: `FeatureStoreError: fetch timed out`
    kind = (root.event.fields.get("type") or "RuntimeError").rpartition(".")[2]
    own_class = "Timeout" not in kind and not hasattr(builtins, kind) and not kind.startswith("Dist")
    # nor is a line of the program's own, as `print()` into a closed pipe, a report on a peer
    own_line = f"{file.rpartition('/')[2]}:{line}" == root.event.fields.get("code")
    if not found or (found == "hang" and own_class) or (found in OF_PEERS and own_line):
        return root
    return replace(root, pattern=replace(root.pattern, category=found))


def _lines(case: Case, root: Claim) -> Iterator[str]:
    """Its own line, the lines of its message below, and the lines around it, from the last to the first."""
    e = root.event
    text = e.fields.get("line") or e.text
    around = root.pattern.topic == "around"
    yield text
    if around or (e.fields.get("line") and text.endswith(":")):
        yield from filter(_is_message, e.context[e.before + 1 : e.before + 3])
    if around:
        yield from filter(_is_message, reversed(e.context[max(0, e.before - CONTEXT) : e.before]))
        near = [x for x in case.by_source[e.where.source] if -2 <= e.line - x.line <= CONTEXT and x.line != e.line]
        yield from (x.text for x in sorted(near, key=lambda e: e.line, reverse=True))


def _is_message(line: str) -> bool:
    """Whether a line is no frame of a traceback and no code."""
    return not line.startswith(("  File ", "    ", "\t"))
