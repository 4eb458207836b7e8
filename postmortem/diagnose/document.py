"""Solution -> the incident document, the one value in the middle that every output is a function of (schema postmortem/incident/1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from postmortem.align import Timeline
from postmortem.align.years import YEARLESS_END
from postmortem.diagnose import accounts, headline, hint, order, verdict, words
from postmortem.diagnose.case import Case, gist
from postmortem.diagnose.views import WAITING
from postmortem.library.titles import inside
from postmortem.model import Event, Finding, Source
from postmortem.version import __version__

if TYPE_CHECKING:
    from postmortem.diagnose import Solution

MAX_EVIDENCE = 40
PER_FINDING = 3


class _Evidence:
    """The numbered list of lines that claims point at; a line stands in it once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.items: list[dict[str, Any]] = []
        self.index: dict[tuple[str, int | None, str], int] = {}

    def add(self, e: Event, pattern: str | None, spoken_of: Sequence[int] = ()) -> int | None:
        e = _own_frame(e)
        key = (e.where.source, e.where.line, e.text[:200])
        if key in self.index:
            return self.index[key]
        if len(self.items) >= MAX_EVIDENCE:
            return None
        rank = self.case.registry.rank_of(e)
        if rank is None and len(spoken_of) == 1:
            rank = spoken_of[0]
        self.index[key] = len(self.items)
        self.items.append(
            {
                "source": e.where.source,
                "line": e.where.line,
                "end_line": e.where.end_line,
                "text": e.text,
                "time": words.iso(e.at) if e.at_sigma <= 60 else None,
                "uncertainty_s": round(e.at_sigma, 6) if words.iso(e.at) else None,
                "rank": rank,
                "host": e.host or (self.case.registry.host_of.get(rank) if rank is not None else None),
                "pattern": pattern,
                "attempt": e.attempt,
                "context": list(e.context),
                "context_before": e.before,
            }
        )
        return self.index[key]


def _own_frame(e: Event) -> Event:
    """Of a stack, the line of the user's code that it stands in: `Thread 21965 (idle)` by itself shows nothing."""
    if e.kind != "stack" or not e.fields.get("code") or e.where.line is None:
        return e
    file, _, number = str(e.fields["code"]).rpartition(":")
    frame = re.compile(rf"{re.escape(file)}(?::|\", line ){number}\b")
    place = next((i for i in range(e.before + 1, len(e.context)) if frame.search(e.context[i])), None)
    if place is None:
        return e
    return e._replace(
        where=e.where._replace(line=e.where.line + place - e.before), text=e.context[place], before=place
    )


def write(
    solution: Solution,
    others: Sequence[Solution],
    timeline: Timeline,
    sources: Sequence[Source],
    ledger: Mapping[str, object],
) -> dict[str, Any]:
    """The whole document."""
    case, root = solution.case, solution.root
    evidence = _Evidence(case)
    victims = _victims(solution)
    chain = _chain(solution, evidence)
    findings = [
        _row(f"o{i}", f, evidence) for i, f in enumerate(sorted(solution.findings, key=_finding_order)[:200])
    ]
    doc: dict[str, Any] = {
        "schema": "postmortem/incident/1",
        "verdict": _verdict(solution, victims, evidence),
        "chain": chain,
        "alternatives": _alternatives(solution),
        "findings": findings,
        "ranks": accounts.ranks(solution),
        "clocks": [accounts.clock(c) for c in timeline.clocks_at(_moment(root))],
        "sources": accounts.sources(timeline, sources),
        "ledger": dict(ledger),
        "job": {
            "id": solution.job,
            "world_size": case.registry.world or (len(case.registry.ranks) or None),
            "hosts": sorted(
                {s.host for s in case.sources.values() if s.host} | set(case.registry.host_of.values())
            ),
            "torch": case.registry.torch,
            "nccl": case.registry.nccl,
            "attempts": solution.attempts,
        },
        "other_jobs": [_other(s) for s in others],
        "replay": {"scenario": root.pattern.replay or None, "arguments": hint.arguments(solution)}
        if root
        else {"scenario": None, "arguments": {}},
        "fingerprint": _fingerprint(solution),
        "tool": {"version": __version__, "library": case.library.digest},
        "trace": [{"step": i + 1, "text": text} for i, text in enumerate(case.trace[:500])],
    }
    return doc


