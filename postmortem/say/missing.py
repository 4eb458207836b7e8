"""The evidence that would decide open questions, each with the command or setting that yields it for these versions.
The commands are those of `postmortem collect`; missing.yaml has the texts.

    killed with SIGKILL       by the OOM killer or a person       the kernel log, around the time
    ended with SIGSEGV        in which call                       the kernel's line, a stack of the crash
    named by silence          stuck, slow, or in another branch   its stack, and the recorders' dumps
    had finished early        uneven data, or a branch            the number of batches of each rank

Nothing is requested where a line states cause and culprit, nor evidence that is here or would decide nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from postmortem.causes import moments
from postmortem.diagnose import endings
from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.rank_rows import POINT_TO_POINT
from postmortem.diagnose.endings import Ending
from postmortem.diagnose.grouped import grouped
from postmortem.diagnose.reached import Reached
from postmortem.diagnose.same import same_host
from postmortem.diagnose.unread import NAMED, OUR_OWN, Unread
from postmortem.diagnose.wording import listed, ranks_text
from postmortem.model import RunEnd
from postmortem.model.collected import KERNEL_DMESG, KERNEL_JOURNAL, PREVIOUS, PY_SPY, SACCT, filled, shown
from postmortem.model.contract.verdict import Collective, Missing
from postmortem.model.digits import number, whole
from postmortem.model.vocabulary import OF_THE_GROUP, WINDOW
from postmortem.system import forms

_TORCH = re.compile(r"(\d{1,6})\.(\d{1,6})")
_ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?::\d|\]:\d|<\d)")
_OF_THE_KERNEL = {"external-signal": "killer", "host-oom": "victim", "native-crash": "fault"}  # the question to its log
LOADER = "torch/utils/data/"
LOST = ("peer-lost", "network", "hang")
OWN = ("127.", "0.", "169.254.")  # a host's own addresses, and unassigned ones
NEAR = 4  # hosts in a sentence
PEERS = 2  # addresses


@dataclass(frozen=True)
class Open:
    """The known facts. `category` is the root's, or that of the complaints without a cause."""

    case: Case
    claims: Sequence[Claim]
    root: Claim | None
    category: str | None
    hosts: Sequence[str] = ()
    ranks: Sequence[int] = ()  # the culprits
    stuck: Collective | None = None  # the document's `verdict.collective`

    @property
    def end(self) -> Ending | None:
        """How the process at fault ended, by the decisive line or the launcher."""
        stated = endings.reported(self.root.event) if self.root is not None else None
        own = (end for r in self.ranks if (end := self.case.end_of(r)) is not None)
        return stated or next(own, None)

    @cached_property
    def zone(self) -> str:
        return moments.zone(self.case)

    @cached_property
    def stacked(self) -> set[int]:
        """Ranks with a stack in these logs."""
        return self.case.ranks_of(e for e in self.case.of_kind("stack") if not e.fields.get("child"))

    @property
    def seen(self) -> bool:
        """Whether the place of each culprit is known, by its stack or its other collective; or whether all waited
        for each other in calls that two ranks share."""
        if self.root is not None and len(_places(self.root)) > 1:
            return True
        elsewhere = {number(rank) for rank in (self.stuck["elsewhere"] if self.stuck else ())}
        if self.ranks:
            return {*self.stacked, *elsewhere} >= set(self.ranks)
        calls = {str(e.fields.get("collective")) for e in self.root.events} if self.root else set()
        return bool(calls) and calls <= set(POINT_TO_POINT)


def _places(root: Claim) -> set[tuple[object, object]]:
    """The calls, with their lines of code, that the proof of a comparison shows side by side."""
    if root.strength != "compared":
        return set()
    return {(e.fields.get("collective"), e.fields["code"]) for e in root.events if e.fields.get("code")}


def missing(open_: Open) -> list[Missing]:
    """The missing evidence, the most decisive first."""
    steps = (
        _peers, _kernel, _sender, _crash, _recorder, _stacks, _workers, _batches, _link, _logs, _scheduler, _pods,
        _reason,
    )  # fmt: skip
    return [item for step in steps for item in step(open_)]


def of_undetermined(open_: Open, reached: Reached | None) -> list[Missing]:
    """The missing evidence where no cause was found: of a job that stopped the ranks that others wait for, and stacks;
    at least the output of the ranks."""
    if reached is None:
        return missing(open_) or [_item("output")]
    waited_for = [_item("waited_for", who=ranks_text(reached.ranks))] if reached.ranks else []
    stacks = [] if open_.case.of_kind("stack") else [_item("stopped")]
    return [*waited_for, *missing(open_), *stacks] or [_item("output")]


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


def _peers(o: Open) -> Iterator[Missing]:
    """Logs of the other side of lost connections, where none of that host is here."""
    if o.category not in (*LOST, None) or (o.root is not None and o.root.ranks):
        return
    lost = [c.event for c in o.claims if c.role == "symptom" and c.pattern.category in LOST]
    complaints = grouped((address, e) for e in lost for address in _ADDRESS.findall(e.text))
    known = {s.host for s in o.case.sources.values() if s.host}
    others = [a for a in complaints if not a.startswith(OWN) and not any(same_host(a, h) for h in known)]
    for address in sorted(others, key=lambda a: (-len(complaints[a]), a))[:PEERS]:
        first, n = complaints[address][0], len(complaints[address])
        reports = f"{n} lines report it" if n > 1 else "1 line reports it"
        yield _item("peers", address=address, reports=reports, first=first.where, window=moments.window(first, o.zone))


