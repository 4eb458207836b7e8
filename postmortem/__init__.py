"""postmortem reads what a dead or hung distributed PyTorch job left behind and names the root cause, with proof.

    import postmortem

    incident = postmortem.analyze(["logs/"])
    incident.document["verdict"]["headline"]

Importing the package costs nothing: `analyze` and `Incident` are fetched when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postmortem.analyze import Incident, Options, analyze

__version__ = "0.1.0"
__all__ = ["Incident", "Options", "__version__", "analyze"]


def __getattr__(name: str) -> Any:
    if name in ("analyze", "Incident", "Options"):
        from importlib import import_module

        module = import_module("postmortem.analyze")
        found = {n: getattr(module, n) for n in ("analyze", "Incident", "Options")}
        globals().update(found)  # the submodule of the same name would shadow the function otherwise
        return found[name]
    raise AttributeError(f"module 'postmortem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
