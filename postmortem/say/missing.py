"""The evidence that would decide open questions, each with the command or setting that yields it for these versions.
The commands are those of `postmortem collect`; missing.yaml has the texts, and conditions on the facts.

    killed with SIGKILL       by the OOM killer or a person       the kernel log, around the time
    ended with SIGSEGV        in which call                       the kernel's line, a stack of the crash
    named by silence          stuck, slow, or in another branch   its stack, and the recorders' dumps
    had finished early        uneven data, or a branch            the number of batches of each rank

Nothing is requested where a line states cause and culprit, nor evidence that is here or would decide nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import lru_cache

from postmortem.causes import rows
from postmortem.causes.facts import Facts
from postmortem.causes.rows import Sign
from postmortem.causes.seen import Seen, around, host_of_the_dead, journal_options
from postmortem.diagnose.same import same_host
from postmortem.diagnose.verdict.unread import NAMED, OUR_OWN, Unread
from postmortem.diagnose.wording import listed, ranks_text
from postmortem.model import RunEnd
from postmortem.model.collected import KERNEL_DMESG, KERNEL_JOURNAL, PREVIOUS, PY_SPY, SACCT, filled, shown
from postmortem.model.contract.verdict import Missing
from postmortem.model.digits import whole
from postmortem.model.grouped import grouped
from postmortem.model.vocabulary import WINDOW
from postmortem.system import forms

Parts = dict[str, object]
_TORCH = re.compile(r"(\d{1,6})\.(\d{1,6})")
_ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?::\d|\]:\d|<\d)")
LOADER = "torch/utils/data/"
LOST = ("peer-lost", "network", "hang")
OWN = ("127.", "0.", "169.254.")  # a host's own addresses, and unassigned ones
NEAR = 4  # hosts in a sentence
PEERS = 2  # addresses


def missing(seen: Seen, known: Facts) -> list[Missing]:
    """The missing evidence, the most decisive first: the rows of missing.yaml whose conditions hold."""
    return [
        _item(name, **parts)
        for name, when, unless in _conditions()
        if any(all(sign.seen(known) for sign in signs) for signs in when) and not any(s.seen(known) for s in unless)
        for parts in PARTS.get(name, _no_parts)(seen)
    ]


@lru_cache(maxsize=1)
def _conditions() -> list[tuple[str, list[list[Sign]], list[Sign]]]:
    """Each row with conditions: its name, the conjunctions of which one must hold, and the signs of which none may."""
    listed = ((name, row) for name, row in forms.rows("say/missing").items() if "when" in row)
    return [
        (name, [[*map(rows.sign, signs)] for signs in row["when"]], [*map(rows.sign, row.get("unless", ()))])
        for name, row in listed
    ]


def of_undetermined(seen: Seen, known: Facts) -> list[Missing]:
    """The missing evidence where no cause was found: of a job that stopped the ranks that others wait for, and stacks;
    at least the output of the ranks."""
    found, reached = missing(seen, known), seen.solution.reached
    if reached is not None:
        waited_for = [_item("waited_for", who=ranks_text(reached.ranks))] if reached.ranks else []
        found = [*waited_for, *found, *([] if seen.case.of_kind("stack") else [_item("stopped")])]
    return found or [_item("output")]


def of_healthy(end: RunEnd) -> list[Missing]:
    """The end of a run that is seen at work to its last line."""
    return [_item("end")] if end == "unfinished" else []


def of_unread(unread: Unread) -> list[Missing]:
    """The files that were not read, whole."""
    lost = {str(row["path"]): str(row["reason"]) for row in unread.rows}
    return [_whole(path, reason) for path, reason in lost.items() if OUR_OWN not in reason][:NAMED]


def _whole(path: str, reason: str) -> Missing:
    words = (
        ("Permission denied", "closed"),
        ("interrupted", "late"),
        ("took too long", "late"),
        ("stopped after", "late"),
    )
    name = "window" if path == WINDOW else next((name for word, name in words if word in reason), "damaged")
    why = reason.removeprefix("cannot be opened: ").rstrip(".")
    return _item(name, path=path, quoted=shlex.quote(path), why=f"{why[:1].lower()}{why[1:]}")


def _item(name: str, **parts: object) -> Missing:
    """A row of missing.yaml."""
    row = forms.rows("say/missing")[name]
    evidence, question, how = (row[key].format(**parts) for key in ("evidence", "question", "how"))
    return {"what": evidence, "would_tell": question, "how": how}


# ── what is put into a row; nothing where the evidence would not decide ──────────────────────────────────────


def _no_parts(_: Seen) -> Iterator[Parts]:
    yield {}


def _peers(o: Seen) -> Iterator[Parts]:
    """Logs of the other side of lost connections, where none of that host is here."""
    if o.root is not None and o.root.ranks:
        return
    lost = [c.event for c in o.solution.claims if c.role == "symptom" and c.pattern.category in LOST]
    complaints = grouped((address, e) for e in lost for address in _ADDRESS.findall(e.text))
    known = {s.host for s in o.case.sources.values() if s.host}
    others = [a for a in complaints if not a.startswith(OWN) and not any(same_host(a, h) for h in known)]
    for address in sorted(others, key=lambda a: (-len(complaints[a]), a))[:PEERS]:
        first, n = complaints[address][0], len(complaints[address])
        reports = f"{n} lines report it" if n > 1 else "1 line reports it"
        window = journal_options(first, o.zone)
        yield {"address": address, "reports": reports, "first": first.where, "window": window}


def _of_the_dead(o: Seen) -> Iterator[Parts]:
    """The host and the minutes; empty where the time is not known."""
    event = o.root.event if o.root is not None else None
    yield {
        "host": host_of_the_dead(o.case, o.hosts),
        "when": around(event, o.zone),
        "window": journal_options(event, o.zone),
        "kernel_journal": shown(KERNEL_JOURNAL),
        "kernel_dmesg": shown(KERNEL_DMESG),
    }


def _who(o: Seen) -> Iterator[Parts]:
    yield {"who": ranks_text(o.ranks) if o.ranks else "the process"}


def _recorder(o: Seen) -> Iterator[Parts]:
    yield {"settings": recorder_settings(o.case.registry.torch)}


def _stacks(o: Seen) -> Iterator[Parts]:
    """Stacks of the ranks that the others wait for, else of all ranks, where they are missing."""
    asked = [r for r in o.ranks or o.case.registry.ranks if r not in o.stacked]
    nameless = [e for e in o.case.of_kind("stack") if o.case.rank_of(e) is None]
    if nameless and len(nameless) >= len(asked):
        return  # any of them may be theirs
    who = ranks_text(asked) if o.ranks or o.stacked else "the other ranks" if nameless else "all ranks"
    yield {"who": who, "py_spy": shown(PY_SPY)}


def _workers(o: Seen) -> Iterator[Parts]:
    """Stacks of DataLoader workers, where their rank is known to wait for them."""
    stacks = [e for e in o.case.of_kind("stack") if o.case.rank_of(e) in o.ranks]
    loading = [e for e in stacks if any(LOADER in file for file, _, _ in e.fields.get("frames", ()))]
    if loading and not any(e.fields.get("child") for e in stacks):
        yield {"who": ranks_text(o.case.ranks_of(loading))}


def _batches(o: Seen) -> Iterator[Parts]:
    if not o.stacked >= set(o.ranks):
        yield {}


def _link(o: Seen) -> Iterator[Parts]:
    hosts = sorted({*o.hosts, *o.case.registry.host_of.values()})
    yield {"hosts": listed(hosts) if 1 < len(hosts) <= NEAR else "the hosts"}


def _logs(o: Seen) -> Iterator[Parts]:
    """Logs of ranks without a line, where others have lines; a gap in the numbers of half of them is a rank, too."""
    known = o.case.registry.ranks
    ranks = range(highest) if len(known) > 1 and (highest := max(known) + 1) <= 2 * len(known) else known
    silent = [r for r in ranks if r not in o.case.by_rank]
    if 0 < len(silent) < len(ranks):
        yield {"who": ranks_text(silent)}


def _scheduler(o: Seen) -> Iterator[Parts]:
    """The scheduler's accounting, where a job ID is known."""
    here = any(s.kind in ("scheduler", "slurm", "job-report") for s in o.case.sources.values())
    job = next(filter(str.isdecimal, (c.event.fields.get("job_id", "") for c in o.solution.claims)), None)
    if job and not here:
        yield {"job": job, "sacct": shown(filled(SACCT, JOB=job))}


def _pods(o: Seen) -> Iterator[Parts]:
    """Logs of the containers before their restart."""
    cluster = [c for c in o.solution.claims if c.speaker == "cluster" and c.accuses]
    if cluster and not (o.root is not None and o.root.speaker == "cluster"):
        yield {"report": cluster[0].event.where, "previous": shown(PREVIOUS)}


PARTS: dict[str, Callable[[Seen], Iterator[Parts]]] = {
    "peers": _peers, "kernel": _of_the_dead, "killer": _of_the_dead, "victim": _of_the_dead, "fault": _of_the_dead,
    "sender": _of_the_dead, "crash": _who, "recorder": _recorder, "stacks": _stacks, "workers": _workers,
    "batches": _batches, "link": _link, "logs": _logs, "scheduler": _scheduler, "pods": _pods, "reason": _who,
}  # fmt: skip


def recorder_settings(version: str | None) -> str:
    """The flight recorder's variables for this torch: TORCH_NCCL_* before 2.9, TORCH_FR_* from then on."""
    m = _TORCH.match(version or "")
    if m and (whole(m[1]), whole(m[2])) < (2, 9):
        return (
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/nccl_trace_rank_"
        )
    return "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/shared/fr_rank_"