def _moment(root: Finding | None) -> float | None:
    """When the verdict's first evidence was written: what a clock was off by then is what matters."""
    return (
        root.at
        if root is not None
        and root.at is not None
        and root.at > YEARLESS_END
        and root.event.at_sigma < order.PLACED
        else None
    )


def _finding_order(f: Finding) -> tuple[int, str, int]:
    return (
        ("cause", "symptom", "confirms", "context").index(f.role),
        f.event.where.source,
        f.event.where.line or 0,
    )


def _victims(solution: Solution) -> dict[str, list[int]]:
    """Ranks other than the culprits, by what happened to them, as verbs for the headline."""
    out: dict[str, list[int]] = {
        "timed out": [],
        "lost the connection": [],
        "were stopped by the launcher": [],
    }
    culprit = set(solution.ranks)
    for f in solution.findings:
        for rank in f.ranks:
            if rank in culprit or f.role != "symptom":
                continue
            if f.pattern.id in WAITING:
                out["timed out"].append(rank)
            elif f.pattern.category == "peer-lost":
                out["lost the connection"].append(rank)
    for f in solution.findings:
        if f.role == "symptom" and f.pattern.category in ("peer-lost", "hang") and not f.ranks:
            who = solution.case.registry.rank_of(f.event)
            if who is not None and who not in culprit:
                out["timed out" if f.pattern.id in WAITING else "lost the connection"].append(who)
    told = {r for ranks in out.values() for r in ranks}
    out["were stopped by the launcher"] = [
        r for r in solution.case.exits if solution.case.exit_code(r) in (-15, 143) and r not in told | culprit
    ]
    seen: set[int] = set()
    for verb, ranks in out.items():
        out[verb] = sorted(set(ranks) - seen)
        seen |= set(ranks)
    return out


def _verdict(solution: Solution, victims: dict[str, list[int]], evidence: _Evidence) -> dict[str, Any]:
    case, root = solution.case, solution.root
    for e in solution.leads:
        evidence.add(e, None)
    base: dict[str, Any] = {"outcome": solution.outcome, "category": None, "pattern": None}
    culprit: dict[str, Any] = {"ranks": [], "hosts": [], "gpus": [], "pids": [], "code": None}
    if root is None:
        category = _symptom_category(solution) if solution.outcome == "undetermined" else None
        missing = words.missing(case, None, ()) if solution.outcome == "undetermined" else []
        return base | {
            "category": category,
            "headline": _rootless_headline(solution, victims),
            "confidence": "supported" if solution.outcome == "healthy" else "hypothesis",
            "because": [*_rootless_because(solution), *_lead_sentences(solution)],
            "culprit": culprit,
            "evidence": evidence.items,
            "actions": []
            if solution.outcome == "healthy"
            else [{"kind": "none", "text": "Collect what is missing, then analyse again."}],
            "missing": missing,
        }
    hosts = _hosts(solution, root)
    pids = list(root.pids) or [p for r in solution.ranks[:64] for p in case.registry.pids.get(r, [])[:1]]
    culprit |= {
        "ranks": list(solution.ranks),
        "hosts": hosts if root.pattern.entity != "job" or solution.ranks else [],
        "gpus": list(root.gpus),
        "pids": pids[:64],
        "code": _code(root),
    }
    told = headline.headline(case, root, solution.ranks, victims)
    if solution.outcome == "recovered":
        told = f"Recovered: in attempt {case.attempt} {inside(told)}"
    doc = base | {
        "category": root.pattern.category,
        "pattern": root.pattern.id,
        "headline": told,
        "confidence": words.confidence(case, root, solution.ranks, verdict.tier(root)),
        "because": words.because(
            case, root, str(_own_frame(root.event).where), solution.ranks, solution.findings, victims
        ),
        "culprit": culprit,
        "evidence": evidence.items,
        "actions": [{"kind": a.kind, "text": a.text} for a in root.pattern.actions],
        "missing": words.missing(case, root, hosts),
    }
    if solution.outcome == "recovered" or solution.attempts > 1:
        doc["attempt"] = case.attempt
    return doc


def _hosts(solution: Solution, root: Finding) -> list[str]:
    """Where it happened: what the cause says, where its ranks live, or what another line on the same trouble says of these ranks."""
    at_home = {h for r in solution.ranks if (h := solution.case.registry.host_of.get(r))}
    alike = [
        f
        for f in solution.findings
        if f.ranks and f.role == "cause" and f.pattern.category == root.pattern.category
    ]
    return list(root.hosts) or sorted(
        at_home or {h for f in alike if set(f.ranks) <= set(solution.ranks) for h in f.hosts}
    )


