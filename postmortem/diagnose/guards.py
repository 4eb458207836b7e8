"""What looks like a cause and is none: each guard takes an observation out, or takes its role, and says so.

Handled exceptions, victims that crash after they lost their peers, wrappers that quote another's traceback, kernel lines of
earlier jobs, generic names where a specific one stands on the same line, text that somebody quoted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from postmortem.diagnose import foreign, lastwords, stale
from postmortem.diagnose.case import LONE, Case, Observation, as_int, gist
from postmortem.diagnose.exits import CRASH, TOLD
from postmortem.model import Event

GENERIC = "python-exception"
PORT_DOWN = "nccl-ib-port-error"  # a port that goes down may come up again before anything notices
PASSING = (
    PORT_DOWN,
    "horovod-missing-ranks",
    "horovod-stall",
    "ssh-unreachable",
    "ssh-refused",
)  # what a job may get over
WAITING = (
    "tcp-client-connect-failed",
    "k8s-failed-scheduling",
    "nccl-connect-retry-note",
    "lightning-waits-for-members",
)
REPEATING = ("vllm-broadcast-not-read",)
RESTORED = {
    "nfs-not-responding": "nfs-server-ok",
    "lustre-connection-lost": "lustre-connection-restored",
    "k8s-mount-timed-out": "k8s-container-started",
    "condor-job-stopped": "condor-ended-well",
}
_TRANSPORT = re.compile(r"gloo/transport/|ProcessGroup(?:Gloo|NCCL|UCC|MPI)|\bNCCL error\b|\bc10d\b|TCPStore")
_DISTRIBUTED_ABORT = re.compile(r"c10::Dist|c10d|gloo::|ProcessGroup|NCCL|[Ww]atchdog")
_OVERCOME = re.compile(
    r"\bretr(?:y|ied|ying)\b|\bfalling back\b|\brecovered\b", re.IGNORECASE
)  # `read failed, retry 1/3`
_GAVE_UP = re.compile(
    r"\b(?:giv(?:e|ing) up|gave up|exhausted|abort(?:ed|ing)?|no more|last)\b", re.IGNORECASE
)
_VERSION = re.compile(r"(\d+)\.(\d+)")
DISTRIBUTED = (
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "DistError",
    "DistQueueEmptyError",
    "RendezvousTimeoutError",
    "RendezvousConnectionError",
)


def apply(case: Case, observations: list[Observation]) -> list[Observation]:
    """All guards, in the order in which they build on each other."""
    observations = _left_aside(case, observations, foreign.rows(case, observations))
    observations = _specific_over_generic(case, observations)
    observations = [_quoted(case, o) for o in observations]
    observations = [_worker_bus_error(case, _echo(case, o)) for o in observations]
    observations = [_handled(case, o) for o in observations]
    observations = [o for o in (stale.kept(case, o, observations) for o in observations) if o is not None]
    observations = [_restored(case, _waiting(case, o), observations) for o in observations]
    observations = _aborted(case, _promoted(case, _after_loss(case, observations)))
    return _left_aside(case, observations, foreign.harmless(case, observations))


def _left_aside(case: Case, observations: list[Observation], why: dict[int, str]) -> list[Observation]:
    return [demote(case, o, "context", why[i]) if i in why else o for i, o in enumerate(observations)]


def demote(case: Case, o: Observation, role: str, why: str) -> Observation:
    case.note(f"{o.pattern.id} at {o.event.where} counts as {role}: {why}")
    return replace(o, role=role, because=why)  # type: ignore[arg-type]


def _specific_over_generic(case: Case, observations: list[Observation]) -> list[Observation]:
    """A traceback whose message has a name of its own is not also "a Python exception", and a wrapper is none at all."""
    specific: dict[str, list[tuple[int, Observation]]] = defaultdict(list)
    documents: dict[str, list[Observation]] = defaultdict(list)
    said: set[tuple[int | None, str]] = set()  # by whom, in another copy of the log maybe
    for o in observations:
        if o.pattern.id != GENERIC and o.pattern.role in ("cause", "symptom"):
            said.add((case.registry.rank_of(o.event), gist(str(o.event.fields.get("line") or o.event.text))))
            if o.event.where.line is None:
                documents[o.event.where.source].append(o)
            else:
                specific[o.event.where.source].append((o.event.where.line, o))
    out = []
    for o in observations:
        if o.pattern.id == GENERIC:
            short = str(o.event.fields.get("type", "")).split("(")[0].rsplit(".", 1)[-1]
            if o.event.fields.get("wrapper"):
                if _named_nearby(o.event, specific, documents) is None:
                    out.append(demote(case, o, "symptom", f"{short} only carries another process's failure"))
                continue
            copy = (case.registry.rank_of(o.event), gist(str(o.event.fields.get("line") or o.event.text)))
            if _named_nearby(o.event, specific, documents) is not None or copy in said:
                continue
            if short in DISTRIBUTED or _TRANSPORT.search(str(o.event.fields.get("line", ""))):
                o = demote(case, o, "symptom", f"{short} says that a peer or the store did not answer")
            elif short in ("KeyboardInterrupt", "SystemExit"):
                o = demote(case, o, "symptom", f"{short} is how a process is asked to stop")
        out.append(o)
    return out


def _named_nearby(
    e: Event, specific: dict[str, list[tuple[int, Observation]]], documents: dict[str, list[Observation]]
) -> Observation | None:
    if e.where.line is None:
        return next(iter(documents.get(e.where.source, ())), None)
    opened = as_int(e.fields.get("opened")) or e.where.line
    end = max(e.where.end_line or 0, e.where.line + LONE)
    for line, o in specific.get(e.where.source, ()):
        if line == e.where.line or (
            opened <= line <= end
            and o.event.fields.get("opened", opened) == opened
            and _same_writer(e, o.event)
            and _no_stamp(o.event)
        ):
            return o
    return None


def _same_writer(a: Event, b: Event) -> bool:
    return a.rank == b.rank and a.fields.get("local_rank") == b.fields.get("local_rank")


def _no_stamp(e: Event) -> bool:
    """A log line of its own carries a stamp; a further line of an exception's message does not."""
    return not e.raw_time or e.clock == "none"


