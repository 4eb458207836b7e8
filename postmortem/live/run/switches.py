"""Diagnostics that `run` switches on for the job: environment variables, each only if the user has set none of
its names. PYTHONPATH is the exception: our folder comes before the user's.

`docs/how-to/run.md` lists the measured costs. Expensive ones are left out: C++ stacks (a second for a first
error), TORCH_DISTRIBUTED_DEBUG=DETAIL (four times the time of a small collective), NCCL_DEBUG=INFO.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOM = 1 << 30  # free bytes for the logs of ranks: a rank whose log cannot be written fails
HOOKS = Path(__file__).resolve().parent.parent / "hooks"  # for PYTHONPATH


class Switch(NamedTuple):
    """The variables to set, and those by which the user has chosen already, by default the same."""

    sets: Mapping[str, str]
    chosen_by: tuple[str, ...] = ()


def table(folder: Path, torch: tuple[int, int] | None) -> dict[str, Switch]:
    """Return all switches for a run whose files are in `folder`."""
    size = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    dump = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    wait = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")
    old = torch is not None and torch < (2, 9)  # a newer one warns of the old names
    nccl = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log"}
    logs = {"PET_LOG_DIR": f"{folder}/torchelastic", "PET_TEE": "3"}
    return {
        "faulthandler": Switch({"PYTHONFAULTHANDLER": "1"}),
        "error-file": Switch({"TORCHELASTIC_ERROR_FILE": f"{folder}/error.json"}),
        "recorder": Switch({size[old]: "2000"}, size),
        "recorder-dump": Switch({dump[old]: f"{folder}/fr_"}, dump),
        "recorder-wait": Switch({wait[0]: "1"}, wait),
        "nccl-warnings": Switch(nccl),
        "rank-logs": Switch(logs, (*logs, "PET_REDIRECTS")),
        "hook": Switch({"POSTMORTEM_HOOK": str(folder), "PYTHONPATH": str(HOOKS)}, ("POSTMORTEM_HOOK",)),
    }


NAMES = tuple(table(Path(), None))


def environment(
    user: Mapping[str, str], folder: Path, command: Sequence[str], off: Sequence[str], tty: bool
) -> dict[str, str]:
    """Return the variables to add to the user's. On a terminal ranks get no logs of their own, with which they
    would see no terminal."""
    try:
        logs = not tty and shutil.disk_usage(folder).free > ROOM
    except OSError:
        logs = False
    added: dict[str, str] = {}
    for name, switch in table(folder, version(command, user.get("PATH"))).items():
        chosen = any(variable in user for variable in switch.chosen_by or switch.sets)
        if name not in off and not chosen and (logs or name != "rank-logs"):
            added.update(switch.sets)
    if "PYTHONPATH" in added:
        added["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOOKS), user.get("PYTHONPATH")]))
    return added


def version(command: Sequence[str], path: str | None = None) -> tuple[int, int] | None:
    """Return the release of torch that a command will import, if the folders of its interpreter show it."""
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
            for file_ in sorted(home.glob("lib/python3.*/site-packages/torch/version.py")):
                if m := re.search(r"__version__ = '(\d{1,3})\.(\d{1,3})\.", file_.read_text("utf-8")):
                    return int(m[1]), int(m[2])
    except (OSError, ValueError):
        pass
    return None