def _code(root: Finding) -> str | None:
    """The line of code where the failure shows, that of a culprit before any other's."""
    placed = [e for e in root.events if e.fields.get("code")]
    return next((str(e.fields["code"]) for e in sorted(placed, key=lambda e: e.rank not in root.ranks)), None)


def _rootless_headline(solution: Solution, victims: dict[str, list[int]]) -> str:
    case = solution.case
    if solution.outcome == "healthy":
        n = len(case.finished)
        goodbyes = f"; {n} of {len(case.registry.ranks) or n} ranks said that they finished" if n else ""
        return f"No failure in these logs{goodbyes}."
    told = [
        f"{words.ranks_text(r).lower()} {v.replace('were ', 'was ') if len(r) == 1 else v}"
        for v, r in victims.items()
        if r
    ]
    seen = "; ".join(told) or _seen(solution)
    life = f"Recovered: in attempt {case.attempt}" if solution.outcome == "recovered" else "Undetermined:"
    return f"{life} {seen}, and the cause is not in these logs."


def _seen(solution: Solution) -> str:
    """What can be said of a failure without a cause: the first complaint in plain words."""
    said = [f for f in solution.findings if f.role in ("symptom", "confirms")]
    loud = [f for f in said if f.pattern.severity in ("fatal", "error")] or [
        f for f in said if f.role == "symptom"
    ]
    if not loud:
        return (
            "the stack of a process is all that tells" if solution.case.of_kind("stack") else "the job failed"
        )
    first = min(
        loud, key=lambda f: (f.pattern.category in (None, "scheduler"), f.role != "symptom", f.event.where)
    )
    return inside(first.pattern.title.rstrip("."))


def _symptom_category(solution: Solution) -> str | None:
    found = [f.pattern.category for f in solution.findings if f.role == "symptom" and f.pattern.category]
    return next(
        (c for c in ("hang", "peer-lost", "rendezvous", "network") if c in found), found[0] if found else None
    )


def _rootless_because(solution: Solution) -> list[str]:
    if solution.outcome == "healthy":
        handled = [f for f in solution.findings if f.role == "context" and f.because]
        return [f"{f.event.where}: {f.because}" for f in handled[:5]] or [
            "No line of these logs states a failure, and no launcher reports one."
        ]
    return [f"{f.event.where}: {inside(f.pattern.title)}." for f in _by_pattern(_loudest(solution))][:6]


def _loudest(solution: Solution) -> list[Finding]:
    """The complaints: what failed before what was only told to stop."""
    complaints = [f for f in solution.findings if f.role == "symptom"]
    return sorted(
        complaints, key=lambda f: (f.pattern.severity not in ("fatal", "error"), f.pattern.category is None)
    )


def _lead_sentences(solution: Solution) -> list[str]:
    """What one rank alone printed, where no pattern knows the failure."""
    out = []
    for e in solution.leads:
        rank = solution.case.registry.rank_of(e)
        who = f"Only rank {rank} printed" if rank is not None else "Not seen in a healthy run"
        out.append(f"{who}: `{gist(e.text)[:160]}` ({e.where}).")
    return out


def _chain(solution: Solution, evidence: _Evidence) -> list[dict[str, Any]]:
    """The root, what confirms it, and what it explains."""
    root = solution.root
    if root is None:
        rows = []
        for i, f in enumerate(_by_pattern(_loudest(solution))[:8]):
            rows.append(_row(f"f{i + 1}", f, evidence))
        return rows
    helpers = [
        f
        for f in solution.findings
        if f is not root
        and (f.role == "confirms" or f.pattern.derived)
        and f.role != "symptom"
        and _about(f, solution)
        if (f.pattern.id, f.ranks)
        != (root.pattern.id, root.ranks)  # one comparison with another proof: the root has it already
    ]
    symptoms = [f for f in _loudest(solution) if f is not root]
    rows = [_row("f1", root, evidence)]
    announced = _announcement(solution.case, root)
    if announced is not None and (n := evidence.add(announced, None, root.ranks)) is not None:
        rows[0]["evidence"].append(n)
    for f in helpers[:6]:
        rows.append(_row(f"f{len(rows) + 1}", f, evidence))
        rows[-1]["role"] = "confirms"
    explained = []
    for f in _by_pattern(symptoms)[:12]:
        rows.append(_row(f"f{len(rows) + 1}", f, evidence))
        if when := order.elsewhere(root, f):
            rows[-1]["because"] = f"{when[0].upper()}{when[1:]}. {rows[-1]['because']}"
        explained.append(rows[-1]["id"])
    rows[0]["explains"] = explained
    return rows


