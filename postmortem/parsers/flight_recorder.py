"""Flight-recorder dumps (torch.distributed flight recorder). Filled in below."""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.model import Event, Source


def parse(source: Source, content: bytes) -> Iterator[Event]:
    yield from ()
