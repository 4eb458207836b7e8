"""The parts of a root that its fingerprint is made of: not those that differ between two views of one failure (the
first line, its rank, the words of a version).

    a crash               its signal: the kernel's line, the launcher's exit code and faulthandler's dump are equal
    a full /dev/shm       no more than that: which rank meets it first is chance
    a store out of reach  equal for the rank that waits in it and those that cannot reach it
    sizes that differ     equal by gloo and by TORCH_DISTRIBUTED_DEBUG=DETAIL
    a Python exception    its type and words, which are the program's own; a library's words change with each release
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict.solution import Solution
from postmortem.formats import endings
from postmortem.model import fingerprint
from postmortem.model.contract.incident import Rank
from postmortem.model.contract.verdict import Verdict
from postmortem.model.digits import number
from postmortem.model.vocabulary import OF_THE_GROUP
from postmortem.say import collective, evidence
from postmortem.system import forms

TIMES = (2, 4, 8)  # factors between sizes of the same elements in two types
SIZES, STORE, SHM = "collective-sizes-differ", "store-out-of-reach", "shared-memory-full"
_REGEXES = forms.regexes("say/lines")
_LOADER = "torch/utils/data/"


def printed(solution: Solution, verdict: Verdict, ranks: Sequence[Rank]) -> str | None:
    """The fingerprint of the document; None where there is no root."""
    root = solution.root
    if root is None:
        return None
    category, culprit = root.pattern.category or "", verdict["culprit"]
    kind, where = _kind(solution, root), _where(solution, root, verdict)
    details = _details(solution, root, verdict, ranks, kind, where)
    return fingerprint.fingerprint(category, kind, list(details), where, [*culprit["hosts"], *culprit["gpus"]])


def _kind(solution: Solution, root: Claim) -> str:
    """The pattern, or the failure that several patterns report."""
    category = root.pattern.category
    if root.tells("shm-full"):
        return SHM
    if category == "native-crash" and not root.tells("child"):
        ends = [endings.reported(root.event), *(solution.case.end_of(rank) for rank in solution.ranks)]
        return next((end.signal for end in ends if end and end.signal in endings.FAULTS), root.pattern.id)
    # a rank that waits in a store which others cannot reach sees ranks that never came
    no_store = root.tells("no-store") or (root.tells("join-wait") and bool(solution.case.telling("no-store")))
    if not root.pattern.derived and no_store:
        return STORE
    if category == "collective-mismatch" and _sizes(solution, root):
        return SIZES
    return root.pattern.id


def _sizes(solution: Solution, root: Claim) -> str:
    """Whether the sizes in one collective differ, and only by the type of the elements; empty where they do not."""
    fields = root.event.fields
    low, high = sorted((number(fields.get("bytes")) or 0, fields.get("expected_bytes") or 0))
    if low:
        return "as types do" if not high % low and high // low in TIMES else "otherwise"
    prints = collective.announced(solution.case).values()
    if len({op for op, *_ in prints}) != 1:
        return ""
    if len({dtype for *_, dtype in prints}) > 1:
        return "as types do"
    return "otherwise" if len({elements for _, _, elements, _ in prints}) > 1 else ""


def _where(solution: Solution, root: Claim, verdict: Verdict) -> str | None:
    """The user's function; of a mismatch that of the others, since the place of the odd rank is not always known."""
    if root.of("met"):
        return None
    if root.pattern.category == "collective-mismatch" and (usual := _usual_place(solution, verdict)):
        return usual
    code, stacks_of = verdict["culprit"]["code"], [e.fields for e in root.events]
    call = root.pattern.category in OF_THE_GROUP  # it distinguishes two waits of one function
    return fingerprint.frame(code, stacks_of, root.event.kind == "stack", call) if code else None


def _usual_place(solution: Solution, verdict: Verdict) -> str:
    """The place of most ranks in a collective, but for the culprits."""
    found = Counter[str]()
    for e in evidence.shown(solution.case):
        rank, code = solution.case.rank_of(e), e.fields.get("code")
        if rank not in verdict["culprit"]["ranks"] and code and e.fields.get("collective"):
            found[fingerprint.frame(code, [e.fields], e.kind != "exception")] += 1
    return min(found, key=lambda place: (-found[place], place), default="")


