"""Runs command lines, each in a process of its own, which is a copy of this one: imports are done once.

With the word `warm` all that an analysis keeps in memory is there too, its regexes above all, for a tenth of the time.

In: JSON lines {"words": [...], "out": FILE, "err": FILE}. Out: JSON lines {"code": 0}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def warm() -> None:
    """Analyze one line, with a cache on disk of its own."""
    from postmortem.cli import app as cli

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        usual, os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"], folder
        Path(folder, "rank0.log").write_text("2026-11-20 21:01:00,548 INFO [rank0] step 1 loss 2.0\n")
        cli.run(["analyze", f"{folder}/rank0.log", "--output", f"{folder}/r.json", "--quiet"])
        os.environ["XDG_CACHE_HOME"] = usual


def main() -> None:
    import postmortem.align.steps
    import postmortem.analyze
    import postmortem.diagnose
    import postmortem.privacy
    import postmortem.report.html
    import postmortem.report.json
    import postmortem.report.terminal  # noqa: F401
    from postmortem.cli import app as cli

    if "warm" in sys.argv:
        warm()
    print(json.dumps({"code": None}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            for number, name in ((1, "out"), (2, "err")):
                fd = os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(fd, number)
                os.close(fd)
            code = 99
            try:
                code = cli.run(order["words"])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


main()