def _kernel(o: Open) -> Iterator[Missing]:
    """The kernel log, where it may show how a process ended."""
    if not o.case.has_kernel_log and _may_be_the_kernels(o):
        logs = {"kernel_journal": shown(KERNEL_JOURNAL), "kernel_dmesg": shown(KERNEL_DMESG)}
        name = _OF_THE_KERNEL.get(o.category or "", "kernel")
        yield _item(name, host=_host_of_the_dead(o), **_around(o), **logs)


def _may_be_the_kernels(o: Open) -> bool:
    """Whether the kernel log may have the end: of a kill, a fault, a lost host; not of a request to stop or abort."""
    if o.category in ("host-oom", "peer-lost"):
        return o.end is None or o.end.signal != "SIGTERM"
    if o.category == "external-signal":
        return o.end is not None and o.end.kind == "kill" and not (o.root and o.root.tells("killed"))
    return o.category == "native-crash" and o.end is not None and o.end.signal in endings.FAULTS


def _crash(o: Open) -> Iterator[Missing]:
    """A stack of a crash, where none is here."""
    lines = (*o.case.of_kind("crash"), *(o.root.events if o.root else ()))
    seen = o.case.of_kind("stack") or any(e.fields.get("frames") for e in lines)
    if o.category == "native-crash" and not seen:
        yield _item("crash", who=ranks_text(o.ranks) if o.ranks else "the process")


def _sender(o: Open) -> Iterator[Missing]:
    """The system log, where a process was stopped and only its end shows it."""
    ended = o.category == "external-signal" and o.root is not None and o.root.strength == "ended"
    if ended and not _may_be_the_kernels(o):
        yield _item("sender", host=_host_of_the_dead(o), **_around(o))


def _host_of_the_dead(o: Open) -> str:
    return moments.host_of_the_dead(o.case, o.hosts)


def _around(o: Open) -> dict[str, str]:
    """` around 13:18`, and the minutes around it as journalctl has them; empty where the time is not known."""
    event = o.root.event if o.root is not None else None
    return {"when": moments.when(event, o.zone), "window": moments.window(event, o.zone)}


def _recorder(o: Open) -> Iterator[Missing]:
    if o.category in OF_THE_GROUP and not o.case.at_hand("recorder") and not o.seen and not _left(o):
        yield _item("recorder", settings=recorder_settings(o.case.registry.torch))


def _stacks(o: Open) -> Iterator[Missing]:
    """Stacks of the ranks that the others wait for, else of all ranks, where they are missing."""
    if o.category != "hang" or o.seen:
        return
    asked = [r for r in o.ranks or o.case.registry.ranks if r not in o.stacked]
    nameless = [e for e in o.case.of_kind("stack") if o.case.rank_of(e) is None]
    if nameless and len(nameless) >= len(asked):
        return  # any of them may be theirs
    who = ranks_text(asked) if o.ranks or o.stacked else "the other ranks" if nameless else "all ranks"
    yield _item("stacks", who=who, py_spy=shown(PY_SPY))


def _workers(o: Open) -> Iterator[Missing]:
    """Stacks of DataLoader workers, where their rank is known to wait for them."""
    stacks = [e for e in o.case.of_kind("stack") if o.case.rank_of(e) in o.ranks]
    loading = [e for e in stacks if any(LOADER in file for file, _, _ in e.fields.get("frames", ()))]
    if o.category == "hang" and loading and not any(e.fields.get("child") for e in stacks):
        yield _item("workers", who=ranks_text(o.case.ranks_of(loading)))


def _left(o: Open) -> bool:
    """Whether the culprits had finished."""
    return bool(o.ranks) and o.case.finished >= set(o.ranks)


def _batches(o: Open) -> Iterator[Missing]:
    if o.category in OF_THE_GROUP and _left(o) and not o.stacked >= set(o.ranks):
        yield _item("batches")


def _link(o: Open) -> Iterator[Missing]:
    """The state of the network, where only silence points to it."""
    hosts = sorted({*o.hosts, *o.case.registry.host_of.values()})
    if o.category == "network" and o.root is not None and o.root.strength == "silent":
        yield _item("link", hosts=listed(hosts) if 1 < len(hosts) <= NEAR else "the hosts")


def _logs(o: Open) -> Iterator[Missing]:
    """Logs of ranks without a line, where others have lines."""
    ranks = o.case.registry.ranks
    silent = [r for r in ranks if r not in o.case.by_rank]
    if 0 < len(silent) < len(ranks):
        yield _item("logs", who=ranks_text(silent))


def _scheduler(o: Open) -> Iterator[Missing]:
    """The scheduler's accounting, where a job ID is known."""
    here = any(s.kind in ("scheduler", "slurm") for s in o.case.sources.values())
    jobs = (c.event.fields.get("job_id", "") for c in o.claims)
    job = next(filter(str.isdecimal, jobs), None)
    if job and not here and o.category in ("external-signal", "scheduler", None):
        yield _item("scheduler", job=job, sacct=shown(filled(SACCT, JOB=job)))


def _pods(o: Open) -> Iterator[Missing]:
    """Logs of the containers before their restart."""
    cluster = [c for c in o.claims if c.speaker == "cluster" and c.accuses]
    if cluster and not (o.root is not None and o.root.speaker == "cluster"):
        yield _item("pods", report=cluster[0].event.where, previous=shown(PREVIOUS))


def _reason(o: Open) -> Iterator[Missing]:
    if o.root is not None and o.root.strength == "ended" and o.root.pattern.category == "python-exception":
        yield _item("reason", who=ranks_text(o.root.ranks) if o.root.ranks else "the rank")


def recorder_settings(version: str | None) -> str:
    """The flight recorder's variables for this torch: TORCH_NCCL_* before 2.9, TORCH_FR_* from then on."""
    m = _TORCH.match(version or "")
    if m and (whole(m[1]), whole(m[2])) < (2, 9):
        return (
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/nccl_trace_rank_"
        )
    return "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/shared/fr_rank_"
