"""The Python stacks of a core file, by pystack in a process of its own that is limited in time and memory.

    of("core.17538", "/opt/venv/bin/python3.11")  ->  "... Traceback for thread 17538 [Has the GIL] ...", ""

pystack opens the interpreter that the user names and the libraries that the core maps, so it runs on request only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SECONDS, MEMORY, MOST_BYTES = 20, 4 << 30, 4 << 20  # of the process; bytes of its output
_CODE = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.argv[0] = "pystack"
from pystack.__main__ import main
main()
"""


def of(core: Path, executable: str) -> tuple[str, str]:
    """Return what pystack prints, and why it printed nothing."""
    command = [sys.executable, "-I", "-c", _CODE, "core", "--native", str(core.resolve()), executable]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL, env={}, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"pystack did not end: {type(error).__name__}"
    text = done.stdout[:MOST_BYTES].decode("utf-8", "backslashreplace")
    if "Traceback for thread" in text:
        return text, ""
    errors = [line for line in done.stderr.decode("utf-8", "replace").split("\n") if line.strip()]
    return "", f"pystack read no stacks: {' '.join(errors[-1:])[:200] or f'exit code {done.returncode}'}"
