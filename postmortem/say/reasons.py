"""The reasons for a verdict, each a sentence that names a line or a fact, and the alternatives."""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.diagnose import order
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims.links import declared
from postmortem.diagnose.verdict.choose import tier
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.wording import capital, listed, ranks_text, sentence
from postmortem.formats import endings
from postmortem.formats.lineform import gist
from postmortem.library.titles import inside
from postmortem.model import Pattern
from postmortem.model.contract.incident import Alternative
from postmortem.privacy import cut
from postmortem.say import headline, tables
from postmortem.say.evidence import own_frame

NAMED = 4  # culprits with their ends
GUESS = "Whether it belongs to this job is a guess: it has no date and no job id, and no line of a rank confirms it."
KINDS = (  # claims by tier, for the sentence that weighs two of them
    (0.5, "states an action of the kernel, the driver or the scheduler"),
    (1.0, "states why a process died"),
    (2.0, "reports only another rank's failure"),
    (3.0, "only says who was waited for"),
    (9.0, "reports only that something was wrong"),
)


def because(solution: Solution, proof: str) -> list[str]:
    """The observations: the line, the comparison of the ranks, and their ends. `proof` is the line's address. The
    general meaning of its pattern is in the chain."""
    if solution.root is None:
        return [*_rootless(solution), *_leads(solution)]
    root = solution.root
    found = [
        *_proof(root, proof),
        *_raised_again(solution, root),
        *tables.other_attempts(solution),
        *_comparisons(solution, root),
        *_joins(solution, root),
        *_effects(solution, root),
    ]
    # the reasons that neither the headline nor an earlier reason contains
    sentence = headline.headline(solution)
    chosen: list[str] = []
    for reason in found:
        words = reason.rstrip(".").lower()
        if not any(words in before.lower() for before in (sentence, *chosen)):
            chosen.append(reason)
    return chosen or [_only(root, proof)]


def _only(root: Claim, proof: str) -> str:
    """The reason where the headline has all others: the lines that were compared, or what the line is."""
    places = list(dict.fromkeys(str(own_frame(e).where) for e in root.events))[:NAMED]
    if root.pattern.derived and len(places) > 1:
        return f"This follows from comparing {listed(places)}."
    return f"{proof}: {inside(root.pattern.title)}."


def _proof(root: Claim, proof: str) -> Iterator[str]:
    compared = root.strength in ("compared", "silent") and root.because
    if compared and not root.pattern.derived:  # the headline has the comparison, not the line
        yield f"{proof}: {inside(root.pattern.title)}."
    if root.because and not compared:
        yield sentence(root.because)
    if root.guess:
        yield GUESS


def _raised_again(solution: Solution, root: Claim) -> Iterator[str]:
    """The exception that the program raised from the root's, as it may name the file or the service; and where a remote
    call raised it."""
    case, e, outer = solution.case, root.event, None
    if (ran_on := e.fields.get("ran_on")) is not None:
        yield f"It was raised by a call that ran on {ranks_text([ran_on])}."
    for x in case.by_source[e.where.source] if e.fields.get("chained") else ():
        chained = (outer or e).fields.get("chained")
        if chained and x.kind == "exception" and x.below(outer or e) and case.rank_of(x) == case.rank_of(e):
            outer = x
    if outer is not None and not outer.fields.get("wrapper"):
        yield f"It was raised again as `{cut(gist(outer.fields.get('line') or outer.text), 160)}` ({outer.where})."


def _comparisons(solution: Solution, root: Claim) -> Iterator[str]:
    """Other comparisons about the same ranks."""
    scene = root.because.partition(" while ")[2]  # `the others waited in a collective`
    for c in solution.claims:
        another = c.because not in ("", root.because) and c.because.partition(" while ")[2] != (scene or None)
        seen = c.strength != "silent" or any(solution.case.by_rank.get(rank) for rank in c.ranks)
        if c.pattern.derived and another and seen and set(c.ranks) & set(solution.ranks):
            yield sentence(c.because)


def _joins(solution: Solution, root: Claim) -> Iterator[str]:
    """How the entity was joined, and how the launcher reports its end."""
    case, ranks = solution.case, solution.ranks
    known = case.registry.rank_of_pid(root.pids[0], root.event.host) if root.pids else None
    if known in ranks and not root.pattern.derived and root.pattern.entity == "pid":
        yield f"Pid {root.pids[0]} is rank {ranks[0]} in the launcher's and the rank's lines."
    line = case.registry.found["line"].get(root.event.place, {}).get((None, None))
    if line is not None and line.why and line.rank in ranks:
        yield f"The line does not name its rank; {line.why}."
    for rank in ranks[:NAMED]:
        end = case.end_of(rank)
        if end is not None and not (root.strength == "ended" and end.kind == "kill"):
            yield f"The launcher reported {end} for rank {rank}."