def _details(
    solution: Solution, root: Claim, verdict: Verdict, ranks: Sequence[Rank], kind: str, where: str | None
) -> Iterator[str]:
    category = root.pattern.category
    if kind in endings.FAULTS:
        yield from [] if where else _crashed_in(root)
    elif kind == STORE:
        yield from _reached(solution)
    elif category == "collective-mismatch":
        yield from _collective(solution, root, verdict, where)
    elif root.pattern.derived:
        yield from _ended(root, verdict, ranks)
    elif kind != SHM:
        yield from _words(solution, root)
    if category == "host-oom":
        # the limit of a cgroup was reached, and not that of the host
        limited = "memory cgroup" in root.event.text.lower() or "MEMCG" in root.event.fields.get("reason", "")
        yield "of a group of processes" if limited else ""
        forming = any(link.effect.pattern.category == "rendezvous" for link in solution.account.links)
        yield "before the group formed" if forming else ""  # memory for the start is no leak
    if category == "hang" and _locked(solution, root, verdict):
        yield "a worker waits for a lock"


def _words(solution: Solution, root: Claim) -> Iterator[str]:
    fields = root.event.fields
    # captures that distinguish failures of one kind
    words = {"detail": fields.get("detail"), "reason": fields.get("reason"), "signal": fields.get("signal")}
    if root.pattern.category == "python-exception" and "message" in fields and fields.get("type"):
        yield fingerprint.normalised(f"{fields['type']}: {fields['message']}", _hosts(solution))
        return
    if "xid" in fields:
        yield fields["xid"]
    if root.pattern.category == "storage":  # the error of the system
        text = " ".join(filter(None, (fields.get("message"), *words.values())))
        yield from sorted({m[0].lower() for m in _REGEXES["refusal"].finditer(text)})
        return
    if root.pattern.category == "environment" and fields.get("path"):  # the library that is missing
        yield fingerprint.normalised(fields["path"].rpartition("/")[2])
    for name, word in words.items():
        if word is not None:
            yield f"{name} {fingerprint.normalised(word, _hosts(solution))}"
    if fields.get("comm"):
        yield fingerprint.program(fields["comm"])


def _ended(root: Claim, verdict: Verdict, ranks: Sequence[Rank]) -> Iterator[str]:
    """The exit code or signal, where the verdict rests on it."""
    if root.strength != "ended":
        return
    code = root.event.fields.get("exitcode")
    if code is not None:
        yield str(128 - code if code > 128 else code)  # a shell reports 137 where torchrun reports -9
    else:
        exits = {row["exit"] for row in ranks if row["rank"] in verdict["culprit"]["ranks"]}
        yield " ".join(sorted(word for word in exits if word))


def _crashed_in(root: Claim) -> Iterator[str]:
    """The library of a crash without a stack, by the kernel; the C library and the interpreter only run others'
    work."""
    if m := _REGEXES["library"].match(root.event.fields.get("detail", "")):
        yield m[0]
    comm = fingerprint.program(root.event.fields.get("comm") or "python")
    if comm != "python":
        yield comm


def _reached(solution: Solution) -> Iterator[str]:
    """Why ranks could not reach the store: they looked for it on their own host, or there is no route to it."""
    tries = [e for e in solution.case.by_kind["pattern"] if e.fields.get("address")]
    if any(_REGEXES["loopback"].match(e.fields["address"]) for e in tries):
        yield "on the own host"
    if any(_REGEXES["unreachable"].search(e.fields.get("detail", "")) for e in tries):
        yield "no way there"


def _locked(solution: Solution, root: Claim, verdict: Verdict) -> bool:
    """Whether a worker of the rank's data loader waits for a lock, and not for data."""
    if not any(_LOADER in file for file, _, _ in root.event.fields.get("frames", ())):
        return False
    parents = {str(pid) for pid in verdict["culprit"]["pids"]}
    children = (e.fields for e in solution.case.by_kind["process"] if e.fields.get("ppid") in parents)
    return any("futex" in fields.get("wchan", "") for fields in children)


def _collective(solution: Solution, root: Claim, verdict: Verdict, where: str | None) -> Iterator[str]:
    """How sizes differ; and the operation (`ALLREDUCE`, `all_reduce`), where no frame has its call."""
    yield _sizes(solution, root)
    stuck = verdict.get("collective")
    op = stuck["op"] if stuck and ">" not in (where or "") else None
    yield re.sub(r"[^a-z]", "", op.lower()) if op else ""


def _hosts(solution: Solution) -> set[str]:
    registry = solution.case.registry
    return {s.host for s in solution.case.sources.values() if s.host} | set(registry.host_of.values())
