"""The document as JSON text that is the same bytes for the same incident, and safe to print.

    {"verdict": {"headline": "Rank 3 …", …}, "schema": "postmortem/incident/1"}
    -> {
     "schema": "postmortem/incident/1",
     "verdict": {
      "outcome": …

Keys are in the order of the contract, additions after them by name. Letters stay readable; characters that act on a
terminal and halves of surrogate pairs are written as \\uXXXX, which a parser restores. For people and pipes they are
written out in the text itself (`harmless`), because `jq -r` undoes the escapes of JSON in front of a terminal.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Any

from postmortem.report import view

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
