"""Timeline -> Incident document: claims, the rules that reduce their roles, the root, and an account of every rank.

`solve` has the steps in their order. Nothing here opens a file or knows a log format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from postmortem.align import Timeline
from postmortem.align.place import Line, Moment
from postmortem.diagnose import liveness, rules, topics
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims import exits, log_ends, observed
from postmortem.diagnose.claims.links import declared
from postmortem.diagnose.compare import hangs, joining, rank_lists, standstill, stops
from postmortem.diagnose.rules import foreign
from postmortem.diagnose.sequence import stable_order
from postmortem.diagnose.verdict import blame, choose, novelty, outcome, unread
from postmortem.diagnose.verdict.novelty import shapes as shapes
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.who import copies, elimination
from postmortem.errors import UsageError
from postmortem.library import Library
from postmortem.model import Event, Source
from postmortem.model.contract.incident import Ledger
from postmortem.runs import attempts, cuts, jobs

ALTERNATIVES = 5
JOBS = 20  # that an error names
LOADED = 10  # lines of a shell that sets up the environment


class Diagnosis(NamedTuple):
    """The solution of the chosen job, those of the other jobs, and the timeline with the processes of its lines
    and the times found for lines without a timestamp."""

    chosen: Solution
    others: tuple[Solution, ...]
    timeline: Timeline


def diagnose(
    timeline: Timeline,
    sources: Sequence[Source],
    library: Library,
    ledger: Ledger,
    job: str | None = None,
    usual: Set[str] = frozenset(),
) -> Diagnosis:
    """Diagnose the latest failed job among these sources, or `job`. `usual` are line forms of a healthy run.
    Raises UsageError where there is no such job."""
    by_path = {s.path: s for s in sources}
    events, files = stable_order(timeline.events, sources)
    solutions = []
    for name, members in (timeline.jobs or {None: list(by_path)}).items():
        wanted = set(members)
        logs = {s.path: s for s in files if s.path in wanted}
        own = [e for e in events if e.where.source in wanted]
        solutions.append(replace(solve_job(own, logs, library, name), named=jobs.name(own, logs)))
    solutions = _with_ids(solutions)
    chosen = _choose(solutions, job)
    if chosen.outcome == "undetermined":
        known = {e.place for c in chosen.claims for e in c.events}
        chosen = replace(chosen, leads=tuple(novelty.leads(chosen.case, known, usual)))
    others = [s for s in solutions if s.case is not chosen.case]
    found = [_with_losses(s, solutions, ledger) for s in (chosen, *others)]
    times = _times(chosen, others)
    if times:
        timeline = timeline.with_times(times)
    timeline = timeline.with_processes(chosen.process_of_line)
    return Diagnosis(found[0], tuple(found[1:]), timeline)


def nothing(timeline: Timeline, sources: Sequence[Source], library: Library, ledger: Ledger) -> Diagnosis:
    """An undetermined diagnosis, for logs on which the diagnosis itself failed."""
    by_path = {s.path: s for s in sources}
    case = Case((), elimination.known((), {}, library), library, by_path, None)
    lost = unread.losses(ledger, by_path, ())
    lost = replace(lost, opening="the logs were read, but") if lost else None
    bare = Solution(case, "undetermined", None, (), (), (), lost=lost, unread=lost)
    return Diagnosis(bare, (), timeline)


def _with_losses(solution: Solution, all_: Sequence[Solution], ledger: Ledger) -> Solution:
    """The same solution with the input that was not read; undetermined where it was healthy but for a loss that may be
    this job's."""
    others = [path for s in all_ if s.job != solution.job for path in s.case.sources]
    lost = unread.losses(ledger, solution.case.sources, others)
    if lost is None or (solution.outcome != "healthy" and not lost.window):
        return replace(solution, lost=lost)
    return replace(solution, outcome="undetermined", lost=lost, unread=lost)


def _with_ids(solutions: Sequence[Solution]) -> list[Solution]:
    """Name each job by its own id, where no other job of these logs has the same, else by its folder or run."""
    ids = Counter(s.named.id for s in solutions)
    return [replace(s, job=s.named.id) if s.named.id and ids[s.named.id] == 1 else s for s in solutions]


