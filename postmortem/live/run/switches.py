"""Diagnostics that `run` switches on for the job: environment variables, each only if the user has set none of
its names (`chosen_by`). PYTHONPATH is the exception: our folder comes before the user's. `switches.json` lists them.

`docs/how-to/run.md` has the measured costs. Expensive ones are left out: C++ stacks (a second for a first error),
TORCH_DISTRIBUTED_DEBUG=DETAIL (four times the time of a small collective), NCCL_DEBUG=INFO.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOM = 1 << 30  # free bytes for the logs of ranks
FILES = 10_000  # and free inodes
HOOKS = Path(__file__).resolve().parent.parent / "hooks"  # for PYTHONPATH
SWITCHES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("switches.json").read_bytes())


def environment(
    user: Mapping[str, str], folder: Path, command: Sequence[str], off: Sequence[str], tty: bool
) -> dict[str, str]:
    """Return the variables to add to the user's. On a terminal ranks get no logs of their own, with which they
    would see no terminal."""
    torch = version(command, user.get("PATH"))
    old = torch is not None and torch < (2, 9)  # a newer one warns of the old names
    path = os.pathsep.join(filter(None, [str(HOOKS), user.get("PYTHONPATH")]))
    added: dict[str, str] = {}
    options = {word.split("=")[0].replace("_", "-") for word in command}
    for name, switch in SWITCHES.items():
        names = switch.get("chosen_by") or (*switch["sets"], *switch.get("before_2_9", ()))
        chosen = user.keys() & set(names) or options & set(switch.get("chosen_by_option", ()))
        if name not in off and not chosen and (name != "rank-logs" or (not tty and holds_logs(folder))):
            sets = switch.get("before_2_9", switch["sets"]) if old else switch["sets"]
            for variable, value in sets.items():
                added[variable] = value.replace("{folder}", str(folder)).replace("{hooks}", path)
    return added


def holds_logs(folder: Path) -> bool:
    """Return whether a folder has room for the logs of ranks: a rank fails if its log cannot be written."""
    trial = folder / "trial"
    try:
        trial.mkdir()
        (trial / "rank.log").write_bytes(bytes(1 << 12))
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize > ROOM and (not found.f_files or found.f_favail > FILES)
    except OSError:
        return False
    finally:
        remove(trial)


def remove(folder: Path) -> None:
    """Remove a folder as far as that is possible: `ignore_errors` does not ignore all of them."""
    with suppress(OSError):
        shutil.rmtree(folder, ignore_errors=True)


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
