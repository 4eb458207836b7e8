"""Arguments in, exit code out: `postmortem` and `python -m postmortem`.

`postmortem --help` and `--version` are answered here, before slow imports.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    _open_standard_descriptors()
    arguments = sys.argv[1:]
    if arguments in ([], ["--help"], ["-h"]) and sys.stdout and "_POSTMORTEM_COMPLETE" not in os.environ:
        from postmortem.cli import overview

        sys.stdout.write(overview.text())
        sys.exit(0)
    if arguments == ["--version"] and sys.stdout:
        from postmortem.version import __version__

        sys.stdout.write(f"postmortem {__version__}\n")
        sys.exit(0)
    try:
        from postmortem.cli.app import run

        code = run(arguments)
    except KeyboardInterrupt:  # during an import
        code = 130
    if code > 128:
        _leave(code)
    gc.freeze()  # the interpreter's end would search all objects for cycles, for a fifth of a small incident's time
    sys.exit(code)


def _leave(code: int) -> None:
    """Exit after an interrupt. With `sys.exit`, where the interrupt came while a named tuple or a data class was
    made, `python -m` forgets the code and ends itself by SIGINT."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except (OSError, ValueError):  # closed
            pass
    os._exit(code)


def _open_standard_descriptors() -> None:
    """Open descriptors that the shell closed (`2>&-`): else the first opened log becomes standard error."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


if __name__ == "__main__":
    main()