def _choose(solutions: Sequence[Solution], job: str | None) -> Solution:
    """The job with this name, else the latest that failed, else the latest that recovered, else the latest."""
    named = list(filter(lambda s: s.is_named(job), solutions))
    if job and not named:
        known = [s.job for s in solutions if s.job]
        hint = f"the jobs in these logs: {', '.join(known[:JOBS])}" if known else "omit --job"
        raise UsageError(f"no job {job} in these logs{'' if known else ', which contain no job ID'}", hint)
    failed = [s for s in solutions if s.outcome in ("incident", "undetermined")]
    recovered = [s for s in solutions if s.outcome == "recovered"]
    return (named or failed or recovered or list(solutions))[-1]


def solve_job(events: Sequence[Event], sources: Mapping[str, Source], library: Library, name: str | None) -> Solution:
    """Solve each attempt; the verdict is about the one that ended the job, and a good last one makes it a
    recovery."""
    events = cuts.numbered(events, library)
    parts = attempts.separated(events)
    if len(parts) < 2:
        only = solve(events, sources, library, next(iter(parts), None))
        again = only.outcome == "incident" and _finished_after_death(only.case)
        return replace(only, job=name, folder=name, outcome="recovered" if again else only.outcome)
    each = [solve(part, sources, library, n) for n, part in parts.items()]
    last = each[-1]
    failing = _that_count([s for s in each if s.outcome != "healthy"], last)
    chosen = _that_ended_it(failing, last) if failing else last
    lacks = last.root is None and outcome.only_lacks(last.case, last.claims)
    recovered = bool(failing) and (last.outcome == "healthy" or lacks) and _went_well([s.case for s in each])
    if recovered:
        chosen.case.note(
            f"attempt {last.case.attempt} finished normally, so the job recovered from attempt {chosen.case.attempt}"
        )
    end = "recovered" if recovered else chosen.outcome
    return replace(chosen, outcome=end, job=name, folder=name, attempts=tuple(each), times=_times(chosen, each))


def _that_count(failing: Sequence[Solution], last: Solution) -> Sequence[Solution]:
    """The attempts that failed; none where somebody started the script again, and the last run is well."""
    if last.outcome != "healthy" or not _started_by_hand(failing, last):
        return failing
    last.case.note("somebody started the script again after a failure; the verdict is about the last run")
    return ()


def _times(chosen: Solution, others: Iterable[Solution]) -> Mapping[Line, Moment]:
    """The times of lines that any of them knows; of a line that is in several, those of the verdict."""
    times = {line: moment for s in others for line, moment in s.times.items()}
    for e in chosen.case.events:
        times.pop(e.place, None)
    return {**times, **chosen.times}


def _finished_after_death(case: Case) -> bool:
    """Whether all ranks finished, one of them had died in a collective, and torchrun, which reports that death, did not
    give up: it began anew, though no line shows where (an agent that gives up raises ChildFailedError)."""
    raised = case.of_kind("exception")
    died = [e for e in raised if e.fields.get("excepthook") and case.rank_of(e) in case.finished]
    at_work = any(e.fields.get("collective") not in (None, "barrier") for e in died)
    gave_up = any("ChildFailedError" in e.text for e in raised)
    if gave_up or not (at_work and case.telling("death") and case.all_finished):
        return False
    case.note("all ranks reported that they finished, after their group had been torn down: it was restarted")
    return True


def _started_by_hand(failing: Sequence[Solution], last: Solution) -> bool:
    """Whether somebody started the script again: it prints its opening line and more than the shell's first lines
    (`module load`), and no launcher reported a death in the run before it."""
    begun = [e for e in last.case.of_kind("restart") if e.fields.get("first")]
    again = any(e.raw_time or last.case.by_source[e.where.source][-1].line > e.line + LOADED for e in begun)
    before = [s for s in failing if s is not last][-1:]
    return again and not any(s.case.telling("death") for s in before)


