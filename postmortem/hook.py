"""`import postmortem.hook`: this process records its uncaught exceptions, and its stacks on request.

For ranks of other launchers; under `postmortem run` or its plugin of torchrun they need no import. The files go to
`POSTMORTEM_HOOK`, or to `postmortem-hook/` in the working directory.
"""

from __future__ import annotations

import os

from postmortem.live.hooks import postmortem_hook

_folder = os.environ.get("POSTMORTEM_HOOK") or "postmortem-hook"
try:
    os.makedirs(_folder, mode=0o700, exist_ok=True)
    postmortem_hook.install(_folder)
except (OSError, ValueError):
    pass
