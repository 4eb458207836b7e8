"""Solution -> scenario and parameters of a replay: `{"collective": "allreduce", "rank": 2, "timeout_s": 600.0}`.

Plain numbers and names only; the replay checks each against the type and the range of the scenario's parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict.solution import Solution
from postmortem.model.contract.verdict import Cause
from postmortem.model.digits import whole
from postmortem.model.vocabulary import OF_THE_GROUP

STATED = (
    ("op", "collective"),
    ("dtype", "dtype"),
    ("port", "port"),
    ("step", "step"),
    ("timeout_ms", "timeout_s"),
    ("bytes", "bytes"),
)
NAME = 40  # characters of a name


def scenario(root: Claim | None, usual: Sequence[Cause]) -> str | None:
    """The scenario of the verdict. Two sizes in one collective, a rank that is not in it, or only the end of a process
    may be of any cause: there that of the first usual cause."""
    first, own = usual[0].get("replay") if usual else None, root.pattern.replay if root else ""
    symptom = root is None or root.pattern.category in OF_THE_GROUP or root.strength == "ended"
    return (first or own if symptom else own or first) or None


def arguments(solution: Solution) -> dict[str, Any]:
    """The values in the lines of the root, else those in its symptoms, and the signal that ended the rank at fault."""
    found: dict[str, Any] = {name: _value(solution, field) for field, name in STATED}
    timeout = found["timeout_s"]
    found["timeout_s"] = timeout / 1000 if isinstance(timeout, int) else None
    found["world_size"] = solution.case.registry.world or None
    found["rank"] = solution.ranks[0] if solution.ranks else None
    end = solution.case.end_of(found["rank"])
    found["signal"] = end.signal.removeprefix("SIG") if end and end.signal else None
    return {name: value for name, value in sorted(found.items()) if value is not None}


def _value(solution: Solution, field: str) -> int | str | None:
    claims = [solution.root] if solution.root else []
    claims += [c for c in solution.claims if c.role == "symptom"]
    value = next((v for c in claims if (v := c.event.fields.get(field)) not in (None, "")), None)
    if isinstance(value, str) and value.isascii() and len(value) <= NAME:
        return whole(value) if value.isdecimal() else value.lower()
    return value if isinstance(value, int) else None
