"""Solution -> the incident document (schema postmortem/incident/1), the input of every output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from postmortem.align.place import BROAD
from postmortem.align.years import YEARLESS_END
from postmortem.causes import facts, weigh
from postmortem.causes.facts import Facts
from postmortem.causes.seen import Seen
from postmortem.diagnose import Diagnosis, order
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict import blame, confidence
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.wording import INHERITED, capital, iso, sentence
from postmortem.model import Confidence, Event, Source
from postmortem.model.contract import incident as contract
from postmortem.model.contract import verdict
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import AT_HAND, CULPRITS, OF_PEERS, PLACES
from postmortem.privacy import cut
from postmortem.say import collective, hang, headline, hint, missing, quantities, reasons, tables, traits
from postmortem.say.evidence import Evidence, own_frame, stacks
from postmortem.version import __version__

PER_CLAIM = 3  # lines of proof
FINDINGS, ROWS, HELPERS, TRACE = 200, 12, 6, 500
ORDER = ("cause", "symptom", "confirms", "context")
COLLECT: verdict.Action = {"kind": "none", "text": "Collect the missing evidence, then analyze again."}
Row = dict[str, Any]


def write(
    found: Diagnosis, sources: Sequence[Source], ledger: contract.Ledger, resolved: weigh.Resolved = weigh.NONE
) -> contract.Document:
    solution, others, timeline = found
    case, root = solution.case, solution.root
    evidence = Evidence(case)
    chain = _chain(solution, evidence)
    findings = [_row(f"o{i}", c, evidence) for i, c in enumerate(sorted(solution.claims, key=_order)[:FINDINGS])]
    collectives = collective.last(case)
    seen = _seen(solution)
    known = facts.of(seen) if solution.outcome != "healthy" else facts.NOTHING
    found_verdict, ranks = _verdict(seen, known, evidence), tables.ranks(solution, collectives)
    usual = weigh.causes(seen, known, found_verdict, resolved)
    document: contract.Document = {
        "schema": contract.SCHEMA,
        "verdict": found_verdict,
        "chain": chain,
        "alternatives": reasons.alternatives(solution),
        "unexplained": [
            {"pattern": c.pattern.id, "title": c.pattern.title, "where": str(c.event.where), "because": against}
            for c, against in solution.account.unexplained[:ROWS]
        ],
        "findings": findings,
        "processes": tables.processes(solution, collectives),
        "ranks": ranks,
        "stacks": stacks(case, solution.ranks),
        "clocks": [tables.clock(c) for c in timeline.clocks_at(_moment(root))],
        "sources": tables.sources(timeline, sources),
        "ledger": ledger,
        "job": _job(solution),
        "runs": tables.runs(solution),
        "attempts": tables.attempts(solution),
        "other_jobs": [_other(s) for s in others],
        "replay": {"scenario": hint.scenario(root, usual.rows), "arguments": hint.arguments(solution) if root else {}},
        "fingerprint": traits.printed(solution, found_verdict, ranks),
        "tool": {"version": __version__, "library": case.library.digest},
        "trace": [{"step": i + 1, "text": text} for i, text in enumerate(list(case.notes)[:TRACE])],
    }
    if numbers := quantities.quantities(solution, found_verdict["category"]):
        document["quantities"] = numbers
    if (matrix := hang.hang(solution, found_verdict.get("collective"))) is not None:
        document["hang"] = matrix
    if memory := tables.memory(solution):
        document["memory"] = memory
    if usual.rows:
        document["causes"] = list(usual.rows)
        found_verdict["because"] = [*filter(None, [usual.meaning]), *found_verdict["because"]]
    if usual.first and found_verdict["confidence"] != "established":
        found_verdict["rest"] = " ".join(filter(None, (found_verdict.get("rest"), f"{usual.first}.")))
    return document


def _job(solution: Solution) -> contract.Job:
    registry = solution.case.registry
    ranks = registry.ranks
    named = {s.host for s in solution.case.sources.values() if s.host}
    return {
        "id": solution.job,
        "name": None,
        "command": solution.named.command and cut(solution.named.command, tables.COMMAND),
        "world_size": _world(registry.world, sorted({*ranks, *solution.ranks})),
        "hosts": sorted(named | set(registry.host_of.values())),
        "torch": registry.torch,
        "nccl": registry.nccl,
        "attempts": solution.attempt_count,
    }


def _world(stated: int | None, ranks: Sequence[int]) -> int | None:
    """The number of ranks as a line states it, else as all ranks from 0 on show it; a line about one node or one
    group states fewer than there are."""
    if stated and all(rank < stated for rank in ranks):
        return stated
    return len(ranks) if ranks and max(ranks) + 1 == len(ranks) else None


def _moment(root: Claim | None) -> float | None:
    """The time of the verdict's first evidence, at which the offsets of clocks are shown."""
    if root is None or root.at is None or root.at <= YEARLESS_END or root.event.at_sigma >= BROAD:
        return None
    return root.at


