"""Run by Python at its start where this folder is on PYTHONPATH. Nothing here fails a program: a site's own
`sitecustomize` runs as it would without, errors and all, and what the hook cannot do is left out."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_entry for _entry in sys.path if os.path.abspath(_entry or os.curdir) != _here]
_ours = sys.modules.pop("sitecustomize", None)
try:
    # the next one; where there is none, Python passes over the error
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
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
