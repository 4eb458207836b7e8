"""Findings -> sentences: the headline, why, what to do, what is missing. Plain words, names and times; no jargon of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import regex

from postmortem.diagnose.case import Case, as_int, gist
from postmortem.diagnose.exits import describe
from postmortem.model import Confidence, Event, Finding

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


def headline(case: Case, root: Finding, ranks: Sequence[int], victims: dict[str, list[int]]) -> str:
    """One sentence: who, what, when, and what it did to the others."""
    e = root.event
    who = ranks_text(ranks)
    hosts = root.hosts if len(root.hosts) == 1 else ()
    if who and hosts and len(ranks) <= 6:
        who += f" on {hosts[0]}"
    what, remark = _what(root, who, len(ranks) > 1)
    if root.pattern.id == "rank-exit-crash-signal" and ranks and case.finished >= set(ranks):
        remark += ", after it had finished" if len(ranks) == 1 else ", after they had finished"
    when = "" if root.pattern.derived and not remark else clock_time(e.at, e.at_sigma)
    return f"{what}{when}{'; ' + remark if remark else ''}{_effects(victims)}."


def _what(root: Finding, who: str, many: bool) -> tuple[str, str]:
    """What happened to whom, and a remark that comes after the time."""
    e, p = root.event, root.pattern
    title = p.title.rstrip(".")
    subject = who or (f"GPU {root.gpus[0]}" if root.gpus else "")
    if not subject and root.pattern.entity in ("host", "peer") and len(root.hosts) == 1:
        subject = root.hosts[0]
    if root.gpus and who:
        subject += f" (GPU {root.gpus[0]})"
    line = str(e.fields.get("line") or "")
    code = e.fields.get("code")
    match p.id:
        case "python-exception":
            return f"{subject or 'A process'} raised {_short(line)}" + (f" in {code}" if code else ""), ""
        case "kernel-oom-killed-process" | "kernel-oom-summary":
            name = e.fields.get("comm") or "process"
            pid = f", pid {e.fields['pid']}" if e.fields.get("pid") else ""
            return f"{subject + ' was' if subject else 'A process was'} killed by the kernel's out-of-memory killer ({name}{pid})", ""
        case "faulthandler-fatal-error":
            return f"{subject or 'A process'} crashed: {_crash(e)}" + (f" in {code}" if code else ""), ""
        case "rank-exit-sigkill":
            return f"{subject or 'A process'} was killed with SIGKILL from outside", "nothing here says by whom"
        case "rank-exit-crash-signal" | "rank-exit-without-reason" | "rank-exit-cpu-limit":
            return f"{subject or 'A process'} ended with {_ending(e)}", f"{'they' if many else 'it'} printed no reason"
    if p.derived and root.because:
        return f"{_entitled(title, root.ranks, subject)}: {root.because}", ""
    if root.because and root.derived_confidence:
        return f"{subject} {'were' if many else 'was'} out of step with the others: {root.because}", inside(title)
    detail = _short(line or _telling(root))
    said = f"{subject}: {inside(title)}" if subject else title
    return said + (f" ({detail})" if detail else "") + (f" in {code}" if code and e.kind == "exception" else ""), ""


def _entitled(title: str, ranks: Sequence[int], subject: str) -> str:
    """`A rank did not arrive …` with the rank's name in it."""
    if not subject or not title.startswith("A rank "):
        return title
    said = title.removeprefix("A rank ")
    if len(ranks) > 1:
        said = said.replace("was ", "were ", 1)
    return f"{subject} {said}"


def inside(title: str) -> str:
    """A title as it stands after a colon: only words that are no names lose their capital."""
    first = title.split(" ", 1)[0]
    return title[0].lower() + title[1:] if first in _COMMON else title


_COMMON = frozenset({
    "A", "An", "Another", "The", "One", "Two", "Not", "No", "Some", "All", "Tensor", "Tensors", "Rank", "Ranks", "Parameters", "Shared",
    "Memory", "Processes", "Opening", "Probabilities", "Gradients",
})  # fmt: skip


def _crash(e: Event) -> str:
    return str(e.fields.get("signal") or e.fields.get("line") or gist(e.text))[:100].lower().replace("sig", "SIG")


def _telling(root: Finding) -> str:
    """The line from where the pattern starts to match: what stands before it in a glued line is a progress bar or a prefix."""
    text = gist(root.event.text)
    for form in root.pattern.variants:
        if m := regex.search(form.regex, text):
            return text[m.start() :]
    return text


def _ending(e: Event) -> str:
    code = _code(e)
    told = describe(code) or "an error"
    return told if told.startswith("SIG") else f"exit code {told}"


def _short(text: str) -> str:
    """One line of log as it can stand in a sentence."""
    shown = " ".join(text.split()).rstrip(".")
    return shown if len(shown) <= 150 else shown[:147] + "…"


def _code(e: Event) -> int | None:
    return as_int(e.fields.get("exitcode"))


def _effects(victims: dict[str, list[int]]) -> str:
    parts = []
    for verb, ranks in victims.items():
        if ranks:
            n = len(ranks)
            parts.append(f"rank {ranks[0]} {verb.replace('were ', 'was ')}" if n == 1 else f"{n} other ranks {verb}")
    return "; " + ", ".join(parts) if parts else ""


def confidence(case: Case, root: Finding, ranks: Sequence[int], level: float) -> Confidence:
    """How sure: established needs a line that states it and a join that proves the entity."""
    if root.derived_confidence:
        return root.derived_confidence
    if root.pattern.id in ("rank-exit-sigkill", "rank-vanished", "rank-exit-without-reason", "rank0-still-busy"):
        return "hypothesis" if root.pattern.id != "rank-exit-sigkill" or not has_kernel_log(case) else "supported"
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
    if category in ("external-signal", "peer-lost", "host-oom", "native-crash", None) and not has_kernel_log(case):
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
