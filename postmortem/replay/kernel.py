"""The kernel log of a run: the records that came after its start, in the forms people save it in.

In: the ring buffer, read by `dmesg --raw` (`<6>[ 2683.444892] python3[743]: segfault at 300 ip ...`). Out:
the new raw records, and the same records as `dmesg`, `dmesg -T`, `dmesg --time-format iso` or `dmesg -x`
prints them.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile

FORMS = {
    "dmesg": [],
    "dmesg_T": ["-T"],
    "dmesg_iso": ["--time-format", "iso"],
    "dmesg_x": ["-x"],
    "dmesg_raw": ["--raw"],
}


def read() -> list[str] | None:
    """Return all raw records; None if the log cannot be read (not root, no dmesg)."""
    try:
        done = subprocess.run(["dmesg", "--raw"], capture_output=True, text=True, errors="backslashreplace")
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.splitlines()


def since(before: list[str], after: list[str]) -> list[str]:
    """Return the records of `after` that are not yet in `before`; the ring may have dropped old ones meanwhile."""
    if not before or before[-1] not in after:
        return after
    return after[len(after) - after[::-1].index(before[-1]) :]


def render(records: list[str], form: str, zone: str = "UTC") -> str:
    """Return the same records as dmesg prints them with these options, on a host of that time zone."""
    with tempfile.NamedTemporaryFile("w", suffix=".raw") as file:
        file.write("\n".join(records) + "\n")
        file.flush()
        words = ["dmesg", "--file", file.name, *FORMS[form]]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "TZ": zone})
    return done.stdout


def of_processes(records: list[str], seen: set[int]) -> list[str]:
    """Return the records without those on other processes: their OOM blocks and crashes, each a few lines long."""
    own: list[str] = []
    block: list[str] = []
    foreign = False
    for record in records:
        if "invoked oom-killer" in record or block:
            block.append(record)
            if (killed := re.search(r"Killed process ([0-9]+)", record)) or len(block) > 2000:
                foreign = killed is None or int(killed[1]) not in seen
                own += [] if foreign else block
                block = []
            continue
        if crash := re.search(
            r"\[([0-9]+)\](?:: segfault at| trap | general protection)|reaped process ([0-9]+)", record
        ):
            foreign = int(crash[1] or crash[2]) not in seen
        elif not re.search(r"\] Code: ", record):  # belongs to the crash before it
            foreign = False
        own += [] if foreign else [record]
    return own + block
