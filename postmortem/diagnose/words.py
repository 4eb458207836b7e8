"""Findings -> how sure it is and what is missing; ranks and times in words. Plain words, no jargon of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from postmortem.diagnose import order
from postmortem.diagnose.case import Case
from postmortem.diagnose.exits import ending
from postmortem.library.titles import inside
from postmortem.model import Confidence, Finding

_PATH = re.compile(r"\S*[./:_]\S")
_TORCH = re.compile(r"(\d+)\.(\d+)")


def ranks_text(ranks: Sequence[int]) -> str:
    if not ranks:
        return ""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > 6:
        return f"{len(ranks)} ranks ({ranks[0]}…{ranks[-1]})"
    return "Ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"


def clock_time(at: float | None, sigma: float) -> str:
    """` at 03:12:08 UTC`, where the moment is known to a few seconds and its date is."""
    if at is None or sigma > 5 or at < 4e8:
        return ""
    return f" at {datetime.fromtimestamp(int(at), UTC):%H:%M:%S}"


def iso(at: float | None) -> str | None:
    if at is None or not 4e8 < at < 7e9:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def because(
    case: Case,
    root: Finding,
    proof: str,
    ranks: Sequence[int],
    findings: Sequence[Finding],
    victims: dict[str, list[int]],
) -> list[str]:
    """The reasons for the verdict, each a sentence: what the line states, what the ranks show, how they ended, what follows."""
    compared = (
        root.because
        and (root.pattern.derived or root.derived_confidence)
        and not root.pattern.id.startswith("rank-exit-")
    )
    out = []
    if (
        not root.pattern.derived
    ):  # where the headline tells of a comparison of the ranks, what the line states stands here
        out.append(f"{proof}: {inside(root.pattern.title)}." if compared else f"{proof} states it.")
    elif compared:
        out.append(f"{proof} shows it.")
    out += [sentence(root.because)] if root.because and not compared else []
    if root.derived_confidence == "hypothesis" and not root.pattern.derived:
        out.append(
            "That it is of this job is a guess: it has no date or number of a job, and nothing that the ranks say bears it out."
        )
    compared_too = [
        f.because
        for f in findings
        if f.pattern.derived and f.because != root.because and f.because and set(f.ranks) & set(ranks)
    ]
    out += map(sentence, compared_too)
    known = case.registry.rank_of_pid(root.pids[0], root.event.host) if root.pids else None
    if known in ranks and not root.pattern.derived and root.pattern.entity == "pid":
        out.append(f"Pid {root.pids[0]} is rank {ranks[0]} by the launcher's and the rank's own lines.")
    exits = {r: ending(case.exit_code(r)) for r in ranks[:4] if case.exit_code(r) is not None}
    out += [
        f"The launcher saw rank {r} end with {code}."
        for r, code in exits.items()
        if root.pattern.id != "rank-exit-sigkill"
    ]
    for verb, hit in victims.items():
        if hit:
            told = verb.replace("were ", "was ") if len(hit) == 1 else verb
            out.append(f"{ranks_text(hit)} {told}: that follows from it.")
    if (other := order.first_elsewhere(root, (f for f in findings if f.role == "symptom"))) is not None:
        where = (order.first_of(other) or other.event).where
        out.append(f"The first that another host says of it ({where}): {order.elsewhere(root, other)}.")
    if root.pattern.why:
        out.append(root.pattern.why)
    return list(dict.fromkeys(out))


def sentence(words: str) -> str:
    """A reason as a sentence of its own; a path keeps its small letter."""
    return (words if _PATH.match(words) else words[0].upper() + words[1:]) + "."


def confidence(case: Case, root: Finding, ranks: Sequence[int], level: float) -> Confidence:
    """How sure: established needs a line that states it and a join that proves the entity."""
    if root.derived_confidence:
        return root.derived_confidence
    if root.pattern.id in (
        "rank-exit-sigkill",
        "rank-vanished",
        "rank-exit-without-reason",
        "rank0-still-busy",
    ):
        return (
            "hypothesis"
            if root.pattern.id != "rank-exit-sigkill" or not has_kernel_log(case)
            else "supported"
        )
    inferred = bool(ranks) and not root.ranks  # who it was is a deduction, though what happened is stated
    if root.pattern.derived or inferred or root.event.where.source in case.registry.assumed:
        return "supported"
    if level <= 2.0 and (ranks or root.gpus or root.hosts or root.pattern.entity in ("job", "host")):
        return "established" if root.pattern.status == "stable" and not root.because else "supported"
    return "supported"


def has_kernel_log(case: Case) -> bool:
    return any(s.kind == "kernel" for s in case.sources.values())


def missing(case: Case, root: Finding | None, hosts: Sequence[str]) -> list[dict[str, str]]:
    """The evidence that would settle what is open, and the command or setting that yields it for the versions at hand."""
    out: list[dict[str, str]] = []
    category = root.pattern.category if root else None
    host = hosts[0] if hosts else "the host of the rank that died"
    if category in ("external-signal", "peer-lost", "host-oom", "native-crash", None) and not has_kernel_log(
        case
    ):
        tells = "whether the kernel's OOM killer or a fault in native code ended the process"
        out.append(
            {
                "what": f"kernel log of {host}",
                "would_tell": tells,
                "how": "dmesg --time-format iso > dmesg.txt   (or: journalctl -k -o short-iso-precise > kernel.txt)",
            }
        )
    if category in ("hang", "collective-mismatch", None) and not case.of_kind("recorder"):
        out.append(
            {
                "what": "flight-recorder dumps of all ranks",
                "would_tell": "which collective each rank was in, and with which arguments",
                "how": recorder_settings(case.registry.torch),
            }
        )
    if category in ("hang", None) and not case.of_kind("stack"):
        out.append(
            {
                "what": "stacks of all ranks while they hang",
                "would_tell": "where the silent rank is stuck",
                "how": "py-spy dump --pid PID   for every rank, before anything is killed",
            }
        )
    silent = sorted(r for r in case.registry.ranks if r not in case.by_rank)
    if silent and len(silent) < len(case.registry.ranks):
        shown = ", ".join(map(str, silent[:8])) + ("…" if len(silent) > 8 else "")
        out.append(
            {
                "what": f"logs of rank {shown}",
                "would_tell": "what these ranks did last",
                "how": "torchrun --log-dir DIR --redirects 3 --tee 3   writes a file for every rank",
            }
        )
    if category == "python-exception" and root is not None and root.pattern.id == "rank-exit-without-reason":
        out.append(
            {
                "what": "the rank's traceback or reason",
                "would_tell": "why it left",
                "how": "decorate the entry point with torch.distributed.elastic.multiprocessing.errors.record",
            }
        )
    return out


def recorder_settings(version: str | None) -> str:
    """The environment variables that switch the flight recorder on, for this torch (TORCH_NCCL_* before 2.9, TORCH_FR_* from then on)."""
    m = _TORCH.match(version or "")
    if m and (int(m[1]), int(m[2])) < (2, 9):
        return "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/nccl_trace_rank_"
    return "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/shared/fr_rank_"
