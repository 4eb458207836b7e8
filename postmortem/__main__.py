"""Arguments in, exit code out: `postmortem` and `python -m postmortem`.

The overview is a text of its own, because `postmortem --help` is typed at 3 a.m. on a login node with a slow
file system: it imports nothing. A test keeps it in step with the commands of `cli.py`.
"""

from __future__ import annotations

import os
import sys

OVERVIEW = """\
usage: postmortem COMMAND ...

Reads what a dead or hung distributed PyTorch job left behind (rank logs, torchrun, NCCL, kernel, scheduler),
and names the rank and the host that failed first, and why, with the lines that prove it.

  postmortem analyze logs/                       a verdict here, and postmortem-report.html
  postmortem analyze logs/ dmesg.txt --format json --output -
  postmortem explain kernel-oom-killed-process   what a pattern means, and what to do

commands:
  analyze    read logs, say what failed first and why, write a report
  explain    what a pattern means, how it looks, what to do
  patterns   list, show, test, lint the pattern library, or add to it
  replay     re-create a failure in miniature on real processes
  schema     print the JSON Schema of what programs read

`postmortem COMMAND --help` tells more. POSTMORTEM_DEBUG=1 shows tracebacks.

exit codes: 0 report written, whatever it says | 2 usage | 3 nothing readable | 1 our own error
  130 interrupted | analyze --strict: 4 undetermined
  analyze --exit-code: 10 incident, 11 undetermined, 12 recovered, 0 healthy
  replay: 5 another failure, 6 did not fail, 7 could not run here
"""


def main() -> None:
    _occupy()
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"]) and sys.stdout:
        sys.stdout.write(OVERVIEW)
        sys.exit(0)
    if arguments == ["--version"] and sys.stdout:
        from postmortem.version import __version__

        sys.stdout.write(f"postmortem {__version__}\n")
        sys.exit(0)
    try:
        from postmortem.cli import run

        code = run(arguments)
    except KeyboardInterrupt:  # during an import
        code = 130
    if code > 128:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> None:
    """Exit after an interrupt. `sys.exit` will not do: where the interrupt came while a named tuple or a data
    class was made, `python -m` forgets the code and ends itself by SIGINT."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except (OSError, ValueError):  # closed, or nobody listens any more
            pass
    os._exit(code)


def _occupy() -> None:
    """Open what the shell closed (`2>&-`): else the first log that is opened becomes standard error."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


if __name__ == "__main__":
    main()
