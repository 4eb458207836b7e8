"""The confidence in a verdict, by one rule.

established a log line of this job states the failure, and the line itself or a join names the rank, GPU or host; or the stack of each rank is known when the others had waited until a timeout
supported   a comparison of the ranks, an exit code, or a deduction is between the line and the verdict
hypothesis  only silence, only an exit without a sender or a reason, or nothing that links the line to this job
"""

from __future__ import annotations

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict.choose import tier
from postmortem.formats import endings
from postmortem.model import Confidence
from postmortem.model.vocabulary import OF_THE_GROUP

FACT = 2.0  # the highest tier of stated claims about a failure itself, and not about a rank that was missed


def of(case: Case, root: Claim, ranks: tuple[int, ...]) -> Confidence:
    """The confidence that `root` is the cause and `ranks` are at fault."""
    if root.guess or root.strength in ("silent", "suffered"):
        return "hypothesis"
    if root.strength == "ended":
        return "supported" if _is_specific(case, root) else "hypothesis"
    # where a SIGKILL ended the rank itself, an uncaught exception may be that of a forked child
    of_a_child = root.pattern.category == "python-exception" and not set(root.ranks).isdisjoint(case.ended("kill"))
    stated = _stated(case, root, ranks) and not of_a_child
    return "established" if root.witnessed or stated else "supported"


def _is_specific(case: Case, root: Claim) -> bool:
    """Whether an end names its kind: a crash does, an exit code of the program's own does not, and a SIGKILL only
    where a kernel log would show the OOM killer."""
    end = endings.reported(root.event)
    if root.pattern.category == "python-exception" or (end is not None and end.kind == "own"):
        return False
    return end is None or end.kind != "kill" or case.has_kernel_log


def _stated(case: Case, root: Claim, ranks: tuple[int, ...]) -> bool:
    """Whether the line itself states the failure and its rank, GPU or host."""
    if root.strength != "stated" or root.pattern.derived or root.because or root.pattern.status != "stable":
        return False
    guessed = _guessed(case, root)
    if (ranks and (guessed or ranks != root.ranks)) or tier(root) > FACT:
        return False
    if root.event.fields.get("signal") == "Aborted":
        return False  # who calls abort() prints the reason in another line
    if ranks or root.pattern.category in OF_THE_GROUP:  # a mismatch or a hang is of some ranks
        return bool(ranks)
    return bool(root.gpus or root.hosts) or root.pattern.entity in ("job", "host")


def _guessed(case: Case, root: Claim) -> bool:
    """Whether only the number in the name of its file shows the rank, and no report of an end confirms it."""
    file = case.registry.files.get(root.event.where.source)
    reported = all(r in case.ends and case.ends[r].failed for r in root.ranks)
    return root.event.rank is None and file is not None and file.assumed and not reported