def _begun_anew(failing: Sequence[Solution], last: Solution) -> bool:
    """Whether the runs before the last were stopped from outside, or somebody started the last, and it began without a
    failure of its own."""
    before = [s for s in failing if s is not last]
    stopped = all(s.root is not None and s.root.pattern.category == "external-signal" for s in before)
    silent = last.outcome == "undetermined" and last.root is None and not outcome.failed(last.case, last.claims)
    silent = silent and last.reached is not None  # a start that shows no job yet is no verdict
    return silent and bool(before) and (stopped or _started_by_hand(before, last))


def _that_ended_it(failing: Sequence[Solution], last: Solution) -> Solution:
    """The last attempt with a cause of its own: an undated kernel log is beside each of them. A group that
    could not form again after a loss is that loss, also where somebody then stopped the job. One that follows a stop
    from outside speaks for itself."""
    if _begun_anew(failing, last):
        return last
    found = [s for s in failing if s.outcome == "incident"] or list(failing)[:1]
    found = [s for s in found if s.root is None or not (s.root.guess or s.root.strength == "suffered")] or found
    lost = [s for s in found if s.root is None or s.root.pattern.category != "rendezvous"]
    return _before_a_stop(lost or found)


def _before_a_stop(found: Sequence[Solution]) -> Solution:
    """The last of them; the failure before it where the group could not form again, no rank is seen at work, and the
    job was stopped from outside."""
    *before, last = found
    stopped = last.root is not None and last.root.tells("stop")
    refused = any(c.accuses and c.of("others") for c in last.claims)
    idle = stopped and refused and not last.case.of_kind("worked", "progress")
    return before[-1] if before and idle and before[-1].case.telling("death") else last


def _went_well(cases: Sequence[Case]) -> bool:
    """Whether the last attempt is seen at work or finished; or the launcher reported the end of each but the last, of
    which all ranks have lines: they need not be known words."""
    *failed, last = cases
    if liveness.is_alive(last):
        return True
    written = last.ranks_of(last.of_kind("line"))
    return all(c.ends for c in failed) and not last.ends and bool(written) and written >= set(last.registry.ranks)


def solve(events: Sequence[Event], sources: Mapping[str, Source], library: Library, attempt: int | None) -> Solution:
    """One attempt of one job, from events to the root: who wrote the lines, the claims in them, which claim is the cause,
    and whom it blames."""
    registry = elimination.known(events, sources, library)
    merged = copies.merge(events, sources, registry)
    case = Case(merged.events, registry, library, sources, attempt)
    stated = rules.settled(case, observed.observe(case))
    claims = blame.identified(case, topics.named_causes(case, _with_derived(case, stated)))
    causes = choose.candidates(claims) or choose.complaint(case, claims)
    root = causes[0] if causes else None
    ranks = blame.culprits(case, root, claims) if root else ()
    end, others = outcome.of(case, root, claims), causes[1 : 1 + ALTERNATIVES]
    return Solution(case, end, root, ranks, tuple(claims), tuple(others), times=merged.times)


def _with_derived(case: Case, stated: list[Claim]) -> list[Claim]:
    """The claims of single lines, and those of all logs together. A hang is looked for where nothing else accounts
    for it."""
    claims = observed.group(stated)
    for derive in (exits.derive, joining.derive, rank_lists.derive):
        claims += derive(case, stated)
    loose = foreign.unlinked(case, claims)
    still = standstill.derive(case, stated)
    claims += still
    strong = [c for c in claims if c.role == "cause" and choose.tier(c) <= choose.STRONG and c not in loose]
    stopped_while_sampled = bool(_sampled(case))
    if all(any(declared(s, c) for s in still) or (stopped_while_sampled and c.tells("stop")) for c in strong):
        claims += hangs.derive(case, stated)
    claims = foreign.downgraded(case, claims, loose)
    claims += stops.derive(case, claims)
    if not any(c.role == "cause" for c in claims):
        claims += log_ends.derive(case, stated)
    return claims


def _sampled(case: Case) -> list[Event]:
    """Stacks that a tool took from outside, with a process in a collective among them: nobody samples a job that makes
    progress."""
    taken = [e for e in case.of_kind("stack") if e.speaker == "tool"]
    return taken if any(e.fields.get("collective") for e in taken) else []