def _order(c: Claim) -> tuple[int, str, int]:
    return ORDER.index(c.role), c.event.where.source, c.event.line


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────


def _seen(solution: Solution) -> Seen:
    """What the facts are computed from."""
    root, stuck = solution.root, collective.stuck_in(solution)
    if root is None:
        sure: Confidence = "supported" if solution.outcome == "healthy" else "hypothesis"
        return Seen(solution, _of_symptoms(solution), stuck, sure)
    hosts = blame.hosts(solution.case, root, solution.ranks, solution.claims)
    return Seen(solution, root.pattern.category, stuck, confidence.of(solution.case, root, solution.ranks), hosts)


def _verdict(seen: Seen, known: Facts, evidence: Evidence) -> verdict.Verdict:
    solution, root = seen.solution, seen.root
    for e in (*(solution.reached.proof if solution.reached else ()), *solution.leads):
        evidence.add(e, None)
    row: Row = {"outcome": solution.outcome, "end": solution.end, "category": seen.category, "pattern": None}
    row["headline"] = headline.headline(solution)
    row["title"], rest = headline.title(solution)
    row |= {"rest": rest} if rest else {}
    row |= {"culprit": _culprit(seen), "evidence": evidence.items, "confidence": seen.confidence}
    if seen.stuck is not None:
        row["collective"] = seen.stuck
    if root is not None:
        row["pattern"] = root.pattern.id
        if solution.outcome == "recovered" or solution.attempt_count > 1:
            row["attempt"] = solution.case.attempt
    row["because"] = reasons.because(solution, str(own_frame(root.event).where) if root else "")
    row["actions"] = [*_actions(seen, root)] if root else []
    if not row["actions"] and solution.outcome != "healthy":
        row["actions"] = [COLLECT]
    return cast(verdict.Verdict, row | {"missing": _missing(seen, known)})


def _missing(seen: Seen, known: Facts) -> list[verdict.Missing]:
    """What was not read, and the evidence that would decide."""
    solution, open_ = seen.solution, seen.confidence != "established"
    lost = missing.of_unread(solution.lost) if solution.lost and open_ else []
    if seen.root is not None:
        return [*lost, *(missing.missing(seen, known) if open_ else ())]
    if solution.outcome == "healthy":
        return [*lost, *missing.of_healthy(solution.end)]
    unread = solution.outcome != "undetermined" or solution.unread is not None
    return [*lost, *(() if unread else missing.of_undetermined(seen, known))]


def _actions(seen: Seen, root: Claim) -> Iterator[verdict.Action]:
    """The next steps, without requests for evidence that is here, and those for one rank where several are at fault.
    `fix-code` needs code that is known to be at fault: no hypothesis, and no hang without a code line."""
    n, code = len(seen.ranks) if seen.case.registry.world != 1 else 0, _code(root)
    others: tuple[str, ...] = CULPRITS if not n else (CULPRITS[n > 1],)  # no comparison with ranks that are not known
    if seen.ranks and seen.stuck is not None:
        at = {"entered": seen.stuck["entered"], "missing": seen.stuck["missing"]}
        others += tuple(place for place in PLACES if set(seen.ranks) <= set(at[place]))
    open_ = seen.confidence == "hypothesis" or (seen.category == "hang" and code is None)
    for a in root.pattern.actions:
        if a.unless not in others and not (a.unless in AT_HAND and seen.case.at_hand(a.unless)):
            text = a.at.replace("{code}", code) if a.at and code else a.text
            yield {"kind": "none" if open_ and a.kind == "fix-code" else a.kind, "text": text}


def _of_symptoms(solution: Solution) -> str | None:
    """The category of the complaints where the logs were read and the cause is not found."""
    if solution.outcome != "undetermined" or solution.unread is not None:
        return None
    if solution.reached is not None:
        return solution.reached.category
    found = [c.pattern.category for c in solution.claims if c.role == "symptom" and c.pattern.category]
    first = (category for category in ("hang", *OF_PEERS, "network") if category in found)
    return next(first, min(found, default=None))


def _culprit(seen: Seen) -> verdict.Culprit:
    root, case = seen.root, seen.case
    if root is None:
        return {"ranks": [], "hosts": [], "gpus": [], "pids": [], "code": None}
    pids = list(root.pids) or [p for r in seen.ranks[:64] for p in case.registry.pids.get(r, [])[:1]]
    return {
        "ranks": list(seen.ranks),
        "hosts": list(seen.hosts),
        "gpus": list(root.gpus),
        "pids": pids[:64],
        "code": _code(root),
    }


def _code(root: Claim) -> str | None:
    """The line of code where the failure shows, that of a culprit before any other's."""
    placed = [e for e in root.events if e.fields.get("code")]
    return next((e.fields["code"] for e in sorted(placed, key=lambda e: e.rank not in root.ranks)), None)


