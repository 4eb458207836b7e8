"""The verdict as JSON of at most 2 kB, for agents and chat: what failed, why, the proof, the actions, the missing logs.

    {"schema": "postmortem/brief/1", "headline": "Rank 3 …", "evidence": [{"where": "dmesg.txt:81", …}], …}

Texts that do not fit are shortened evenly; `more` counts the items left out. Texts of logs are quoted data: a caller
that passes them to a model should declare them as such. `postmortem.model.contract.Brief` is its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postmortem.model.contract.brief import SCHEMA
from postmortem.report import causes, summary, text, view
from postmortem.report import json as plain

LIMIT = 2000  # bytes
MOST_ITEMS, MISSING = 3, 2  # reasons, actions and attempts; missing evidence
WIDTHS = (300, 200, 150, 110, 80, 60, 40, 25, 10)  # characters of a text, the widest that fits


def render_brief(incident: view.Incident) -> str:
    """Return the longest version that fits."""
    return _text(shortened(incident.document)) + "\n"


def shortened(document: view.Document, proofs: int = 1, limit: int = LIMIT) -> dict[str, Any]:
    """Return the brief with so many lines of proof, in at most `limit` bytes."""
    versions = (_brief(document, proofs, wide) for wide in WIDTHS)
    return next((found for found in versions if len(_text(found).encode()) < limit), _brief(document, proofs, 0))


def _text(brief: dict[str, Any]) -> str:
    return plain.harmless(plain.dump(brief, indent=1, order=False))


def _brief(document: view.Document, most: int, wide: int) -> dict[str, Any]:
    verdict, job = view.part(document, "verdict"), view.part(document, "job")
    because, missing = view.words(verdict.get("because")), view.rows(verdict.get("missing"))
    proofs, actions, culprit = view.proofs(document), view.action_lines(document), _culprit(verdict)
    sentence = min(max(wide, 40) * 2, 300)  # the headline, and others of which there is one
    brief: dict[str, Any] = {
        "schema": SCHEMA,
        **{name: _short(verdict.get(name), 80) for name in ("outcome", "category", "pattern", "confidence")},
        "job": next((text.line(job[key], sentence) for key in ("id", "name") if job.get(key)), ""),
        "headline": text.sentence(" ".join(filter(None, view.lead(document))), sentence),
        "culprit": {name: found[: wide // 10] for name, found in culprit.items()},
        "collective": text.sentence(summary.collective(document), sentence),
        "attempts": [text.sentence(found.line, wide) for found in summary.attempts(document)[-MOST_ITEMS:]],
        "because": [text.sentence(item, wide) for item in because[:MOST_ITEMS]],
        "actions": [text.sentence(action, wide) for action in actions[:MOST_ITEMS]],
        "evidence": [_proof(proof, sentence) for proof in proofs[:most]],
        "missing": [{name: _short(item.get(name), wide) for name in ("what", "how")} for item in missing[:MISSING]],
        "cause": text.line(causes.first(document), sentence),
        "incomplete": text.sentence(view.incomplete(document), wide),
        "fingerprint": _short(document.get("fingerprint"), 80),
        "history": text.sentence(summary.history(document), wide),
    }
    if (attempt := view.whole(verdict.get("attempt"))) is not None:
        brief["attempt"] = attempt
    whole: dict[str, Sequence[Any]] = {"because": because, "actions": actions, "evidence": proofs, "missing": missing}
    shown = {**brief, **brief["culprit"]}
    more = {name: n for name, found in (whole | culprit).items() if (n := len(found) - len(shown[name])) > 0}
    if code := view.part(verdict, "culprit").get("code"):
        brief["culprit"]["code"] = text.line(code, 120)
    return {name: value for name, value in {**brief, "more": more}.items() if value not in ("", [], {})}


def _culprit(verdict: view.Document) -> dict[str, list[Any]]:
    found = view.part(verdict, "culprit")
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