def _echo(case: Case, o: Observation) -> Observation:
    """An abort that an uncaught exception of the collective library ended in only repeats that exception: with @record torchrun
    switches faulthandler on, so every NCCL watchdog's abort prints `Fatal Python error: Aborted`."""
    if o.pattern.id != "faulthandler-fatal-error" or o.role != "cause":
        return o
    told = f"{o.event.fields.get('terminate', '')} {o.event.fields.get('what', '')}"
    if _DISTRIBUTED_ABORT.search(told):
        return demote(
            case,
            o,
            "symptom",
            f"the process aborted on an exception of the collective library ({told.strip()[:60]})",
        )
    return o


def _worker_bus_error(case: Case, o: Observation) -> Observation:
    """torch up to 2.4 finds out by SIGBUS that /dev/shm is full; later ones ask first, and their bus errors have another reason."""
    if o.pattern.id != "dataloader-worker-bus-error":
        return o
    version = _VERSION.match(case.registry.torch or "")
    modern = version is not None and (int(version[1]), int(version[2])) >= (2, 5)
    other = case.library.get("worker-bus-error-of-old-torch")
    if modern or other is None:
        return o
    case.note(
        f"{o.event.where}: a bus error of a worker reads as full shared memory, since no torch of 2.5 or later is named"
    )
    return replace(o, pattern=other)


def _quoted(case: Case, o: Observation) -> Observation:
    if o.event.fields.get("quoted") and o.role in ("cause", "confirms"):
        return demote(case, o, "context", "the line is quoted (`> …`), so it speaks of another time or place")
    if o.event.fields.get("interrupted") and o.role == "cause":
        return demote(
            case, o, "symptom", "it was raised in a signal's handler, so the rank was already being stopped"
        )
    return o


def _handled(case: Case, o: Observation) -> Observation:
    """An exception that its rank survived was handled: the rank went on or said goodbye after it, and nobody reported its death."""
    e = o.event
    if (
        (o.role != "cause" and o.pattern.id not in PASSING)
        or o.pattern.category == "numerics"
        or e.fields.get("excepthook")
        or e.fields.get("reported_by")
        or e.source_kind in ("kernel", "scheduler", "kubernetes")
    ):
        return o
    if o.pattern.entity not in ("self", "rank", "missing-ranks") and o.pattern.id not in PASSING:
        return o
    crashed = o.pattern.category == "native-crash" and any(case.exit_code(r) in CRASH for r in case.exits)
    if not o.ranks and (
        crashed or o.pattern.id == "hip-memory-access-fault"
    ):  # after which ROCm's runtime always aborts
        return o  # glibc's word on a common console bears no rank: those who go on after it are the others
    rank = o.ranks[0] if o.ranks and o.pattern.id not in PASSING else None
    if o.pattern.entity == "missing-ranks" and o.pattern.id not in PASSING:
        rank = case.registry.rank_of(e)  # who complains of another's absence may catch it and go on
    code = case.exit_code(rank) if rank is not None else None
    overcome = (
        not e.fields.get("opened")
        and code in (None, 0)
        and _OVERCOME.search(e.text)
        and not _GAVE_UP.search(e.text)
    )
    proof = ("progress", "finished", "line") if overcome else ("progress", "finished")
    later = [
        x
        for x in case.by_source[e.where.source]
        if x.kind in proof
        and (x.where.line or 0) > (e.where.line or 0)
        and (rank is None or case.registry.rank_of(x) in (rank, None))
    ]
    later += [x for x in case.seen("nccl-ib-port-event") if o.pattern.id == PORT_DOWN and _active_again(e, x)]
    if later and rank is None and o.pattern.id not in PASSING and _ended_one(case, e):
        return o
    if later:
        return demote(
            case, o, "context", f"the rank went on: `{later[0].text.strip()[:80]}` at {later[0].where}"
        )
    if rank is not None and rank in case.finished and code in (None, 0):
        return demote(case, o, "context", f"rank {rank} finished normally")
    return o


