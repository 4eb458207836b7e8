"""Facts and the causes of a symptom -> the rows of `causes` in the document, best first.

often 3, sometimes 2, rarely 1, and the effect of each sign that these logs show     4 and more: likely
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from types import MappingProxyType
from typing import NamedTuple

from postmortem.causes import rows
from postmortem.causes.facts import Facts, Known
from postmortem.causes.rows import Cause, Sign, Symptom
from postmortem.causes.seen import Seen, around, host_of_the_dead, journal_options
from postmortem.diagnose.wording import capital, ranks_text
from postmortem.library.titles import inside
from postmortem.model.contract import verdict
from postmortem.model.contract import verdict as contract

SHOWN, FEWEST = 5, 2
LIKELY, POSSIBLE, AHEAD = 4, 2, 2
TOOLS = {"sacct": "slurm", "scontrol": "slurm", "sinfo": "slurm", "kubectl": "container"}  # and the forms of lines.yaml
SIGNS = 3  # sentences for or against
SMOOTH, BOUND = 32, 2  # incidents that the weights count for, and the largest effect of a site's
Resolved = Mapping[str, Mapping[str, int]]  # how often each cause was the true one, by category
NONE: Resolved = {}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")  # of a host or a job: nothing that a shell would read
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Weighed:
    """A cause with the signs that these logs show. `score` is None where one of them excludes it."""

    cause: Cause
    score: int | None
    for_: tuple[tuple[Sign, Known], ...]
    against: tuple[tuple[Sign, Known], ...]


class Usual(NamedTuple):
    """The rows of the document, what the symptom means, and the first cause in a sentence where it is ahead of all
    others; empty where there are none."""

    rows: Sequence[contract.Cause] = ()
    meaning: str = ""
    first: str = ""


def causes(seen: Seen, known: Facts, found: verdict.Verdict, resolved: Resolved = NONE) -> Usual:
    """The usual causes of the verdict where it is a symptom. `resolved` are the true causes of the site's incidents."""
    if seen.solution.outcome == "healthy" or seen.category is None:
        return Usual()
    symptom = symptom_of(known)
    if symptom is None:
        return Usual()
    here = resolved.get(seen.category, {})
    fields, rows_ = _fields(seen, found, known), shown(weighed(symptom, known, here))
    return Usual([_row(w, fields) for w in rows_], _meaning(symptom, known), _ahead(rows_))


def _meaning(symptom: Symptom, known: Facts) -> str:
    found = ((sign, value) for sign in symptom.means if (value := sign.seen(known)) is not None)
    return next((capital(sign.says.replace("{value}", str(k.value))) for sign, k in found), "")


def _ahead(found: Sequence[Weighed]) -> str:
    scores = [w.score or 0 for w in found]
    ahead = len(found) > 1 and scores[0] >= LIKELY and scores[0] - scores[1] >= AHEAD
    return f"Most likely: {inside(found[0].cause.title)}" if ahead else ""


def symptom_of(known: Facts) -> Symptom | None:
    """The symptom with the longest condition that holds."""
    best = max(rows.symptoms(), key=lambda s: s.depth(known), default=None)
    return best if best is not None and best.depth(known) else None


def weighed(symptom: Symptom, known: Facts, resolved: Mapping[str, int] = MappingProxyType({})) -> list[Weighed]:
    """The causes that no sign excludes, best first."""
    found = [_of_site(_weigh(cause, known), symptom, resolved) for cause in symptom.causes]
    kept = [w for w in found if w.score is not None]
    return sorted(kept, key=lambda w: -(w.score or 0))


def _of_site(w: Weighed, symptom: Symptom, resolved: Mapping[str, int]) -> Weighed:
    """With the effect of the resolved incidents of the site: the logarithm of how much more often it was the true cause
    than its weight has it. Two incidents change an order by one sign at most."""
    ids = {cause.id: 2.0**cause.weight for cause in symptom.causes}
    n, total = resolved.get(w.cause.id, 0), sum(resolved.get(i, 0) for i in ids)
    usual = ids[w.cause.id] / sum(ids.values())
    effect = int(log2((n + SMOOTH * usual) / ((total + SMOOTH) * usual)))
    effect = max(-BOUND, min(BOUND, effect))
    if w.score is None or not effect:
        return w
    says = f"it was the cause of {n} of {total} resolved incidents of this kind at this site"
    own = ((Sign("site", effect=effect, says=says), Known(n)),)
    up, down = (own, ()) if effect > 0 else ((), own)
    return replace(w, score=w.score + effect, for_=(*up, *w.for_), against=(*down, *w.against))


