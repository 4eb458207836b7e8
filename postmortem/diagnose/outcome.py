"""Whether the logs show a failure at all, and whether its cause is among what was found.

A log without any sign of life that has trouble in it, be it a warning, is no healthy run; nor is one of which only a stack is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.diagnose.case import Case
from postmortem.model import Finding

SILENT = ("rank-exit-without-reason", "rank-vanished")  # how a rank ended, not why


def of(case: Case, root: Finding | None, findings: Sequence[Finding], doubted: bool = False) -> str:
    """Name the outcome of one attempt: incident, undetermined or healthy. `doubted`: nothing says that the root is of this job."""
    if root is not None:
        unharmed = doubted and not _lifeless(case) and not any(f.role == "symptom" for f in findings)
        return "undetermined" if root.pattern.id in SILENT or unharmed else "incident"
    bad = [f for f in findings if f.role == "symptom" and f.pattern.severity in ("fatal", "error")]
    if bad and not (case.finished and not case.exits and len(case.finished) >= len(case.registry.ranks)):
        return "undetermined"
    if any(case.exit_code(r) not in (0, None) for r in case.exits):
        return "undetermined"
    if not case.finished and (
        case.of_kind("unreadable") or any(e.fields.get("pending") for e in case.of_kind("recorder"))
    ):
        return "undetermined"
    return (
        "undetermined"
        if _lifeless(case) and (_troubled(case, findings) or case.of_kind("stack"))
        else "healthy"
    )


def _lifeless(case: Case) -> bool:
    return not case.finished and not case.of_kind("progress", "finished")


def _troubled(case: Case, findings: Sequence[Finding]) -> bool:
    """Somebody complains, stops workers or still waits; or the kernel confirms a failure that nobody else tells of.

    What hangs in the kernel may be another job's, unless its lines are all that was handed in: then somebody chose them.
    """
    only_kernel = all(e.source_kind == "kernel" for e in case.events)
    for f in findings:
        kernel = f.event.source_kind == "kernel" or bool(f.event.fields.get("kernel"))
        if (f.role == "symptom" and (not kernel or (only_kernel and f.pattern.category is not None))) or (
            f.role == "confirms" and kernel and f.pattern.severity in ("fatal", "error")
        ):
            return True
    return False