def _ended_one(case: Case, e: Event) -> bool:
    """Whether an exception on a console without names may be the end of a rank that left with an error code: the others go on for a while.

    It is the last one there, and who is told of by a launcher has raised nothing under its own name.
    """
    codes = {r: case.exit_code(r) for r in case.exits}
    told: set[int | None] = {r for r, code in codes.items() if code is not None and 0 < code < 128}
    for x in (x for name in TOLD for x in case.seen(name)):
        if 0 < (as_int(x.fields.get("exitcode")) or 0) < 128:
            told.add(as_int(x.fields.get("rank") or x.fields.get("ranks")))
    raised = [
        x for x in case.of_kind("exception") if x.source_kind != "agent" and not x.fields.get("reported_by")
    ]
    named = {case.registry.rank_of(x) for x in raised} - {None}
    silent = told - named - ({None} if named else set())
    last = max(
        (
            x.where.line or 0
            for x in raised
            if x.where.source == e.where.source and x.rank is None and not _launcher(x)
        ),
        default=0,
    )
    return bool(silent) and e.kind == "pattern" and (e.where.line or 0) >= last


def _launcher(e: Event) -> bool:
    """Raised by torchrun itself, to tell of a child."""
    return "ChildFailedError" in e.text or "CalledProcessError" in e.text


def _waiting(case: Case, o: Observation) -> Observation:
    """To wait for the store or a node, or not to find it at once, is ordinary, unless it is the last there is: the job never started."""
    e = o.event
    if o.pattern.id not in (*WAITING, *REPEATING) or o.role != "context":
        return o
    if o.pattern.id in REPEATING:
        ends = lastwords.said_to_the_end(case, e)
    elif e.source_kind == "kubernetes":
        ends = not case.seen("k8s-container-started")
    else:
        own = case.by_source[e.where.source]
        ends = any(x.kind == "line" and x.fields.get("last") and x.where == e.where for x in own) and not any(
            x.where > e.where for x in own
        )
    return demote(case, o, "symptom", "nothing came after it") if ends else o


def _restored(case: Case, o: Observation, everything: Sequence[Observation]) -> Observation:
    """Where nothing failed, a file server that answers again was only slow, as was a volume; an eviction passes with code 0 at last."""
    end = RESTORED.get(o.pattern.id)
    came = end == "k8s-container-started"  # whatever failed later
    if (
        end is None
        or not came
        and any(x.role in ("cause", "symptom") and x.pattern.id not in RESTORED for x in everything)
    ):
        return o
    later = [
        e
        for e in case.seen(end)
        if e.where.source == o.event.where.source and (e.where.line or 0) > (o.event.where.line or 0)
    ]
    return demote(case, o, "context", f"it passed: {later[0].where}") if later else o


def _active_again(down: Event, up: Event) -> bool:
    return (
        str(up.fields.get("detail")).startswith("port active")
        and up.host == down.host
        and up.where > down.where
    )


def _only_kernel(case: Case, o: Observation, observations: list[Observation]) -> bool:
    """Nothing but lines of the kernel was handed in, they accuse nothing else, and the process is a Python."""
    if case.registry.ranks or not str(o.event.fields.get("comm", "")).lower().startswith(stale.PROGRAMS):
        return False
    return all(e.source_kind == "kernel" for e in case.events) and not any(
        p.role == "cause" for p in observations
    )


