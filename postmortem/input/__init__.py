"""Paths -> sources: files, archives and objects found, opened, classified and accounted for.
Nothing is unpacked or executed.

    for container in collect(["./logs"]).containers:
        for source, stream in open_sources(container):
            while chunk := stream.read(1 << 20): ...

`read` raises Incomplete at the end of a source that could not be read to its end;
its `skip` is the ledger's row.
"""

from __future__ import annotations

from postmortem.input.container import Container
from postmortem.input.ledger import Ledger, build
from postmortem.input.names import Identity, identify
from postmortem.input.open import divisible, logs_in, open_at, open_sources
from postmortem.input.piped import held, is_typed, named
from postmortem.input.streams import Incomplete, Limits, Readable
from postmortem.input.walk import Collection, collect

__all__ = [
    "Collection", "Container", "Identity", "Incomplete", "Ledger", "Limits", "Readable", "build", "collect",
    "divisible", "held", "identify", "is_typed", "logs_in", "named", "open_at", "open_sources",
]  # fmt: skip
