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
    _rank = all(os.environ.get(_name) for _name in ("POSTMORTEM_HOOK", "RANK", "LOCAL_RANK"))
    # what a rank starts has its environment: a helper, a DataLoader worker
    if _rank and os.environ.setdefault("POSTMORTEM_HOOK_PID", str(os.getpid())) == str(os.getpid()):
        sys.path.insert(0, _here)
        try:
            import postmortem_hook  # type: ignore[import-not-found]

            postmortem_hook.install(os.environ["POSTMORTEM_HOOK"])
        except Exception:
            pass
        finally:
            sys.path.remove(_here)
