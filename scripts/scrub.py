"""Takes this machine's paths and names out of recorded logs, and nothing else.

In: a file of a recording as bytes, and the names of the run. Out: the same bytes with

    /tmp/postmortem-replay-4711-x7k2/job      -> /opt/train/run
    /tmp/postmortem-replay-4711-x7k2/logs     -> /opt/train/run/logs
    postmortem-replay-4711-x7k2 (cgroup, tag) -> job_4711
    the virtual environment                   -> /opt/train/venv
    the checkout, the home directory          -> /opt/train/src, /home/trainer
    the user's and the host's name            -> trainer, node-a           (where the run gave no other)

Pickled dumps (the flight recorder) hold the length of each string, which is corrected.
"""

from __future__ import annotations

import getpass
import re
import socket
import sys
from pathlib import Path

from postmortem.replay.isolate import PREFIX, Place


def substitutes(made: Place) -> list[tuple[bytes, bytes]]:
    """Return (old, new) names, the longest old name first, so that a folder precedes the folder that holds it."""
    tag = made.folder.name
    number = tag.removeprefix(PREFIX).split("-")[0]
    pairs = {
        str(made.job): "/opt/train/run",
        str(made.logs): "/opt/train/run/logs",
        str(made.folder): "/opt/train",
        tag: f"job_{number}",
        sys.prefix: "/opt/train/venv",
        str(Path(__file__).resolve().parent.parent): "/opt/train/src",
    }
    if not sys.base_prefix.startswith("/usr"):
        pairs[sys.base_prefix] = "/opt/python"
    home = str(Path.home())
    if home not in ("/", "/root"):
        pairs[home] = "/home/trainer"
    return sorted(((a.encode(), b.encode()) for a, b in pairs.items()), key=lambda pair: -len(pair[0]))


def scrub(raw: bytes, made: Place) -> bytes:
    """Return a text file of the recording, scrubbed."""
    for old, new in substitutes(made):
        raw = raw.replace(old, new)
    names = {} if made.wants.hosts else {socket.gethostname(): "node-a"}
    if getpass.getuser() != "root":
        names[getpass.getuser()] = "trainer"
    for name, other in names.items():
        raw = re.sub(rb"(?<![\w.-])" + re.escape(name.encode()) + rb"(?![\w.-])", other.encode(), raw)
    return raw


def scrub_pickle(raw: bytes, made: Place) -> bytes:
    """Return a pickled dump, scrubbed. Protocol 2, as torch writes it: `X`, four bytes of length, the string, which
    starts with the path."""
    for old, new in substitutes(made):

        def shorter(match: re.Match[bytes], new: bytes = new, old: bytes = old) -> bytes:
            return b"X" + (int.from_bytes(match[1], "little") - len(old) + len(new)).to_bytes(4, "little") + new

        raw = re.sub(rb"X(.{4})" + re.escape(old), shorter, raw, flags=re.DOTALL)
    return raw
