"""Run by Python at its start if this folder is on PYTHONPATH. A site's own `sitecustomize` runs as it would without
this one, with its errors; failures of the hook are ignored."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_entry for _entry in sys.path if os.path.abspath(_entry or os.curdir) != _here]
_ours = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # the next one; Python ignores its absence
finally:
    if os.environ.get("POSTMORTEM_HOOK") and os.environ.get("RANK") and os.environ.get("LOCAL_RANK"):
        sys.path.insert(0, _here)
        try:
            import postmortem_hook  # type: ignore[import-not-found]

            if not postmortem_hook.below_a_rank():
                postmortem_hook.install(os.environ["POSTMORTEM_HOOK"])
        except Exception:
            pass
        finally:
            sys.path.remove(_here)
