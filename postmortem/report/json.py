"""The document as JSON text that is the same bytes for the same incident, and safe to print.

    {"verdict": {"headline": "Rank 3 …", …}, "schema": "postmortem/incident/1"}
    -> {
     "schema": "postmortem/incident/1",
     "verdict": {
      "outcome": …

Keys are in the order of the contract, additions after them by name. Letters stay readable; characters that act on a
terminal and halves of surrogate pairs are written as \\uXXXX, which a parser restores. For people and pipes they are
written out in the text itself (`harmless`), because `jq -r` undoes the escapes of JSON in front of a terminal.

The brief is the verdict as JSON of at most 2 kB, for agents and chat: what failed, why, the proof, the actions, the
missing logs. Texts that do not fit are shortened evenly; `more` counts the items left out. Texts of logs are quoted
data: a caller that passes them to a model should declare them as such. `postmortem.model.contract.Brief` is its type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from postmortem.model.contract.brief import SCHEMA
from postmortem.report import causes, summary, text, view

ORDER = (
    "schema outcome category pattern headline confidence attempt because culprit evidence actions missing verdict chain"
    " alternatives findings ranks stacks clocks sources ledger job other_jobs replay fingerprint history trace tool id"
    " role entity state source path line end_line text what would_tell how kind time uncertainty_s rank host pid gpus"
    " pids code context before after"
)
_PLACE = {name: place for place, name in enumerate(ORDER.split())}
_PLAIN = (str, int, bool, type(None))
# In JSON text, anything beyond ASCII is inside a string, so an escape is always allowed there.
_ACTING = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# An escaped backslash is matched first, so that the letter after it is not taken for an escape.
_ESCAPE = re.compile(r"\\\\|\\u[0-9a-f]{4}|\\[bfr]")
_SHORT = {"\\\\": "\\\\", "\\b": "\\\\x08", "\\f": "\\\\x0c", "\\r": "\\\\r"}


def render_json(incident: view.Incident) -> str:
    """Return the document with a final line end."""
    return harmless(dump(incident.document, indent=1)) + "\n"


def dump(value: Any, indent: int | None = None, order: bool = True) -> str:
    """Return any plain value as stable, printable JSON, its keys in the contract's order or as they are."""
    separators = (",", ": ") if indent is not None else (",", ":")
    value = ordered(value) if order else value
    found = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, separators=separators)
    return _ACTING.sub(_escaped, found)


def harmless(dumped: str) -> str:
    """Return the output of `dump` with its escaped characters written out in the texts, but for line ends and tabs."""
    return _ESCAPE.sub(_written_out, dumped)


def _written_out(match: re.Match[str]) -> str:
    escape = match[0]
    return _SHORT.get(escape) or (f"\\\\x{escape[4:]}" if escape.startswith("\\u00") else "\\" + escape)


def ordered(value: Any) -> Any:
    """Return `value` with keys in the contract's order, and null for numbers that JSON does not have."""
    if isinstance(value, dict):
        by_name = {str(key): item for key, item in value.items()}
        return {
            name: by_name[name] if type(by_name[name]) in _PLAIN else ordered(by_name[name])
            for name in _in_order(tuple(by_name))
        }
    if isinstance(value, list | tuple):
        return [item if type(item) in _PLAIN else ordered(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@lru_cache(maxsize=1024)
def _in_order(names: tuple[str, ...]) -> list[str]:
    return sorted(names, key=lambda name: (_PLACE.get(name, len(_PLACE)), name))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


# ── the brief ───────────────────────────────────────────────────────────────────────────────────────────────

LIMIT = 2000  # bytes
MOST_ITEMS, MISSING = 3, 2  # reasons, actions and attempts; missing evidence
WIDTHS = (300, 200, 150, 110, 80, 60, 40, 25, 10)  # characters of a text, the widest that fits


def render_brief(incident: view.Incident) -> str:
    """Return the longest version that fits."""
    return _brief_text(shortened(incident.document)) + "\n"


def shortened(document: view.Document, proofs: int = 1, limit: int = LIMIT) -> dict[str, Any]:
    """Return the brief with so many lines of proof, in at most `limit` bytes."""
    versions = (_brief(document, proofs, wide) for wide in WIDTHS)
    return next((found for found in versions if len(_brief_text(found).encode()) < limit), _brief(document, proofs, 0))


def _brief_text(brief: dict[str, Any]) -> str:
    return harmless(dump(brief, indent=1, order=False))


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
