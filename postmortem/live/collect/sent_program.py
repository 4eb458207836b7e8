"""Runs on another host: collects there, and writes a tar to standard output.

The program is the text of these modules, sent to the standard input of `python3 -`: the host needs no package.
"""

from __future__ import annotations

import json
import os
import socket
import time

from postmortem.live.collect import here
from postmortem.live.collect.archive import Archive

INDEX = "index.json"
MODULES = ("rank_search", "readers", "subprocesses", "here", "archive", "sent_program")
FILES = (
    *(f"live/collect/{name}.py" for name in MODULES),
    "live/proc.py",
    "system/core_files.py",
    "model/collected.py",
    "model/collected.json",
)
PROGRAM = """\
import importlib.abc, importlib.util, json, sys
FILES = json.loads(%r)
class Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        file = name.replace(".", "/")
        package = any(other.startswith(file + "/") for other in FILES)
        if package or file + ".py" in FILES:
            origin = file + ("/__init__.py" if package else ".py")
            spec = importlib.util.spec_from_loader(name, self, origin=origin, is_package=package)
            spec.has_location = True
            return spec
    def get_source(self, name):
        return FILES.get(name.replace(".", "/") + ".py", "")
    def get_data(self, path):
        return FILES[path].encode()
sys.meta_path.insert(0, Finder())
from postmortem.live.collect.sent_program import main
main(sys.argv[1])
"""


def program() -> bytes:
    """Return the text for `python3 -`."""
    from importlib import resources

    package = resources.files("postmortem")
    texts = {f"postmortem/{file}": package.joinpath(file).read_text("utf-8") for file in FILES}
    return (PROGRAM % json.dumps(texts)).encode("utf-8")


def main(options: str) -> None:
    """Collect; `options` are JSON."""
    wanted = json.loads(options)
    os.umask(0o077)
    archive = Archive(os.dup(1), "gz")
    name = hostname()
    rows = []
    try:
        for row, data in here.collected(wanted.get("since"), wanted.get("job", "")):
            if row["file"]:
                row["file"] = f"host={name}/{row['file']}"
                archive.add(row["file"], data, row["started"])
            rows.append(row)
        index = {"host": name, "now": time.time(), "items": rows}
        archive.add_last(INDEX, json.dumps(index).encode("utf-8"), time.time())
    except BrokenPipeError:  # the host that collects has gone
        pass


def hostname() -> str:
    """Return this host's name in the characters of a folder's name."""
    name = "".join(c if c.isalnum() or c in ".-_" else "_" for c in socket.gethostname())[:200]
    return name.lstrip(".-_") or "localhost"
