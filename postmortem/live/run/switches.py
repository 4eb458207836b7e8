"""What `run` switches on for the job: environment variables, each only where the user has set none of its
names.

    PYTHONFAULTHANDLER=1        a crash prints the Python lines it came from

PYTHONPATH is the exception: our folder stands in front of what the user has there.

`docs/how-to/run.md` has what each costs, as measured. What costs more than nothing is not here: C++
stacks (a first error takes a second), TORCH_DISTRIBUTED_DEBUG=DETAIL (four times the time of a small
collective), NCCL_DEBUG=INFO.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOM = 1 << 30  # free bytes that ranks' own files need: a rank whose log cannot be written fails
HOOKS = Path(__file__).resolve().parent.parent / "hooks"  # for PYTHONPATH
OLD = (2, 9)  # before, the variables of the recorder had other names


@dataclass(frozen=True, slots=True)
class Switch:
    """One thing to switch on: the variables that do it, and those by which the user has chosen already."""

    name: str
    gives: str
    sets: Mapping[str, str]
    chosen_by: tuple[str, ...] = ()


def table(folder: Path, torch: tuple[int, int] | None) -> tuple[Switch, ...]:
    """All switches, for a run that keeps its files in `folder`."""
    old = torch is not None and torch < OLD  # a newer one warns of the old names
    size, dump = (
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
        if old
        else ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
    )
    sizes = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    dumps = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    wait = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")
    return (
        Switch("faulthandler", "the Python lines of a crash", {"PYTHONFAULTHANDLER": "1"}),
        Switch(
            "error-file",
            "the first failed rank's traceback",
            {"TORCHELASTIC_ERROR_FILE": f"{folder}/error.json"},
        ),
        Switch("recorder", "the last 2000 collectives of each rank", {size: "2000"}, sizes),
        Switch("recorder-dump", "and a file of them after a timeout", {dump: f"{folder}/fr_"}, dumps),
        Switch("recorder-wait", "written before the ranks end", {wait[0]: "1"}, wait),
        Switch(
            "nccl-warnings",
            "NCCL's own complaints, in files",
            {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log"},
            ("NCCL_DEBUG", "NCCL_DEBUG_FILE"),
        ),
        Switch(
            "rank-logs",
            "a log of each rank of torchrun",
            {"PET_LOG_DIR": f"{folder}/torchelastic", "PET_TEE": "3"},
            ("PET_LOG_DIR", "PET_TEE", "PET_REDIRECTS"),
        ),
        Switch(
            "hook",
            "uncaught exceptions with step and stack, and each rank's stacks when the first one fails",
            {"POSTMORTEM_HOOK": str(folder), "PYTHONPATH": str(HOOKS)},
            ("POSTMORTEM_HOOK",),
        ),
    )


NAMES = tuple(switch.name for switch in table(Path(), None))


def environment(
    user: Mapping[str, str], folder: Path, command: Sequence[str], off: Sequence[str], tty: bool
) -> dict[str, str]:
    """What is to be added to the user's environment. On a terminal ranks have no logs of their own: with them
    they would see no terminal."""
    left_out = {*off, *(["rank-logs"] if tty or not _room(folder) else [])}
    added: dict[str, str] = {}
    for switch in table(folder, version(command, user.get("PATH"))):
        names = switch.chosen_by or tuple(switch.sets)
        if switch.name not in left_out and not any(name in user for name in names):
            added.update(switch.sets)
    if "PYTHONPATH" in added:
        added["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOOKS), user.get("PYTHONPATH")]))
    return added


def _room(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free > ROOM
    except OSError:
        return False


def version(command: Sequence[str], path: str | None = None) -> tuple[int, int] | None:
    """The release of torch that a command will import, as far as its interpreter's folders tell."""
    found = shutil.which(command[0], path=path)
    if found is None:
        return None
    homes = [Path(found).parent.parent]
    try:
        with Path(found).open("rb") as file:
            first = file.readline(512)
        if first.startswith(b"#!") and (words := first[2:].split()):
            homes.append(Path(os.fsdecode(words[0])).parent.parent)
        for home in homes:
            for said in sorted(home.glob("lib/python3.*/site-packages/torch/version.py")):
                if m := re.search(r"__version__ = '(\d{1,3})\.(\d{1,3})\.", said.read_text("utf-8")):
                    return int(m[1]), int(m[2])
    except (OSError, ValueError):
        pass
    return None