def _other(solution: Solution) -> contract.OtherJob:
    category = solution.root.pattern.category if solution.root else _of_symptoms(solution)
    text = headline.headline(solution)
    return {"id": solution.job, "outcome": solution.outcome, "category": category, "headline": text}


# ── the chain ───────────────────────────────────────────────────────────────────────────────────────────────


def _chain(solution: Solution, evidence: Evidence) -> list[contract.Finding]:
    """The root, its confirmations and its consequences."""
    root = solution.root
    if root is None:
        return [_row(f"f{i + 1}", c, evidence) for i, c in enumerate(_by_pattern(reasons.loudest(solution))[:8])]
    rows = [_row("f1", root, evidence)]
    rows[0]["because"] = " ".join(filter(None, (rows[0]["because"], root.pattern.why)))
    announced = _announcement(solution.case, root)
    if announced is not None and (n := evidence.add(announced, None, root.ranks)) is not None:
        rows[0]["evidence"].append(n)
    for c in _helpers(solution, root)[:HELPERS]:
        rows.append(_row(f"f{len(rows) + 1}", c, evidence) | {"role": "confirms"})
    linked = {id(link.effect) for link in solution.account.links}
    for c in _by_pattern([c for c in reasons.loudest(solution) if id(c) in linked])[:ROWS]:
        row = _row(f"f{len(rows) + 1}", c, evidence)
        if when := order.elsewhere(root, c):
            row["because"] = f"{capital(when)}. {row['because']}"
        if all(row[key] == rows[0][key] for key in ("pattern", "role", "entity")):  # the same complaint again
            rows[0]["evidence"] += row["evidence"]
            rows[0]["count"] += row["count"]
            continue
        rows.append(row)
        rows[0]["explains"].append(row["id"])
    return rows


def _helpers(solution: Solution, root: Claim) -> list[Claim]:
    """Confirmations of the root and comparisons about its ranks, without its own."""
    found: dict[tuple[object, ...], Claim] = {}  # reports of two files on one rank are one fact
    for c in solution.claims:
        helps = c.role == "confirms" or (c.pattern.derived and c.role != "symptom")
        same = (c.pattern.id, c.ranks) == (root.pattern.id, root.ranks)
        if helps and not same and (not c.ranks or set(c.ranks) & set(solution.ranks)):
            found.setdefault((c.pattern.id, c.ranks, c.hosts, c.gpus, c.pids), c)
    return list(found.values())


def _announcement(case: Case, root: Claim) -> Event | None:
    """The log line right above a traceback that was caught and logged: `ERROR bad batch 8, skipping it`."""
    opened = root.event.fields.get("opened")
    if opened is None or root.event.fields.get("excepthook"):
        return None
    above = (root.event.where.source, opened - 1)
    return next((e for e in case.of_kind("notice") if e.place == above), None)


def _by_pattern(claims: Sequence[Claim]) -> list[Claim]:
    """Symptoms of one pattern on many ranks are one row."""
    rows = []
    for members in grouped((c.pattern.id, c) for c in claims).values():
        first = min(members, key=lambda c: (c.at is None, c.at or 0.0))
        events = tuple(e for c in members for e in c.events)[:64]
        rows.append(replace(first, events=events, ranks=tuple(sorted({r for c in members for r in c.ranks}))))
    return rows


def _row(name: str, c: Claim, evidence: Evidence) -> contract.Finding:
    shown = c.events[:PER_CLAIM] if c.role != "context" else ()
    numbers = [n for e in shown if (n := evidence.add(e, c.pattern.id, c.ranks)) is not None]
    return {
        "id": name,
        "pattern": c.pattern.id,
        "title": c.pattern.title,
        "role": c.role,
        "entity": _entity(c, evidence.case),
        "time": _time(c, evidence, numbers),
        "explains": [],
        "because": sentence(c.because) if c.because else c.pattern.what,
        "evidence": list(dict.fromkeys(numbers)),
        "count": len(c.events),
    }


def _entity(c: Claim, case: Case) -> contract.Entity:
    entity: contract.Entity = {}
    if len(c.ranks) == 1:
        entity["rank"] = c.ranks[0]
    elif c.ranks:
        entity["ranks"] = list(c.ranks)
    own = case.registry.host_of.get(c.ranks[0]) if len(c.ranks) == 1 else None
    hosts = (own,) if own else c.hosts  # a complaint about a missing rank comes from another host
    if len(hosts) == 1:
        entity["host"] = hosts[0]
    if len(c.gpus) == 1:
        entity["gpu"] = c.gpus[0]
    if len(c.pids) == 1:
        entity["pid"] = c.pids[0]
    return entity


def _time(c: Claim, evidence: Evidence, numbers: Sequence[int]) -> str | None:
    """The time of its first shown line that has one; without shown lines, of its earliest line."""
    shown = [evidence.items[n]["time"] for n in numbers]
    if not numbers:
        return iso(min((e.at for e in c.events if e.at is not None and e.at_sigma <= INHERITED), default=None))
    return next((t for t in shown if t), None)
