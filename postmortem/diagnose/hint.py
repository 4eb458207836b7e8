"""Solution -> what a replay can take over from the incident: `{"collective": "allreduce", "rank": 2, "timeout_s": 600.0, "world_size": 8}`.

Plain numbers and names only; whoever replays checks each against the type and the range of the scenario's own parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postmortem.diagnose.exits import describe

if TYPE_CHECKING:
    from postmortem.diagnose import Solution

STATED = (
    ("op", "collective"),
    ("dtype", "dtype"),
    ("port", "port"),
    ("step", "step"),
    ("timeout_ms", "timeout_s"),
    ("bytes", "bytes"),
)


def arguments(solution: Solution) -> dict[str, Any]:
    """What a replay can take over: plain numbers and names only."""
    found: dict[str, Any] = _stated(solution)
    if solution.case.registry.world:
        found["world_size"] = solution.case.registry.world
    if solution.ranks:
        found["rank"] = solution.ranks[0]
    return found


def _stated(solution: Solution) -> dict[str, Any]:
    """The values that the lines of the root state, else those of what it explains, and the signal that ended the rank at fault."""
    found: dict[str, Any] = {}
    findings = [solution.root] if solution.root else []
    findings += [f for f in solution.findings if f.role == "symptom"]
    for field, name in STATED:
        value = next((v for f in findings if (v := f.event.fields.get(field)) not in (None, "")), None)
        if isinstance(value, int) or (isinstance(value, str) and value.isascii() and len(value) <= 40):
            found[name] = int(value) if isinstance(value, int) or value.isdigit() else value.lower()
    if "timeout_s" in found:
        found["timeout_s"] = found["timeout_s"] / 1000 if isinstance(found["timeout_s"], int) else None
    code = solution.case.exit_code(solution.ranks[0]) if solution.ranks else None
    if (ended := describe(code)) and ended.startswith("SIG"):
        found["signal"] = ended[3:].split()[0]
    return {name: value for name, value in sorted(found.items()) if value is not None}
