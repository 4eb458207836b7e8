"""The verdict as JSON of at most 8 KB, for agents and chat: what failed, why, the proof, the actions, the missing logs.

    {"schema": "postmortem/brief/1", "headline": "Rank 3 …", "evidence": [{"where": "dmesg.txt:81", …}], …}

Items that do not fit are shortened evenly; `more` counts those left out. Texts of logs are quoted data: a caller that
passes them to a model should declare them as such. `postmortem.model.contract.Brief` is its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postmortem.model.contract.brief import SCHEMA
from postmortem.report import causes, summary, text, view
from postmortem.report import json as plain

LIMIT = 8192
# number of items, and characters of each
SIZES = ((10, 400), (8, 240), (6, 160), (4, 120), (3, 90), (2, 60), (1, 40), (0, 40))


def render_brief(incident: view.Incident) -> str:
    """Return the largest version that fits."""
    for items, wide in SIZES:
        found = plain.harmless(plain.dump(_brief(incident.document, items, wide), indent=1, order=False)) + "\n"
        if len(found.encode()) <= LIMIT:
            break
    return found


def _brief(document: view.Document, items: int, wide: int) -> dict[str, Any]:
    verdict, job = view.part(document, "verdict"), view.part(document, "job")
    proofs, chain = view.proofs(document), view.steps(document)
    because, missing = view.words(verdict.get("because")), view.rows(verdict.get("missing"))
    culprit = _culprit(view.part(verdict, "culprit"))
    many = max(3 * items, 1)  # names and numbers take less room than sentences
    brief: dict[str, Any] = {
        "schema": SCHEMA,
        **{name: _short(verdict.get(name), 80) for name in ("outcome", "category", "pattern", "confidence")},
        "job": next((text.line(job[key], 120) for key in ("id", "name") if job.get(key)), ""),
        "headline": text.sentence(" ".join(filter(None, view.lead(document))), max(wide, 240)),
        "culprit": {name: found[:many] for name, found in culprit.items()},
        "collective": text.sentence(summary.collective(document), max(wide, 200)),
        "attempts": [text.sentence(found.line, wide) for found in summary.attempts(document)[: max(items, 1)]],
        "because": [text.sentence(item, wide) for item in because[:items]],
        "actions": [text.sentence(action, wide) for action in view.action_lines(document)[: max(items, 1)]],
        "evidence": [_proof(proof, wide) for proof in proofs[: max(items, 1)]],
        "chain": [_step(step, wide) for step in chain[:items]],
        "missing": [{name: _short(item.get(name), wide) for name in ("what", "how")} for item in missing[:items]],
        "cause": text.line(causes.first(document), max(wide, 240)),
        "incomplete": text.sentence(view.incomplete(document), 200),
        "fingerprint": _short(document.get("fingerprint"), 80),
        "history": text.sentence(summary.history(document), max(wide, 200)),
    }
    if (attempt := view.whole(verdict.get("attempt"))) is not None:
        brief["attempt"] = attempt
    whole: dict[str, Sequence[Any]] = {"because": because, "evidence": proofs, "chain": chain, "missing": missing}
    whole |= culprit
    shown = {**brief, **brief["culprit"]}
    more = {name: n for name, found in whole.items() if (n := len(found) - len(shown[name])) > 0}
    if code := view.part(verdict, "culprit").get("code"):
        brief["culprit"]["code"] = text.line(code, 120)
    return {name: value for name, value in {**brief, "more": more}.items() if value not in ("", [], {})}


def _culprit(found: dict[str, Any]) -> dict[str, list[Any]]:
    known: dict[str, list[Any]] = {
        "ranks": view.numbers(found.get("ranks")),
        "hosts": [text.line(name, 80) for name in view.words(found.get("hosts"))],
        "gpus": [text.line(name, 80) for name in view.words(found.get("gpus"))],
        "pids": view.numbers(found.get("pids")),
    }
    return {name: values for name, values in known.items() if values}


def _short(value: object, wide: int) -> str | None:
    return None if value is None else text.line(value, wide)


def _proof(proof: view.Proof, wide: int) -> dict[str, Any]:
    found = {
        "where": text.line(proof.address, 200),
        "text": text.line(proof.text, wide),
        "time": _short(proof.time, 40),
        "rank": proof.rank,
        "host": text.line(proof.host, 80) or None,
        "pattern": text.line(proof.pattern, 80) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _step(step: view.Step, wide: int) -> dict[str, Any]:
    found = {
        "role": text.line(step.role, 20),
        "who": text.line(step.who, 80),
        "pattern": text.line(step.pattern, 80),
        "because": text.sentence(step.because, wide),
        "evidence": [text.line(proof.address, 200) for proof in step.proofs[:2]],
    }
    return {name: value for name, value in found.items() if value}
