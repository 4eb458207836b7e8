"""Runs command lines, each in a process of its own, which is a copy of this one: imports are done once.

In: JSON lines {"words": [...], "out": FILE, "err": FILE}. Out: JSON lines {"code": 0}.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    import postmortem.align.steps
    import postmortem.analyze
    import postmortem.diagnose
    import postmortem.privacy
    import postmortem.report.html
    import postmortem.report.json
    import postmortem.report.terminal  # noqa: F401
    from postmortem.cli import app as cli

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
