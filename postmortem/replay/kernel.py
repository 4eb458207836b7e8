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


def read() -> list[str]:
    """All raw records; none where the log cannot be read (not root, no dmesg)."""
    try:
        done = subprocess.run(
            ["dmesg", "--raw"], capture_output=True, text=True, errors="backslashreplace", check=False
        )
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()


def readable() -> bool:
    """Can this user read the kernel's log?"""
    try:
        return subprocess.run(["dmesg", "--raw"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def since(before: list[str], after: list[str]) -> list[str]:
    """The records of `after` that are not yet in `before`; the ring may have dropped old ones meanwhile."""
    if not before:
        return after
    try:
        return after[len(after) - after[::-1].index(before[-1]) :]
    except ValueError:
        return after


def render(records: list[str], form: str, zone: str = "UTC") -> str:
    """The same records as dmesg prints them with these options, on a host of that time zone."""
    with tempfile.NamedTemporaryFile("w", suffix=".raw") as file:
        file.write("\n".join(records) + "\n")
        file.flush()
        words = ["dmesg", "--file", file.name, *FORMS[form]]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "TZ": zone})
    return done.stdout


def of_processes(records: list[str], seen: set[int]) -> list[str]:
    """The records without those on processes of others:
    their OOM blocks and their crashes, each a few lines long."""
    kept: list[str] = []
    block: list[str] = []
    foreign = False
    for record in records:
        if "invoked oom-killer" in record or block:
            block.append(record)
            if (killed := re.search(r"Killed process ([0-9]+)", record)) or len(block) > 2000:
                foreign = killed is None or int(killed[1]) not in seen
                kept += [] if foreign else block
                block = []
            continue
        if crash := re.search(
            r"\[([0-9]+)\](?:: segfault at| trap | general protection)|reaped process ([0-9]+)", record
        ):
            foreign = int(crash[1] or crash[2]) not in seen
        elif not re.search(r"\] Code: ", record):  # belongs to the crash before it
            foreign = False
        kept += [] if foreign else [record]
    return kept + block


def pids(records: list[str]) -> set[int]:
    """Processes these records speak of as killed or crashed."""
    text = "\n".join(records)
    return {
        int(pid)
        for pid in re.findall(r"Killed process ([0-9]+)", text) + re.findall(r"\[([0-9]+)\]: segfault at", text)
    }