def _weigh(cause: Cause, known: Facts) -> Weighed:
    seen = [(sign, found) for sign in cause.signs if (found := sign.seen(known)) is not None]
    if any(sign.effect is None for sign, _ in seen):
        return Weighed(cause, None, (), ())
    seen.sort(key=lambda pair: -abs(pair[0].effect or 0))
    return Weighed(
        cause,
        cause.weight + sum(sign.effect or 0 for sign, _ in seen),
        tuple((sign, found) for sign, found in seen if (sign.effect or 0) > 0),
        tuple((sign, found) for sign, found in seen if (sign.effect or 0) < 0),
    )


def shown(found: Sequence[Weighed]) -> list[Weighed]:
    """The rows to show: those that are possible, and unlikely ones that would be costly to miss."""
    kept = [w for w in found if (w.score or 0) >= POSSIBLE or w.cause.costly]
    return [*kept, *(w for w in found if w not in kept)][: max(min(len(kept), SHOWN), FEWEST)]


def _row(w: Weighed, fields: Mapping[str, str]) -> contract.Cause:
    score = w.score or 0
    unlikely = w.cause.costly and score < POSSIBLE
    row: contract.Cause = {
        "id": w.cause.id,
        "title": w.cause.title,
        "likelihood": "likely" if score >= LIKELY else "unlikely but costly" if unlikely else "possible",
        "for": [_said(sign, known) for sign, known in w.for_[:SIGNS]],
        "against": [_said(sign, known) for sign, known in w.against[:SIGNS]],
        "check": filled(_here(w.cause.check, fields["systems"]) if w.cause.command else w.cause.check, fields),
        "command": w.cause.command,
        "expect": filled(w.cause.expect, fields),
        "fix": filled(w.cause.fix, fields),
    }
    if replay := next((sign.replay for sign, _ in w.for_ if sign.replay), w.cause.replay):
        row["replay"] = replay
    return row


def _said(sign: Sign, known: Known) -> contract.Sign:
    source, line, _ = known.line or (None, None, "")
    text = sign.says.replace("{value}", str(known.value))
    return {"fact": sign.fact, "value": known.value, "text": text, "source": source, "line": line}


# ── the check, for this job ─────────────────────────────────────────────────────────────────────────────────


def _here(check: str, systems: str) -> str:
    """The commands of a check without those of schedulers that these logs do not show, where others remain."""
    parts = check.split("; ")
    kept = [p for p in parts if TOOLS.get(p.split(" ", 1)[0], systems) in systems]
    return "; ".join(kept or parts)


def filled(template: str, fields: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda m: fields.get(m[1], m[0]), template)


def _fields(seen: Seen, found: verdict.Verdict, known: Facts) -> dict[str, str]:
    """Values for the templates; a word in capitals where the logs do not have one. Names from logs get into commands
    only where a shell reads nothing into them."""
    case, culprit = seen.case, found["culprit"]
    event = seen.root.event if seen.root else None
    hosts = [h for h in culprit["hosts"] if _NAME.fullmatch(h)]
    address = known.line("address-and-port")
    port, master = _address(address)
    job = seen.solution.job or ""
    systems = [name for name in ("slurm", "container") if known.line(name)]
    return {
        "on": f"on {host_of_the_dead(case, hosts)}{around(event, seen.zone)}",
        "window": journal_options(event, seen.zone),
        "host": hosts[0] if hosts else "HOST",
        "pid": str(culprit["pids"][0]) if culprit["pids"] else "PID",
        "rank": str(culprit["ranks"][0]) if culprit["ranks"] else "RANK",
        "who": ranks_text(culprit["ranks"]) if culprit["ranks"] else "each rank",
        "systems": " ".join(systems),
        "port": port,
        "master": master,
        "job": job if _NAME.fullmatch(job) else "JOB",
    }


def _address(found: Known | None) -> tuple[str, str]:
    """The port and the host that a line names."""
    from postmortem.system import forms

    m = forms.regexes("causes/lines")["address-and-port"].search(found.line.text) if found and found.line else None
    if m is None:
        return "PORT", "MASTER"
    return next(filter(None, m.group("p1", "p2", "p3"))), next(filter(None, m.group("h1", "h2", "h3")))
