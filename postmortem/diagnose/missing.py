"""The evidence that would settle what is open, and the command or setting that yields it for the versions at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.wording import ranks_text

_TORCH = re.compile(r"(\d{1,6})\.(\d{1,6})")
KILLED = ("external-signal", "peer-lost", "host-oom", "native-crash", None)
WAITED = ("hang", "collective-mismatch", None)
Item = dict[str, str]


def missing(case: Case, root: Claim | None, hosts: Sequence[str]) -> list[Item]:
    """What to get next, most telling first."""
    category = root.pattern.category if root else None
    return [*_kernel(case, category, hosts), *_of_the_hang(case, category), *_logs(case), *_reason(root)]


def _item(what: str, would_tell: str, how: str) -> Item:
    return {"what": what, "would_tell": would_tell, "how": how}


def _kernel(case: Case, category: str | None, hosts: Sequence[str]) -> Iterator[Item]:
    if category in KILLED and not case.has_kernel_log:
        yield _item(
            f"kernel log of {hosts[0] if hosts else 'the host of the rank that died'}",
            "whether the kernel's OOM killer or a fault in native code ended the process",
            "dmesg --time-format iso > dmesg.txt   (or: journalctl -k -o short-iso-precise > kernel.txt)",
        )


def _of_the_hang(case: Case, category: str | None) -> Iterator[Item]:
    if category in WAITED and not case.of_kind("recorder"):
        yield _item(
            "flight-recorder dumps of all ranks",
            "which collective each rank was in, and with which arguments",
            recorder_settings(case.registry.torch),
        )
    if category in ("hang", None) and not case.of_kind("stack"):
        yield _item(
            "stacks of all ranks while they hang",
            "where the silent rank is stuck",
            "py-spy dump --pid PID   for every rank, before anything is killed",
        )


def _logs(case: Case) -> Iterator[Item]:
    silent = [r for r in case.registry.ranks if r not in case.by_rank]
    if silent and len(silent) < len(case.registry.ranks):
        yield _item(
            f"logs of {ranks_text(silent)}",
            "what these ranks did last",
            "torchrun --log-dir DIR --redirects 3 --tee 3   writes a file for every rank",
        )


def _reason(root: Claim | None) -> Iterator[Item]:
    if root is not None and root.strength == "ended" and root.pattern.category == "python-exception":
        yield _item(
            "the rank's traceback or reason",
            "why it left",
            "decorate the entry point with torch.distributed.elastic.multiprocessing.errors.record",
        )


def recorder_settings(version: str | None) -> str:
    """The environment variables that switch the flight recorder on, for this torch (TORCH_NCCL_* before 2.9, TORCH_FR_* from
    then on)."""
    m = _TORCH.match(version or "")
    if m and (int(m[1]), int(m[2])) < (2, 9):
        return (
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/nccl_trace_rank_"
        )
    return "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/shared/fr_rank_"
