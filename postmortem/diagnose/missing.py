"""The evidence that would settle what is open, and the command or setting that yields it for the versions at
hand.

What is asked for follows from what is open: the log of the address that somebody lost, the other ranks of a
hang, the kernel's word on a kill, around the time at which it happened. Where a line states the cause and
whom it hit, nothing is asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from postmortem.diagnose.case import Case, moment
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.same import same_host
from postmortem.diagnose.wording import DATED, ranks_text
from postmortem.digits import whole
from postmortem.model import Event

_TORCH = re.compile(r"(\d{1,6})\.(\d{1,6})")
_ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?::\d|\]:\d|<\d)")
KILLED = ("external-signal", "peer-lost", "host-oom", "native-crash")
WAITED = ("hang", "collective-mismatch")
LOST = ("peer-lost", "network", "hang")
OWN = ("127.", "0.", "169.254.")  # a host's own addresses, and those that nobody gave
PEERS = 2  # addresses that are asked for
AROUND_S = 300  # seconds of a log before and after a moment
Item = dict[str, str]


@dataclass(frozen=True)
class Open:
    """What is known and what is not. `category` is the root's, or of the complaints where no cause was
    found."""

    case: Case
    claims: Sequence[Claim]
    root: Claim | None
    category: str | None
    hosts: Sequence[str] = ()


def missing(open_: Open) -> list[Item]:
    """What to get next, most telling first."""
    steps = (_peers, _kernel, _recorder, _stacks, _logs, _scheduler, _pods, _reason)
    return [item for step in steps for item in step(open_)]


def _item(what: str, would_tell: str, how: str) -> Item:
    return {"what": what, "would_tell": would_tell, "how": how}


def _peers(o: Open) -> Iterator[Item]:
    """The other side of connections that were lost, where nothing of that host is here."""
    if o.category not in (*LOST, None) or (o.root is not None and o.root.ranks):
        return
    complaints: dict[str, list[Event]] = {}
    for c in o.claims:
        if c.role == "symptom" and c.pattern.category in LOST:
            for address in _ADDRESS.findall(c.event.text):
                complaints.setdefault(address, []).append(c.event)
    known = {s.host for s in o.case.sources.values() if s.host}
    counted = Counter({a: len(events) for a, events in complaints.items() if not _here(o, a, known)})
    for address, n in sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:PEERS]:
        first = complaints[address][0]
        yield _item(
            f"logs of the host at {address}",
            f"why it disconnected: {n} line{'s' if n > 1 else ''} report{'' if n > 1 else 's'} it, first {first.where}",
            "the rank's log, its launcher's and the kernel's on that host" + _when(first),
        )


def _here(o: Open, address: str, known: set[str]) -> bool:
    host = o.case.registry.by_address.get(address, address)
    return address.startswith(OWN) or any(same_host(host, h) for h in known)


def _kernel(o: Open) -> Iterator[Item]:
    if o.category not in KILLED or o.case.has_kernel_log:
        return
    event = o.root.event if o.root is not None else None
    yield _item(
        f"kernel log of {_host_of_the_dead(o)}{_when(event)}",
        "whether the kernel's OOM killer or a crash in native code ended the process",
        f"journalctl -k -o short-iso-precise{_window(event)} > kernel.txt   (or: dmesg --time-format iso > dmesg.txt)",
    )


def _host_of_the_dead(o: Open) -> str:
    """By name, by the rank that died, or any host of the job where nobody is known to have died."""
    died = o.case.ended("kill", "crash")
    return o.hosts[0] if o.hosts else f"the host of {ranks_text(died)}" if died else "each host of the job"


def _moment(e: Event | None) -> float | None:
    at = moment(e) if e is not None else None
    return at if at is not None and at > DATED else None


def _when(e: Event | None) -> str:
    """` around 13:18`"""
    at = _moment(e)
    return f" around {datetime.fromtimestamp(at, UTC):%H:%M} UTC" if at is not None else ""


def _window(e: Event | None) -> str:
    """The minutes around a moment, as journalctl has it."""
    at = _moment(e)
    if at is None:
        return ""
    since, until = (datetime.fromtimestamp(t, UTC) for t in (at - AROUND_S, at + AROUND_S))
    return f" --since '{since:%Y-%m-%d %H:%M:%S} UTC' --until '{until:%Y-%m-%d %H:%M:%S} UTC'"


def _recorder(o: Open) -> Iterator[Item]:
    if o.category in WAITED and not o.case.of_kind("recorder"):
        yield _item(
            "flight-recorder dumps of all ranks",
            "which collective each rank was in, and with which arguments",
            recorder_settings(o.case.registry.torch),
        )


def _stacks(o: Open) -> Iterator[Item]:
    if o.category == "hang" and not o.case.of_kind("stack"):
        yield _item(
            f"stacks of {ranks_text(o.root.ranks) if o.root and o.root.ranks else 'all ranks'} while they hang",
            "where the rank that the others wait for is stuck",
            "py-spy dump --pid PID   for every rank, before the job is killed",
        )


def _logs(o: Open) -> Iterator[Item]:
    """Ranks of which nothing is here: by number, or as many as the launcher's word leaves."""
    ranks = o.case.registry.ranks
    silent = [r for r in ranks if r not in o.case.by_rank]
    if not silent or len(silent) == len(ranks):
        return
    yield _item(
        f"logs of {ranks_text(silent)}",
        "what these ranks did last",
        "torchrun --log-dir DIR --redirects 3 --tee 3   writes a file for every rank",
    )


def _scheduler(o: Open) -> Iterator[Item]:
    """Who ended a job, where a scheduler's number is known and its account is not here."""
    if o.category not in ("external-signal", "scheduler", None) or any(
        s.kind == "scheduler" for s in o.case.sources.values()
    ):
        return
    for c in o.claims:
        job = str(c.event.fields.get("job_id") or "")
        if job.isdecimal():
            yield _item(
                f"the scheduler's accounting of job {job}",
                "whether a limit, a person or a failed node ended it",
                f"sacct -j {job} -o JobID,State,ExitCode,DerivedExitCode,End,NodeList,Reason > sacct.txt",
            )
            return


def _pods(o: Open) -> Iterator[Item]:
    """What the containers said before they were started again."""
    cluster = [c for c in o.claims if c.speaker == "cluster" and c.accuses]
    if cluster and not (o.root is not None and o.root.speaker == "cluster"):
        yield _item(
            "logs of the containers' previous run, including init containers",
            f"what the process printed before the cluster's report ({cluster[0].event.where})",
            "kubectl logs POD --previous --all-containers --timestamps > previous.log",
        )


def _reason(o: Open) -> Iterator[Item]:
    if o.root is not None and o.root.strength == "ended" and o.root.pattern.category == "python-exception":
        yield _item(
            f"the traceback or reason of {ranks_text(o.root.ranks) if o.root.ranks else 'the rank'}",
            "why it exited",
            "decorate the entry point with torch.distributed.elastic.multiprocessing.errors.record",
        )


def recorder_settings(version: str | None) -> str:
    """The environment variables that switch the flight recorder on, for this torch (TORCH_NCCL_* before 2.9,
    TORCH_FR_* from then on)."""
    m = _TORCH.match(version or "")
    if m and (whole(m[1]), whole(m[2])) < (2, 9):
        return (
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/nccl_trace_rank_"
        )
    return "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/shared/fr_rank_"