def _announcement(case: Case, root: Finding) -> Event | None:
    """The log line right above a traceback that somebody caught and logged: `ERROR bad batch 8, skipping it`."""
    opened = root.event.fields.get("opened")
    if not isinstance(opened, int) or root.event.fields.get("excepthook"):
        return None
    return next(
        (
            e
            for e in case.of_kind("notice")
            if e.where.source == root.event.where.source and e.where.line == opened - 1
        ),
        None,
    )


def _about(f: Finding, solution: Solution) -> bool:
    return not f.ranks or bool(set(f.ranks) & set(solution.ranks))


def _by_pattern(findings: Sequence[Finding]) -> list[Finding]:
    """Symptoms of the same pattern and shape on many ranks are one row."""
    from dataclasses import replace

    groups: dict[str, list[Finding]] = {}
    for f in findings:
        groups.setdefault(f.pattern.id, []).append(f)
    out = []
    for members in groups.values():
        first = min(members, key=lambda f: (f.at is None, f.at or 0.0))
        out.append(
            replace(
                first,
                events=tuple(e for f in members for e in f.events)[:64],
                ranks=tuple(sorted({r for f in members for r in f.ranks})),
            )
        )
    return out


def _row(name: str, f: Finding, evidence: _Evidence) -> dict[str, Any]:
    shown = f.events[:PER_FINDING] if f.role != "context" else ()
    numbers = list(
        dict.fromkeys(n for e in shown if (n := evidence.add(e, f.pattern.id, f.ranks)) is not None)
    )
    entity: dict[str, Any] = {}
    if f.ranks:
        entity["rank" if len(f.ranks) == 1 else "ranks"] = f.ranks[0] if len(f.ranks) == 1 else list(f.ranks)
    for key, values in (("host", f.hosts), ("gpu", f.gpus), ("pid", f.pids)):
        if len(values) == 1:
            entity[key] = values[0]
    return {
        "id": name,
        "pattern": f.pattern.id,
        "title": f.pattern.title,
        "role": f.role,
        "entity": entity,
        "time": words.iso(f.at),
        "explains": [],
        "because": words.sentence(f.because) if f.because else f.pattern.what,
        "evidence": numbers,
        "count": len(f.events),
    }


def _alternatives(solution: Solution) -> list[dict[str, Any]]:
    root = solution.root
    out = []
    for f in solution.alternatives:
        if root is None or f.pattern.id == root.pattern.id:
            continue
        came = order.earlier(root, f)
        if came < 0:
            why = f"it came {order.later(root, f)}"
        elif verdict.tier(root) < verdict.tier(f):
            why = f"{root.event.where} is nearer to a cause than {f.event.where}"
        else:
            open_order = (
                "which came first is not determined; "
                if came == 0 and order.first_of(f) and root.at is not None
                else ""
            )
            why = f"{open_order}{root.event.where} accounts for more of what is seen"
        out.append(
            {
                "category": f.pattern.category,
                "pattern": f.pattern.id,
                "ranks": list(f.ranks),
                "where": str(f.event.where),
                "why_not": why,
            }
        )
    if root is not None and root.pattern.id == "rank-exit-sigkill":
        kernel = words.has_kernel_log(solution.case)
        why = (
            "the kernel log at hand shows no kill of this process"
            if kernel
            else "there is no kernel log here that could show it; this stays open"
        )
        out.insert(
            0,
            {
                "category": "host-oom",
                "pattern": "kernel-oom-killed-process",
                "ranks": list(solution.ranks),
                "where": None,
                "why_not": why,
            },
        )
    return out


def _other(solution: Solution) -> dict[str, Any]:
    evidence = _Evidence(solution.case)
    doc = _verdict(solution, _victims(solution), evidence)
    return {
        "id": solution.job,
        "outcome": solution.outcome,
        "category": doc["category"],
        "headline": doc["headline"],
    }


_NUMBER = re.compile(r"\d+")


def _fingerprint(solution: Solution) -> str | None:
    """The same for the same failure on other hosts at other times: pattern, line of code, exception class, collective."""
    root = solution.root
    if root is None:
        return None
    parts = [
        root.pattern.id,
        _code(root) or "",
        str(root.event.fields.get("type") or ""),
        str(root.event.fields.get("op") or root.event.fields.get("collective") or ""),
    ]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