def _effects(solution: Solution, root: Claim) -> Iterator[str]:
    listed_in = root.events if root.strength in ("compared", "silent") and not solution.ranks else ()
    compared = solution.case.ranks_of(listed_in)  # the headline has them
    for ranks, verb in solution.victims.by_fate():
        if not compared >= set(ranks):
            yield f"{capital(ranks_text(ranks))} {verb}."
    other = order.first_elsewhere(root, (link.effect for link in solution.account.links))
    if other is not None:
        where = (other.first or other.event).where
        yield f"First report from another host ({where}): {order.elsewhere(root, other)}."
    rest = {(claim.pattern.id, against): (claim, against) for claim, against in reversed(solution.account.unexplained)}
    for claim, against in list(reversed(rest.values()))[:NAMED]:  # of equal ones the first
        yield f"Unexplained: {claim.event.where}, {inside(claim.pattern.title)}; {against}."
    accusing = [c for c in solution.claims if c.pattern.role in ("cause", "symptom")]
    for claim in [c for c in accusing if solution.case.not_ours(c.event)][:NAMED]:
        yield f"Not of this job: {claim.event.where}, {inside(claim.pattern.title)}; {claim.because}."


def _rootless(solution: Solution) -> list[str]:
    if solution.unread is not None:
        return solution.unread.sentences()
    if solution.outcome == "healthy":
        handled = [f"{c.event.where}: {c.because}" for c in solution.claims if c.role == "context" and c.because]
        no_failure = "No line reports a failure, and no launcher reports a failed rank."
        return list(dict.fromkeys(handled))[:5] or [no_failure]
    first: dict[str, Claim] = {}
    for c in loudest(solution):
        first.setdefault(c.pattern.id, c)
    return [f"{c.event.where}: {inside(c.pattern.title)}." for c in first.values()][:6]


def loudest(solution: Solution) -> list[Claim]:
    """The complaints, earliest first: failures before requests to stop."""
    complaints = [c for c in solution.claims if c.role == "symptom"]
    quiet = ("warning", "info")
    return sorted(
        complaints, key=lambda c: (c.pattern.severity in quiet, c.pattern.category is None, c.at is None, c.at or 0.0)
    )


def _leads(solution: Solution) -> Iterator[str]:
    """Lines that one rank alone printed, where no pattern knows the failure."""
    for e in solution.leads:
        rank = solution.case.rank_of(e)
        who = f"Only rank {rank} printed" if rank is not None else "Not seen in a healthy run"
        yield f"{who}: `{cut(gist(e.text), 160)}` ({e.where})."


# ── alternatives ────────────────────────────────────────────────────────────────────────────────────────────


def alternatives(solution: Solution) -> list[Alternative]:
    """The other causes, each with the fact that decides against it; null where none does."""
    root = solution.root
    if root is None:
        return []
    rows = []
    end = endings.reported(root.event) if root.strength == "ended" else None
    if end is not None and end.kind == "kill":  # a SIGKILL without a sender is most often the kernel's
        why = "the kernel log shows no kill of this process"
        if not solution.case.has_kernel_log:
            why = "these logs contain no kernel log that could show it"
        killed = solution.case.library.patterns["kernel-oom-killed-process"]
        rows.append(_row(killed, solution.ranks, None, why))
    for c in solution.alternatives:
        if c.pattern.id != root.pattern.id and not declared(root, c):  # a consequence is no alternative
            rows.append(_row(c.pattern, c.ranks, str(c.event.where), why_not(root, c)))
    return rows


def _row(p: Pattern, ranks: tuple[int, ...], where: str | None, why: str | None) -> Alternative:
    names = {"category": p.category, "pattern": p.id, "title": p.title}
    return {**names, "ranks": list(ranks), "where": where, "why_not": why}  # type: ignore[typeddict-item]


def why_not(root: Claim, c: Claim) -> str | None:
    """The fact that decides between two causes: a link, the order in time, or the kind of proof."""
    if order.before(root, c):
        return f"it came {order.later(root, c)}"
    if tier(root) < tier(c):
        same = c.event.where == root.event.where  # one line, read in two ways
        return f"{c.event.where} {_kind(c)}" + ("" if same or tier(root) > 1 else f"; {root.event.where} {_kind(root)}")
    return "which came first is not determined" if c.first and root.at is not None else None


def _kind(c: Claim) -> str:
    if c.strength == "silent":
        return "shows only who fell silent"
    if c.strength == "ended":
        return "shows only how a process ended"
    return next(words for limit, words in KINDS if tier(c) <= limit)
