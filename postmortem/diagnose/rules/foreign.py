"""What others tell beside the logs of one job: the kernel since its boot, a scheduler, a cluster. Not all of
it is about this job.

JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
990               train        gpu       proj         64 OUT_OF_ME+    0:125     another job's, where slurm-991.out lies beside
991               train        gpu       proj         64  COMPLETED      0:0

[111403.118] NVRM: Xid (PCI:0000:91:00): 79, … GPU has fallen off the bus.       of some day; all ranks said that they finished
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from postmortem.diagnose import life
from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claims import OTHERS, Claim
from postmortem.diagnose.derive import exits
from postmortem.diagnose.explain import declared
from postmortem.diagnose.rules.aftermath import COMPLAINTS
from postmortem.diagnose.rules.stale import is_program, outside
from postmortem.diagnose.rules.view import Defeat, View
from postmortem.diagnose.same import same_host
from postmortem.model import Event, Where

_ROW = re.compile(
    r"[ |]*(\d{2,12})(?:_\[?[\d,-]+\]?|\+\d+)?(?:\.[\w]+)?[ |]"
)  # 990, 990_4, 990+1, 990.batch; sacct -p has bars
_NAMED = re.compile(r"(?:slurm|job|jobid)[-_.=]?(\d{2,12})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{2,12}")
GPU = ("gpu-hardware", "gpu-fault")
ON_GPUS = (*GPU, "gpu-memory", "nccl")  # families of patterns in which a rank speaks of its GPU


# ── rows of tables ──────────────────────────────────────────────────────────────────────────────────────────


def _rows(case: Case) -> dict[Where, str]:
    """The number of the job of which each of a table's telling rows speaks."""
    told = {}
    for e in case.of_kind("pattern"):
        if e.source_kind == "scheduler" and (m := _ROW.match(e.text)):
            told[e.where] = m[1]
    return told


def _own_numbers(case: Case, told: Mapping[Where, str]) -> set[str]:
    """The numbers of this job, as names of files and lines outside of the tables have them."""
    tables = {where.source for where in told}
    if not tables:
        return set()
    found = set()
    for path in case.sources:
        if path not in tables:
            found |= set(_NAMED.findall(path)) | (set(_NUMBER.findall(path)) & set(told.values()))
    for e in case.of_kind("pattern"):
        if e.where.source not in tables and e.fields.get("job_id"):
            found.add(str(e.fields["job_id"]))
    return found


def _strange_rows(case: Case) -> set[Where]:
    """Rows of several jobs, where nothing tells which is this one."""
    told = _rows(case)
    return set(told) if len(set(told.values())) > 1 and not _own_numbers(case, told) else set()


# ── a job that all ranks finished ───────────────────────────────────────────────────────────────────────────


def harmless(view: View) -> Iterator[Defeat]:
    """What others tell did the job no harm: all ranks say that they finished, none complains, no launcher
    says otherwise."""
    case = view.case
    if not life.all_done(case) or _complained(view):
        return
    for at, claim in view.numbered("cause", "symptom", "confirms"):
        if claim.speaker in OTHERS and not _after_the_end(case, claim):
            yield Defeat(at, "context", "all ranks finished, and none reports an error")


def _complained(view: View) -> bool:
    ranks = set(view.case.registry.ranks)
    for c in view.claims:
        own = c.speaker not in OTHERS and c.pattern.category is not None
        if c.accuses and (own or set(c.ranks) & ranks):
            return True
    return False


def _after_the_end(case: Case, claim: Claim) -> bool:
    """Whether a scheduler ended what had already said goodbye: then it hung at its exit."""
    if claim.speaker == "kernel" or claim.event.at is None:
        return False
    return all(e.at is not None and claim.event.at > e.at for e in case.of_kind("finished"))


# ── causes that nothing binds to this job ───────────────────────────────────────────────────────────────────


