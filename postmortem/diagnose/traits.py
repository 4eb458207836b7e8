"""The root -> what its fingerprint is made of. What differs between two views of one failure (whose line
was first, who wrote it, on which rank) is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from postmortem import fingerprint
from postmortem.contract.incident import Rank
from postmortem.contract.verdict import Verdict
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.solution import Solution
from postmortem.digits import number

WORDS = ("detail", "reason", "signal")  # captures that tell which failure of its kind it is
CODES = ("xid",)
TIMES = (2, 4, 8)  # sizes that differ so are of the same elements in another type


def printed(solution: Solution, verdict: Verdict, ranks: Sequence[Rank]) -> str | None:
    """The fingerprint of the document; None where there is no root."""
    root = solution.root
    if root is None:
        return None
    code, culprit = verdict["culprit"]["code"], verdict["culprit"]
    stacks = [e.fields for e in root.events]
    where = fingerprint.frame(code, stacks, root.event.kind == "stack") if code else None
    if where and ">" in where and root.pattern.category not in ("hang", "collective-mismatch"):
        where = where.partition(">")[0]  # what raised in it stands in the message
    said = list(_said(solution, root, verdict, ranks))
    hosts = culprit["hosts"]
    return fingerprint.fingerprint(
        root.pattern.category, root.pattern.id, said, where, [*hosts, *culprit["gpus"]]
    )


def _said(solution: Solution, root: Claim, verdict: Verdict, ranks: Sequence[Rank]) -> Iterator[str]:
    fields = root.event.fields
    if root.pattern.derived:
        yield from _ended(root, verdict, ranks)
    elif "message" in fields and fields.get("type"):
        yield fingerprint.normalised(f"{fields['type']}: {fields['message']}", _hosts(solution))
    else:
        yield from (str(fields[name]) for name in CODES if fields.get(name) is not None)
        for name in WORDS:
            if fields.get(name) is not None:
                yield f"{name} {fingerprint.normalised(str(fields[name]), _hosts(solution))}"
        if fields.get("comm"):
            yield fingerprint.program(str(fields["comm"]))
    if root.pattern.category == "host-oom":
        yield "before the group formed" if _forming(solution) else ""
    if root.pattern.category == "collective-mismatch":
        yield from _collective(root, verdict)


def _ended(root: Claim, verdict: Verdict, ranks: Sequence[Rank]) -> Iterator[str]:
    """How the process ended, where that is what the verdict rests on: SIGSEGV is not SIGABRT."""
    if root.strength != "ended":
        return
    code = number(root.event.fields.get("exitcode"))
    if code is not None:
        yield str(128 - code if code > 128 else code)  # a shell says 137 where torchrun says -9
    else:
        exits = {row["exit"] for row in ranks if row["rank"] in verdict["culprit"]["ranks"]}
        yield " ".join(sorted(word for word in exits if word))


def _forming(solution: Solution) -> bool:
    """Whether others were still waiting for the group: memory that the start takes is another matter than a
    leak."""
    return any(link.effect.pattern.category == "rendezvous" for link in solution.account.links)


def _collective(root: Claim, verdict: Verdict) -> Iterator[str]:
    """Which operation, whoever writes it (`ALLREDUCE`, `all_reduce`), and whether sizes differ as types
    do."""
    stuck = verdict.get("collective")
    op = stuck["op"] if stuck else None
    yield re.sub(r"[^a-z]", "", op.lower()) if op else ""
    sizes = [number(root.event.fields.get(name)) for name in ("bytes", "expected_bytes")]
    low, high = sorted(size or 0 for size in sizes)
    if low:
        yield f"times {high // low}" if not high % low and high // low in TIMES else "of other sizes"


def _hosts(solution: Solution) -> set[str]:
    registry = solution.case.registry
    return {s.host for s in solution.case.sources.values() if s.host} | set(registry.host_of.values())
