"""The root -> what its fingerprint is made of. What differs between two views of one failure (whose line
was first, who wrote it, on which rank, in which version's words) is left out.

    a crash               by its signal: the kernel's line, the launcher's exit code and faulthandler's dump are one
    a full /dev/shm       by that alone: who meets it first is chance
    a store out of reach  as the rank that waits in it tells it, and those that cannot get there
    sizes that differ     as gloo tells it, and TORCH_DISTRIBUTED_DEBUG=DETAIL
    a Python exception    by its type and words, which are the program's own; elsewhere the pattern knows what the
                          words mean, and they change with each release of the library that wrote them
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from postmortem.diagnose import collective, endings, stacks
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.solution import Solution
from postmortem.model import fingerprint
from postmortem.model.contract.incident import Rank
from postmortem.model.contract.verdict import Verdict
from postmortem.model.digits import number

WORDS = ("detail", "reason", "signal")  # captures that tell which failure of its kind it is
CODES = ("xid",)
TIMES = (2, 4, 8)  # sizes that differ so are of the same elements in another type
FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")  # of which a process says nothing; who aborts says why
MET = (  # categories in which the function only met what failed
    "environment", "external-signal", "host-oom", "network", "rendezvous", "scheduler", "shared-memory",
)  # fmt: skip
DIFFER = ("hang", "collective-mismatch")  # in which the call tells two waits of one function apart
SIZES, STORE, SHM = "collective-sizes-differ", "store-out-of-reach", "shared-memory-full"
_REFUSALS = re.compile(
    r"(?i)no space left|permission denied|read-only file system|quota exceeded|stale file handle|input/output error"
)
_UNREACHABLE = re.compile(r"(?i)unreachable|no route to host")
_LOOPBACK = re.compile(r"\[?(?:127\.|localhost\b|::1\b|::ffff:127\.)")
_LIBRARY = re.compile(r"(?!ld-|lib(?:c|m|pthread|stdc\+\+|gcc_s|python[\d.]*)\.so)\S+?\.so\b")
_LOADER = "torch/utils/data/"


def printed(solution: Solution, verdict: Verdict, ranks: Sequence[Rank]) -> str | None:
    """The fingerprint of the document; None where there is no root."""
    root = solution.root
    if root is None:
        return None
    category, culprit = root.pattern.category or "", verdict["culprit"]
    what, where = _what(solution, root), _where(solution, root, verdict)
    said = _said(solution, root, verdict, ranks, what, where)
    return fingerprint.fingerprint(category, what, list(said), where, [*culprit["hosts"], *culprit["gpus"]])


# ── what failed ─────────────────────────────────────────────────────────────────────────────────────────────


def _what(solution: Solution, root: Claim) -> str:
    """The pattern, or what several patterns are witnesses of."""
    category = root.pattern.category
    if root.tells("shm-full"):
        return SHM
    if category == "native-crash" and not root.tells("child"):
        return _fault(solution, root) or root.pattern.id
    if not root.pattern.derived and _no_store(solution, root):
        return STORE
    if category == "collective-mismatch" and _sizes(solution, root):
        return SIZES
    return root.pattern.id


def _no_store(solution: Solution, root: Claim) -> bool:
    """Whether ranks did not get to the store; the one that waits in it cannot tell that from ranks that never came."""
    return root.tells("no-store") or (root.tells("join-wait") and bool(solution.case.telling("no-store")))


def _fault(solution: Solution, root: Claim) -> str:
    ends = [endings.told(root.event), *(solution.case.end_of(rank) for rank in solution.ranks)]
    return next((end.signal for end in ends if end and end.signal in FAULTS), "")


def _sizes(solution: Solution, root: Claim) -> str:
    """Whether the ranks were in one collective with sizes that differ; and whether only as types do."""
    sizes = [number(root.event.fields.get(name)) for name in ("bytes", "expected_bytes")]
    low, high = sorted(size or 0 for size in sizes)
    if low:
        return "as types do" if not high % low and high // low in TIMES else "otherwise"
    prints = collective.announced(solution.case).values()
    if len({op for op, *_ in prints}) != 1:
        return ""
    if len({dtype for *_, dtype in prints}) > 1:
        return "as types do"
    return "otherwise" if len({elements for _, _, elements, _ in prints}) > 1 else ""


# ── where ───────────────────────────────────────────────────────────────────────────────────────────────────


def _where(solution: Solution, root: Claim, verdict: Verdict) -> str | None:
    """The user's function. Of a mismatch where the others stood: who is at odds with them leaves a trace of
    its own place in some kinds of evidence only."""
    if root.pattern.category in MET:
        return None
    if root.pattern.category == "collective-mismatch" and (stood := _stood(solution, verdict)):
        return stood
    code, stacks_of = verdict["culprit"]["code"], [e.fields for e in root.events]
    call = root.pattern.category in DIFFER
    return fingerprint.frame(code, stacks_of, root.event.kind == "stack", call) if code else None


def _stood(solution: Solution, verdict: Verdict) -> str:
    """Where most of the ranks stood that were in a collective, but for the culprits."""
    found = Counter[str]()
    for e in stacks.shown(solution.case):
        rank, code = solution.case.rank_of(e), e.fields.get("code")
        if rank not in verdict["culprit"]["ranks"] and code and e.fields.get("collective"):
            found[fingerprint.frame(str(code), [e.fields], e.kind != "exception")] += 1
    return min(found, key=lambda place: (-found[place], place), default="")


# ── what the line says ──────────────────────────────────────────────────────────────────────────────────────


def _said(
    solution: Solution, root: Claim, verdict: Verdict, ranks: Sequence[Rank], what: str, where: str | None
) -> Iterator[str]:
    category = root.pattern.category
    if what in FAULTS:
        yield from [] if where else _crashed_in(root)
    elif what == STORE:
        yield from _reached(solution)
    elif category == "collective-mismatch":
        yield from _collective(solution, root, verdict, where)
    elif root.pattern.derived:
        yield from _ended(root, verdict, ranks)
    elif what != SHM:
        yield from _words(solution, root)
    if category == "host-oom":
        yield "of a group of processes" if _limited(root) else ""
        yield "before the group formed" if _forming(solution) else ""
    if category == "hang" and _locked(solution, root, verdict):
        yield "a worker waits for a lock"


def _words(solution: Solution, root: Claim) -> Iterator[str]:
    fields = root.event.fields
    if root.pattern.category == "python-exception" and "message" in fields and fields.get("type"):
        yield fingerprint.normalised(f"{fields['type']}: {fields['message']}", _hosts(solution))
        return
    yield from (str(fields[name]) for name in CODES if fields.get(name) is not None)
    if root.pattern.category == "storage":  # of what the writer says, the system's own word
        told = " ".join(str(fields.get(name) or "") for name in ("message", *WORDS))
        yield from sorted({m[0].lower() for m in _REFUSALS.finditer(told)})
        return
    if root.pattern.category == "environment" and fields.get("path"):  # the library that is missing
        yield fingerprint.normalised(str(fields["path"]).rpartition("/")[2])
    for name in WORDS:
        if fields.get(name) is not None:
            yield f"{name} {fingerprint.normalised(str(fields[name]), _hosts(solution))}"
    if fields.get("comm"):
        yield fingerprint.program(str(fields["comm"]))


def _ended(root: Claim, verdict: Verdict, ranks: Sequence[Rank]) -> Iterator[str]:
    """How the process ended, where that is what the verdict rests on: SIGKILL is not SIGABRT."""
    if root.strength != "ended":
        return
    code = number(root.event.fields.get("exitcode"))
    if code is not None:
        yield str(128 - code if code > 128 else code)  # a shell says 137 where torchrun says -9
    else:
        exits = {row["exit"] for row in ranks if row["rank"] in verdict["culprit"]["ranks"]}
        yield " ".join(sorted(word for word in exits if word))


def _crashed_in(root: Claim) -> Iterator[str]:
    """The library in which the kernel saw a crash of which no stack is known. The C library and the
    interpreter carry out what others asked of them: they tell no more than the signal."""
    if m := _LIBRARY.match(str(root.event.fields.get("detail") or "")):
        yield m[0]
    comm = fingerprint.program(str(root.event.fields.get("comm") or "python"))
    if comm != "python":
        yield comm


def _reached(solution: Solution) -> Iterator[str]:
    """Why ranks did not get to the store, where more than their time-out tells: they looked for it on their
    own host, or no way leads to it."""
    tries = [e for e in solution.case.by_kind["pattern"] if e.fields.get("address")]
    if any(_LOOPBACK.match(str(e.fields["address"])) for e in tries):
        yield "on the own host"
    if any(_UNREACHABLE.search(str(e.fields.get("detail") or "")) for e in tries):
        yield "no way there"


def _limited(root: Claim) -> bool:
    """Whether a limit was reached (a cgroup's, of a container or a job) and not the end of the machine."""
    return "memory cgroup" in root.event.text.lower() or "MEMCG" in str(root.event.fields.get("reason"))


def _forming(solution: Solution) -> bool:
    """Whether others were still waiting for the group: memory that the start takes is another matter than a
    leak."""
    return any(link.effect.pattern.category == "rendezvous" for link in solution.account.links)


def _locked(solution: Solution, root: Claim, verdict: Verdict) -> bool:
    """Whether the rank waits for a worker of its data loader that waits for a lock, and not for data."""
    frames = root.event.fields.get("frames")
    if not isinstance(frames, tuple) or not any(_LOADER in str(f[:1]) for f in frames):
        return False
    parents = {str(pid) for pid in verdict["culprit"]["pids"]}
    return any(
        str(e.fields.get("ppid")) in parents and "futex" in str(e.fields.get("wchan"))
        for e in solution.case.by_kind["process"]
    )


def _collective(solution: Solution, root: Claim, verdict: Verdict, where: str | None) -> Iterator[str]:
    """How sizes differ; and which operation, whoever writes it (`ALLREDUCE`, `all_reduce`), where no frame
    has its call."""
    yield _sizes(solution, root)
    stuck = verdict.get("collective")
    op = stuck["op"] if stuck and ">" not in (where or "") else None
    yield re.sub(r"[^a-z]", "", op.lower()) if op else ""


def _hosts(solution: Solution) -> set[str]:
    registry = solution.case.registry
    return {s.host for s in solution.case.sources.values() if s.host} | set(registry.host_of.values())