def _promoted(case: Case, observations: list[Observation]) -> list[Observation]:
    """What only confirms becomes the cause where it is joined to a rank and nothing nearer is there.

    A kernel's segfault line with a rank's pid; a debugger's; a DataLoader worker's SIGKILL that no kernel line explains.
    """
    caused = {r for o in observations if o.role == "cause" for r in o.ranks}
    host_oom = any(o.role == "cause" and o.pattern.category == "host-oom" for o in observations)
    complaints = (
        _complaints(observations) if any(o.pattern.id == "slurm-cancelled" for o in observations) else []
    )
    out = []
    for o in observations:
        alone = bool(o.ranks) and not set(o.ranks) & caused
        if (
            o.pattern.id in ("kernel-segfault", "kernel-trap", "debugger-fatal-signal")
            and o.role == "confirms"
            and alone
        ):
            o = replace(
                o,
                role="cause",
                because="the process is this rank, and nothing nearer to the cause is in these logs",
            )
        elif (
            o.pattern.id in ("kernel-segfault", "kernel-trap")
            and o.role == "confirms"
            and _only_kernel(case, o, observations)
        ):
            o = replace(
                o,
                role="cause",
                because="a Python process, and this excerpt of the kernel's log is all there is",
            )
        elif o.pattern.id == "dataloader-worker-killed" and o.role == "symptom" and alone and not host_oom:
            o = replace(
                o,
                role="cause",
                because="the worker was killed from outside; only a kernel log could tell whether for memory",
            )
        elif o.pattern.id == "store-not-opened" and any("errno: 98" in line for line in o.event.context):
            o = replace(o, role="cause", because="the lines before it say why: address already in use")
        elif o.pattern.id == "slurm-cancelled" and _first_trouble(case, o, complaints):
            o = replace(o, role="cause", because="nothing failed before Slurm was told to cancel")
        out.append(o)
    return out


def _first_trouble(case: Case, o: Observation, complaints: Sequence[Observation]) -> bool:
    """Whether the job ran well until it was cancelled. Ranks that are told to stop lose each other: complaints after it do not count."""
    if case.finished and case.finished >= set(case.registry.ranks):
        return False
    return all(_follows(x.event, o.event) for x in complaints)


def _complaints(observations: Sequence[Observation]) -> list[Observation]:
    """What says that the job did not run well, but for the scheduler's words."""
    others = [
        x
        for x in observations
        if x.pattern.category not in (None, "scheduler") and x.role in ("cause", "symptom")
    ]
    ends = [
        x
        for x in observations
        if x.pattern.id == "slurm-task-exited"
        and x.event.fields.get("signal") not in ("Terminated", "Killed")
    ]
    aborts = [x for x in observations if x.pattern.id in ("mpi-abort-invoked", "mpich-fatal-error")]
    return [*others, *ends, *aborts]


def _follows(e: Event, first: Event) -> bool:
    """Whether `e` came after `first`, as far as their file or their clocks tell (Slurm's stamp has whole seconds)."""
    if e.where.source == first.where.source and e.where.line and first.where.line:
        return e.where.line > first.where.line
    return e.at is not None and first.at is not None and e.at > first.at - 1 - e.at_sigma


def _after_loss(case: Case, observations: list[Observation]) -> list[Observation]:
    """A rank that had already lost its peers and then crashes or raises is a victim, whatever it prints while it dies."""
    first_loss: dict[tuple[int, str], Observation] = {}
    for o in observations:
        if (
            o.role in ("cause", "symptom")
            and o.pattern.category in foreign.COMPLAINTS
            and not o.event.fields.get("kernel")
        ):
            rank = case.registry.rank_of(o.event)
            if rank is not None and o.event.where.line is not None:
                key = (rank, o.event.where.source)
                if key not in first_loss or (first_loss[key].event.where.line or 0) > o.event.where.line:
                    first_loss[key] = o
    out = []
    for o in observations:
        rank = case.registry.rank_of(o.event)
        loss = first_loss.get((rank, o.event.where.source)) if rank is not None else None
        late = (
            loss is not None
            and o.event.where.line is not None
            and o.event.where.line > (loss.event.where.line or 0)
        )
        soft = ("hang", "rendezvous", "network") if loss is not None and loss.role == "symptom" else ()
        weaker = ("native-crash", "python-exception", "environment", *soft)
        if o.role == "cause" and late and loss is not None and o.pattern.category in weaker:
            o = demote(case, o, "symptom", f"the rank had lost its peers before ({loss.event.where})")
        out.append(o)
    return out


def _aborted(case: Case, observations: list[Observation]) -> list[Observation]:
    """SIGABRT is how a process ends that has said why: any other cause of the same process is nearer."""
    told = [
        o
        for o in observations
        if o.role == "cause" and o.pattern.category != "native-crash" and not o.event.fields.get("kernel")
    ]
    out = []
    for o in observations:
        if (
            o.role == "cause"
            and o.pattern.category == "native-crash"
            and str(o.event.fields.get("signal")) in _ABORT
        ):
            why = next(
                (c for c in told if c.event.where.source == o.event.where.source and _meet(c.ranks, o.ranks)),
                None,
            )
            if why is not None:
                o = demote(
                    case,
                    o,
                    "symptom",
                    f"an abort is the end of what {why.pattern.id} says ({why.event.where})",
                )
        out.append(o)
    return out


_ABORT = ("Aborted", "SIGABRT", "6")


def _meet(a: Sequence[int], b: Sequence[int]) -> bool:
    return not a or not b or bool(set(a) & set(b))
