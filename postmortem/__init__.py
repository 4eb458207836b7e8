"""postmortem reads what a dead or hung distributed PyTorch job left behind and names
the root cause, with proof.

    import postmortem

    incident = postmortem.analyze(["logs/"])
    incident.document["verdict"]["headline"]

Importing the package costs nothing: `analyze` and `Incident` are fetched when first asked for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from postmortem.version import __version__

if TYPE_CHECKING:
    from postmortem.analyze import Incident, Options, analyze

__all__ = ["Incident", "Options", "__version__", "analyze"]


def __getattr__(name: str) -> Any:
    if name in ("analyze", "Incident", "Options"):
        from importlib import import_module

        return getattr(import_module("postmortem.analyze"), name)
    raise AttributeError(f"module 'postmortem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """`postmortem.analyze` is the function, also after the import of the module in which it stands."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value.analyze if name == "analyze" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
