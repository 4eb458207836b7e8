"""Snapshots of the GPU memory, as `torch.cuda.memory._dump_snapshot` pickles them: who holds the memory.

    {"segments": [{"device": 0, "total_size": 2097152, "allocated_size": 1048576, "blocks": [
         {"size": 1048576, "state": "active_allocated", "frames": [{"filename": "a.py", "line": 8, "name": "f"}]}]}],
     "device_traces": [[{"action": "oom", "size": 1073741824, "device_free": 23068672, "time_us": 1795208014000000}]]}

A file may have 200 MB, most of it traces, which follow the segments: 64 MiB and a million operations are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from postmortem.documents.parts import Parts
from postmortem.documents.plain_pickle import Limits, PlainPickleError, loads
from postmortem.formats.excerpt import decode, source_event, timed
from postmortem.formats.frames import is_own
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.privacy import cut

LIMITS = Limits(input=64 << 20, operations=1_000_000, memory=192 << 20)
LINES = 10  # that hold most
Row = dict[str, Any]


def parse(source: Source, parts: Parts, _stacks: str = "") -> Iterator[Event]:
    """Read one snapshot: an event `memory`, or `unreadable`."""
    try:
        document = loads(parts.take(0, LIMITS.input), LIMITS, partly=True)
    except PlainPickleError as error:
        yield source_event(source, "unreadable", f"The memory snapshot cannot be read: {error}.", severity="warning")
        return
    segments = _rows(document.get("segments") if isinstance(document, dict) else None)
    if not isinstance(document, dict) or not segments:
        yield source_event(source, "unreadable", "The memory snapshot has no segments.", severity="warning")
        return
    reserved = Counter[int]()
    for segment in segments:
        reserved[_whole(segment.get("device"))] += _whole(segment.get("total_size"))
    device, total = max(reserved.items(), key=lambda item: (item[1], -item[0]))
    held = _held([segment for segment in segments if _whole(segment.get("device")) == device])
    traces = document.get("device_traces")
    trace = _rows(traces[device]) if isinstance(traces, list) and device < len(traces) else []
    yield _event(source, device, total, held, trace)


def _event(source: Source, device: int, total: int, held: Counter[str], trace: list[Row]) -> Event:
    allocated = sum(held.values())
    (line, most), *others = held.most_common(LINES) or [("?", 0)]
    detail = f"{size(most)} of {size(total)} of GPU {device} are held by {line}"
    lines = [f"{size(amount)} {name}" for name, amount in ((line, most), *others)]
    text = f"GPU {device}: {size(total)} reserved, {size(allocated)} allocated, {size(total - allocated)} free in them"
    text += "" if trace else "; its trace is missing or too long"
    failed = next((row for row in reversed(trace) if row.get("action") == "oom"), None)
    grown = sum(_SIGNS.get(str(row.get("action")), 0) * _whole(row.get("size")) for row in trace)
    lines += [f"in the trace of {len(trace):,} steps: {'+' if grown >= 0 else '-'}{size(abs(grown))}"] if trace else []
    signature = f"memory {detail}"
    if failed is not None:
        asked = f"no room for {size(_whole(failed.get('size')))}, {size(_whole(failed.get('device_free')))} free"
        text, signature = f"{text}; {asked}", f"memory oom {asked}; {detail}"
    fields: Details = {"signature": signature, "detail": detail, "code": line.split(" ")[0], "line": text}
    fields |= {"reserved": total, "allocated": allocated, "held": tuple(held.most_common(LINES))}
    event = source_event(source, "memory", text, fields=fields, gpu=str(device), context=(text, *lines))
    micros = _whole(failed.get("time_us")) if failed else 0
    return timed(event, Stamp(micros / 1e6, "absolute", str(micros), 0.001) if micros > 1e15 else None)


_SIGNS = {"alloc": 1, "free_completed": -1}


def _held(segments: list[Row]) -> Counter[str]:
    """The bytes of allocated blocks by the line of the user's code that asked for them."""
    held = Counter[str]()
    for segment in segments:
        for block in _rows(segment.get("blocks")):
            if block.get("state") == "active_allocated":
                held[_line(_rows(block.get("frames")))] += _whole(block.get("size"))
    return held


def _line(frames: list[Row]) -> str:
    named = [row for row in frames if isinstance(row.get("filename"), str) and row["filename"].endswith(".py")]
    own = next((row for row in named if is_own(row["filename"])), named[0] if named else None)
    if own is None:
        return "memory of unknown origin"
    file = own["filename"].replace("\\", "/").rpartition("/")[2]
    name = decode(cut(str(own.get("name") or ""), 100).encode("utf-8", "backslashreplace"))
    return f"{decode(cut(file, 100).encode('utf-8', 'backslashreplace'))}:{_whole(own.get('line'))} {name}".rstrip()


def _rows(value: object) -> list[Row]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def size(amount: int) -> str:
    """`25.1 GiB`, `512 MiB`."""
    return f"{amount / (1 << 30):.1f} GiB" if amount >= 1 << 30 else f"{amount / (1 << 20):.0f} MiB"