def doubted(case: Case, claims: Sequence[Claim], loose: Sequence[Claim]) -> list[Claim]:
    """The claims; those that nothing binds to this job give way to any other cause, or are no more than a
    guess."""
    others = any(c.role == "cause" and c not in loose and c.strength != "silent" for c in claims)
    out = []
    for c in claims:
        if c in loose:
            why = "nothing links it to this job, and no line of the ranks confirms it"
            case.note(f"{c.pattern.id} at {c.event.where}: {why}")
            if others:
                c = replace(c, role="context", because=why)
            elif _guessed(case, c):
                c = replace(c, guess=True)
        out.append(c)
    return out


def unbound(case: Case, claims: Sequence[Claim]) -> list[Claim]:
    """Causes that others state, that nothing binds to this job (a rank, a moment of its life, a number) and
    its ranks do not bear out.

    `dmesg` without -T or --time-format iso counts seconds since a boot that may be months ago, and keeps
    lines of all jobs since. A scheduler's table of several jobs may hold this one's row or not; a cluster's
    events are mostly of other pods.
    """
    told = [c for c in claims if c.role == "cause" and c.speaker in OTHERS and not c.ranks]
    if not told or all(e.speaker in OTHERS for e in case.events):
        return []
    own = [c for c in claims if c.accuses and c.speaker not in OTHERS]
    return [c for c in told if _is_loose(case, c) and not _borne_out(case, c, own)]


def _is_loose(case: Case, c: Claim) -> bool:
    if c.event.where in _strange_rows(case) or not any(_within(case, e) for e in c.events):
        return True
    return _of_strangers(case, c)


def _of_strangers(case: Case, c: Claim) -> bool:
    """Whether it speaks of a program that is no rank, or of a host on which this job has none; a fault that
    a program made on a GPU is that program's, and it would have said so."""
    hosts = set(case.registry.host_of.values())
    if hosts and c.hosts and not any(same_host(a, b) for a in hosts for b in c.hosts):
        return True
    return c.pattern.category == "gpu-fault" or (bool(c.event.fields.get("comm")) and not is_program(c.event))


def _guessed(case: Case, c: Claim) -> bool:
    """Whether even without another cause it is no more than a guess. Who hands in a scheduler's log, and no
    table, means its lines; a host's log with dates is believed where nobody knows when the job was."""
    if c.event.where in _strange_rows(case):
        return True
    if c.speaker != "kernel":
        return False
    return not any(moment(e) is not None and not outside(case, e) for e in c.events)


def _within(case: Case, e: Event) -> bool:
    """Whether it surely fell into the job's life."""
    return moment(e) is not None and case.start is not None and not outside(case, e)


def _borne_out(case: Case, c: Claim, own: Sequence[Claim]) -> bool:
    """Whether what the ranks say follows from it. Who states a cause that does not has one of its own; a
    complaint of others is none."""
    causes = [x for x in own if x.role == "cause" and not x.pattern.derived and x.pattern.category not in COMPLAINTS]
    if causes:
        return any(declared(c, x) or (_akin(x, c) and x.pattern.family == "gpu-fault") for x in causes)
    if c.pattern.category == "host-oom" and not _ROW.match(c.event.text) and _somebody_killed(case, own):
        return True
    return any(_akin(x, c) for x in own)


def _somebody_killed(case: Case, own: Sequence[Claim]) -> bool:
    """Whether somebody tells of a SIGKILL, or a rank that had spoken neither finished nor complained."""
    if case.ended("kill") or exits.told_killed(own):
        return True
    told = {r for c in own for r in c.ranks} | case.ranks_of(e for c in own for e in c.events)
    silent = set(case.by_rank) - case.finished - told - set(case.ends)
    return bool(silent) and any(c.pattern.category in COMPLAINTS for c in own)


def _akin(own: Claim, c: Claim) -> bool:
    """A rank's own words on its GPU go with what the kernel says of one; of other things the words have to
    be of the same kind."""
    category = c.pattern.category
    if category in own.pattern.bears_out:
        return True
    if category in GPU:
        return own.pattern.family in ON_GPUS and not own.pattern.says_why
    if category == "host-oom":
        return False
    return own.pattern.category == category or (category == "network" and own.pattern.category in ("peer-lost", "hang"))
