"""What exit codes prove: findings about ranks whose end only the launcher saw.

exitcode  : -9 (pid: 32688)  (SIGKILL)      killed from outside; host OOM only with the kernel's word
exitcode  : -11 (pid: 743)   (SIGSEGV)      crashed, even if nothing was printed
exitcode  : 3 (pid: 32513)                  left by itself and did not say why
exitcode  : -15                             stopped by the launcher, a victim; where it says whom it stopped, and not this one: from outside
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postmortem.diagnose.case import Case, Observation, as_int
from postmortem.model import Event, Finding

CRASH = {
    -11: "SIGSEGV",
    -6: "SIGABRT",
    -7: "SIGBUS",
    -8: "SIGFPE",
    -4: "SIGILL",
    139: "SIGSEGV",
    134: "SIGABRT",
    135: "SIGBUS",
    136: "SIGFPE",
    132: "SIGILL",
}
LIMIT = {-24: "SIGXCPU", -25: "SIGXFSZ", 152: "SIGXCPU", 153: "SIGXFSZ"}
KILL = (-9, 137)
STOP = (
    -1,
    -2,
    -3,
    -10,
    -12,
    -14,
    -15,
)  # what somebody sends, a person or a node's keeper, and no fault of the program raises
NAMES = (
    {
        -1: "SIGHUP",
        -2: "SIGINT",
        -9: "SIGKILL",
        -15: "SIGTERM",
        129: "SIGHUP",
        130: "SIGINT",
        137: "SIGKILL",
        143: "SIGTERM",
    }
    | CRASH
    | LIMIT
)

TOLD = ("deepspeed-return-code", "called-process-error", "spawn-process-exited", "mpirun-process-signalled", "horovod-rank-exited",
        "container-exit-code", "k8s-exit-code", "bash-killed-line", "slurm-task-exited", "lightning-child-terminated",
        "slurm-batch-ended", "lsf-exit-code", "sge-exit-status", "mpich-process-ended", "openmpi-process-aborted",
        "platform-exit-code", "composer-rank-crashed", "paddle-container-failed", "pals-rank-ended")  # fmt: skip
_SIGNALS = {
    "kill": -9, "9": -9, "segv": -11, "segmentation fault": -11, "11": -11, "bus": -7, "bus error": -7, "7": -7, "abrt": -6, "abort": -6,
    "aborted": -6, "6": -6, "fpe": -8, "floating point exception": -8, "8": -8, "ill": -4, "illegal instruction": -4, "4": -4,
    "killed": -9, "illegal hardware instruction": -4, "term": -15, "terminated": -15, "15": -15,
}  # fmt: skip


def describe(code: int | None) -> str | None:
    """An exit code as people read it: SIGKILL, 3, …"""
    if code is None:
        return None
    return NAMES.get(code, str(code))


def ending(code: int | None) -> str:
    """`SIGSEGV`, `exit code 3`."""
    told = describe(code) or "an error"
    return told if told.startswith("SIG") or code is None else f"exit code {told}"


def derive(case: Case, observations: list[Observation]) -> list[Finding]:
    """Findings from exit codes for ranks that nothing else accounts for."""
    explained = {
        r
        for o in observations
        if o.role in ("cause", "symptom") and not o.pattern.id.startswith("launcher-") and not _is_exit(o)
        for r in (*o.ranks, case.registry.rank_of(o.event))
        if r is not None and not _sound(case, o, r)
    }
    causes = {r for o in observations if o.role == "cause" for r in o.ranks}
    found: list[Finding] = []
    for rank, event in sorted(case.exits.items()):
        code = as_int(event.fields.get("exitcode"))
        pattern = _pattern(case, rank, event, code, rank in explained, rank in causes)
        if pattern is not None and (p := case.library.get(pattern)) is not None:
            pids = (event.pid,) if event.pid else ()
            host = event.host or case.registry.host_of.get(rank)
            proof = (
                (*_counters(case, host)[:1], event) if pattern == "rank-killed-in-full-cgroup" else (event,)
            )
            found.append(
                Finding(
                    p,
                    p.role,
                    proof,
                    (rank,),
                    (host,) if host else (),
                    (),
                    pids,
                    case.attempt,
                    f"the launcher saw rank {rank} end with {ending(code)}",
                )
            )
    return found or told(case, observations)


def _sound(case: Case, o: Observation, rank: int) -> bool:
    """Only how SIGABRT sounds. Who waited for a rank that had left in peace dies so (gloo's threads), who had finished does not."""
    return o.pattern.id == "cpp-terminate-no-exception" and (not case.finished or rank in case.finished)


def told(case: Case, observations: Sequence[Observation]) -> list[Finding]:
    """The end of a process of which a launcher, a shell or a container tells, where nothing in the logs accounts for it.

    [ERROR] [launch.py:434:sigkill_handler] ['python', '-u', 'main.py'] exits with return code = -9
    Exception: process 0 terminated with signal SIGKILL
    """
    if any(o.role == "cause" for o in observations) or (
        case.finished and case.finished >= set(case.registry.ranks)
    ):
        return []
    accused = [
        o
        for o in observations
        if o.role == "symptom" and o.pattern.category is not None and o.event.source_kind != "kernel"
    ]
    stopped = case.seen("launcher-forced-kill") or case.seen("slurm-cancelled")
    for o in observations:
        code = _code(o) if o.pattern.id in TOLD else None
        pattern = (
            "rank-exit-sigkill"
            if code in KILL
            else "rank-exit-crash-signal"
            if code in CRASH
            else "rank-exit-without-reason"
        )
        p = case.library.get(pattern)
        complaints = any(not x.event.fields.get("wrapper") and not _follows(x, o) for x in accused)
        if (
            p is None
            or code in (None, 0)
            or (complaints and code not in KILL and not _unspoken(case, o, observations))
        ):
            continue
        if code in KILL and any(_before(e, o.event) for e in stopped):
            continue
        why = f"{o.event.where} tells of an end with {ending(code)}"
        event = o.event._replace(fields=dict(o.event.fields) | {"exitcode": code})
        local = (
            as_int(event.fields.get("local_rank")) if not case.registry.ranks else None
        )  # spawn without a word of ranks: one host
        ranks = o.ranks or (() if local is None else (local,))
        return [Finding(p, p.role, (event,), ranks, o.hosts, (), o.pids, case.attempt, why)]
    lost = [
        o for o in observations if o.pattern.id == "ray-worker-died" and len(o.ranks) == 1
    ]  # the raylet names the pid it lost first
    if lost and (p := case.library.get("rank-vanished")) is not None:
        why = f"{lost[0].event.where}: the raylet lost its process"
        return [
            Finding(
                p, p.role, (lost[0].event,), lost[0].ranks, lost[0].hosts, (), lost[0].pids, case.attempt, why
            )
        ]
    return []


def told_killed(findings: Sequence[Finding]) -> set[int]:
    """Ranks of which spawn, srun or a shell says that SIGKILL ended them."""
    return {r for f in findings if f.pattern.id in TOLD and _code(f) in KILL for r in f.ranks}


def _follows(x: Observation, o: Observation) -> bool:
    """Slurm ends a step of which a task failed by itself, and says so below. That says nothing against the task."""
    code = _code(o) or 0
    ended = (
        x.pattern.id in ("slurm-cancelled", "slurm-force-terminated")
        and code > 0
        and code not in (143, 130, 129)
    )
    return (
        ended
        and x.event.where.source == o.event.where.source
        and (x.event.where.line or 0) > (o.event.where.line or 0)
    )


def _before(a: Event, b: Event) -> bool:
    """Whether `a` stands before `b`, or nothing tells: the task whose end led to a cancellation is reported before it, the others after."""
    same = a.where.source == b.where.source and a.where.line is not None and b.where.line is not None
    return not same or (a.where.line or 0) < (b.where.line or 0)


def _unspoken(case: Case, o: Observation, observations: Sequence[Observation]) -> bool:
    """One rank ended by itself and did not say why, while others complain: that follows from its end."""
    if len(o.ranks) != 1 or _code(o) in (-15, 143, 130, 129):
        return False
    accused = [x for x in observations if x.role == "symptom" and x.pattern.category is not None]
    spoke = {r for x in accused for r in (*x.ranks, case.registry.rank_of(x.event)) if r is not None}
    return bool(spoke) and not set(o.ranks) & spoke


def _code(o: Observation | Finding) -> int | None:
    signal = str(o.event.fields.get("signal") or "").lower().removeprefix("sig")
    return _SIGNALS.get(signal) if signal else as_int(o.event.fields.get("exitcode"))


def _is_exit(o: Observation) -> bool:
    return o.pattern.id in ("slurm-task-exited", "bash-killed-line", "deepspeed-return-code")


def _pattern(
    case: Case, rank: int, event: Event, code: int | None, explained: bool, caused: bool
) -> str | None:
    if code is None or code == 0 or caused:
        return None
    if code in KILL:
        if _forced(case, event):
            return None
        return "rank-killed-in-full-cgroup" if _counted(case, event) else "rank-exit-sigkill"
    if code in LIMIT:
        return "rank-exit-cpu-limit"
    if code in STOP and _unasked(case, event):
        return "rank-exit-signalled"
    if explained:
        return None
    if code in CRASH:
        return "rank-exit-crash-signal"
    if code > 0 and code not in (143, 130, 129):
        return "rank-exit-without-reason"
    return None


def _unasked(case: Case, event: Event) -> bool:
    """The launcher names the workers that it stops. The only one that a signal ended and that is not among them got it from elsewhere."""
    asks = case.seen("launcher-sending-sigterm")
    asked = {as_int(e.fields.get("pid")) for e in asks}
    complete = any(
        e.where.source == event.where.source for e in asks
    )  # of another agent's log the head may be lost
    ended = [e.pid for r, e in case.exits.items() if case.exit_code(r) in STOP and e.pid not in asked]
    if case.seen(
        "launcher-received-signal",
        "launcher-sighup",
        "launcher-sigint",
        "launcher-signal-exception",
        "slurm-cancelled",
    ):
        return False  # then everybody was told to stop
    return complete and event.pid is not None and ended == [event.pid]


def _counters(case: Case, host: str | None) -> list[Event]:
    """Counters of memory cgroups that say that something in them was OOM-killed."""
    return [
        e
        for e in (*case.of_kind("counter"), *case.seen("cgroup-oom-kill-count"))
        if host is None or e.host is None or e.host == host
    ]


def _counted(case: Case, event: Event) -> bool:
    """A cgroup counted OOM kills, and this is the only rank that ended with SIGKILL."""
    killed = [r for r in case.exits if case.exit_code(r) in KILL]
    return len(killed) == 1 and bool(_counters(case, event.host or case.registry.host_of.get(killed[0])))


def _forced(case: Case, event: Event) -> bool:
    """The agent kills with SIGKILL what did not obey SIGTERM in 30 s: a stuck victim, or the stuck culprit, but nobody's kill."""
    pids = {as_int(e.fields.get("pid")) for e in case.seen("launcher-forced-kill")}
    pids |= {
        p
        for e in _sigterm_first(case)
        if (p := as_int(e.fields.get("pid"))) is not None
        and event.at is not None
        and e.at is not None
        and event.at - e.at > 25
    }
    if event.pid in pids:
        case.note(
            f"{event.where}: SIGKILL of pid {event.pid} came from the launcher itself, which had asked with SIGTERM before"
        )
        return True
    return False


def _sigterm_first(case: Case) -> Iterator[Event]:
    yield from case.seen("launcher-sending-sigterm")
