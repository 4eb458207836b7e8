"""What runs on another host: collects there, and writes a tar to standard output.

The program is these modules as text, sent to the standard input of `python3 -`: the host needs nothing
installed.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from postmortem.live.collect import here
from postmortem.live.collect.archive import Archive

if TYPE_CHECKING:
    Row = dict[str, Any]

INDEX = "index.json"
MODULES = ("ranks", "readers", "child", "here", "archive", "remote")
TABLE = "postmortem.model.collected"
LOADER = """\
import importlib.abc, importlib.util, json, sys
SOURCES = json.loads(%r)
class Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES or any(other.startswith(name + ".") for other in SOURCES):
            return importlib.util.spec_from_loader(name, self, is_package=name not in SOURCES)
    def get_source(self, name):
        return SOURCES.get(name, "")
sys.meta_path.insert(0, Finder())
from postmortem.live.collect.remote import main
main(sys.argv[1])
"""


def program() -> bytes:
    """The text that `python3 -` is given."""
    from importlib import resources

    folder = resources.files("postmortem.live.collect")
    sources = {f"postmortem.live.collect.{name}": (folder / f"{name}.py").read_text("utf-8") for name in MODULES}
    sources[TABLE] = (resources.files("postmortem.model") / "collected.py").read_text("utf-8")
    return (LOADER % json.dumps(sources)).encode("utf-8")


def main(options: str) -> None:
    """Collect; `options` are JSON."""
    asked = json.loads(options)
    os.umask(0o077)
    archive = Archive(os.dup(1), "gz")
    name = hostname()
    rows = []
    try:
        for row, data in here.collected(asked.get("since"), asked.get("job", "")):
            if row["file"]:
                row["file"] = f"host={name}/{row['file']}"
                archive.add(row["file"], data, row["started"])
            rows.append(row)
        told = {"host": name, "now": time.time(), "items": rows}
        archive.last(INDEX, json.dumps(told).encode("utf-8"), time.time())
    except BrokenPipeError:  # whoever asked has gone
        pass


def hostname() -> str:
    """This host's name, as a folder may have it."""
    name = "".join(c if c.isalnum() or c in ".-_" else "_" for c in socket.gethostname())[:200]
    return name.lstrip(".-_") or "localhost"
