"""Answers of Kubernetes: the subject and the time of each of their lines.

spec: {nodeName: gn42, containers: [{env: [{name: RANK, value: "3"}]}]}         kubectl get pod -o json or yaml
status: {containerStatuses: [{state: {terminated: {reason: OOMKilled, finishedAt: 2026-11-20T11:52:40Z}}}]}

Node:           gn42/10.1.2.3                                                   kubectl describe pod
    State:      Terminated
      Reason:   OOMKilled
      Finished: Fri, 20 Nov 2026 11:52:40 +0000

Patterns read the lines; this room adds to their events the time, the node and the rank that other lines of the same
object state. An event has `lastTimestamp`, `eventTime` or, in `-o wide`, an age only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from postmortem.documents import outline
from postmortem.formats import times
from postmortem.model import Event, Source, Stamp
from postmortem.model.digits import number

_FINISHED = re.compile(r"\w{3}, (\d\d) (\w{3}) (\d{4}) (\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_STATE = re.compile(r"(?:Last )?State$|state$|lastState$")
_WHEN = ("lastTimestamp", "eventTime", "series.lastObservedTime", "firstTimestamp", "metadata.creationTimestamp")
_KUBELET = re.compile(r"\bkubelet, ([a-z\d][\w.-]{0,252})")
_INDEX = ("metadata.annotations.batch.kubernetes.io/job-completion-index",
          "metadata.labels.batch.kubernetes.io/job-completion-index")  # fmt: skip


class Scope(NamedTuple):
    """What is known of the lines `first` to `last`, from 1."""

    first: int
    last: int
    host: str | None = None
    rank: int | None = None
    stamp: Stamp | None = None


def placed(source: Source, content: bytes, events: Sequence[Event]) -> list[Event]:
    """The events of an answer with what other lines of the same object state; and `unreadable` where it is cut."""
    found, broken = _scopes(source, content)
    out = sorted((_of_kubelet(e) for e in events), key=lambda e: e.line)
    lines = [e.line for e in out]
    for scope in found:  # inner ones come last
        for index in range(bisect_left(lines, scope.first), bisect_right(lines, scope.last)):
            out[index] = _placed(out[index], scope)
    return [*out, *broken]


def _scopes(source: Source, content: bytes) -> tuple[list[Scope], list[Event]]:
    head = content[:4096].lstrip()
    if head.startswith((b"{", b"apiVersion:", b"- apiVersion:", b"---", b"items:", b"kind:")):
        leaves, broken = outline.read(source, content)
        return [scope for _, item in _objects(leaves) for scope in _of_object(item)], broken
    if b"\nNamespace:" not in head and b"State:" not in head:
        return [], []
    lines, broken = outline.lines_of(source, content)
    return list(_described(lines)), broken


def _of_kubelet(e: Event) -> Event:
    """A row of `kubectl get events -o wide` names the node of the kubelet that reported it."""
    m = _KUBELET.search(e.text) if e.host is None else None
    return e._replace(host=m[1]) if m else e


def _placed(e: Event, scope: Scope) -> Event:
    e = e._replace(host=scope.host or e.host, rank=e.rank if scope.rank is None else scope.rank)
    if scope.stamp is None:
        return e
    return e._replace(time=scope.stamp.time, clock=scope.stamp.clock, sigma=0.5, raw_time=scope.stamp.raw)


# ── JSON and YAML ───────────────────────────────────────────────────────────────────────────────────────────


def _objects(leaves: Sequence[outline.Leaf]) -> Iterator[tuple[object, list[outline.Leaf]]]:
    lists = any(leaf.path[:1] == ("items",) for leaf in leaves[:200])
    for path, item in outline.items(leaves, 2 if lists else 1):
        if lists and path[:1] == ("items",):
            yield path, item
    if leaves and not lists:
        rooted = leaves[0].path[:1] if isinstance(leaves[0].path[0], int) else ()
        yield (), [leaf._replace(path=leaf.path[len(rooted) :]) for leaf in leaves]


def _of_object(item: Sequence[outline.Leaf]) -> Iterator[Scope]:
    value = {leaf.dotted: leaf.value for leaf in item}
    first, last = item[0].line + 1, item[-1].line + 1
    about = value.get("involvedObject.kind", value.get("regarding.kind"))
    host = value.get("spec.nodeName") or value.get("source.host") or value.get("deprecatedSource.host") or None
    if about == "Node":
        host = value.get("involvedObject.name", value.get("regarding.name"))
    stamp = next((s for key in _WHEN if about and (s := times.find(value.get(key, ""))) is not None), None)
    yield Scope(first, last, host, _rank(value), stamp)
    states: dict[tuple[str | int, ...], list[outline.Leaf]] = {}
    for leaf in item:
        if leaf.path[:1] == ("status",) and "terminated" in leaf.path:
            states.setdefault(leaf.path[: leaf.path.index("terminated")], []).append(leaf)
    for state in states.values():
        ended = next((leaf.value for leaf in state if leaf.path[-1:] == ("finishedAt",)), "")
        yield Scope(state[0].line + 1, state[-1].line + 1, None, None, times.find(ended))
    for leaf in item:
        if leaf.path[:2] == ("status", "conditions") and leaf.path[-1:] == ("lastTransitionTime",):
            near = [other.line + 1 for other in item if other.path[:3] == leaf.path[:3]]
            yield Scope(min(near), max(near), None, None, times.find(leaf.value))


def _rank(value: Mapping[str, str]) -> int | None:
    """By the variable RANK of a container, or as the index of a pod with one GPU."""
    for key, name in value.items():
        if name == "RANK" and key.startswith("spec.containers.") and key.endswith(".name"):
            return number(value.get(f"{key[: -len('.name')]}.value"))
    gpus = [text for key, text in value.items() if key.endswith("limits.nvidia.com/gpu")]
    return number(next((value[key] for key in _INDEX if key in value), None)) if gpus in ([], ["1"]) else None


# ── kubectl describe ────────────────────────────────────────────────────────────────────────────────────────


def _described(lines: Sequence[str]) -> Iterator[Scope]:
    starts = [number for number, line in enumerate(lines) if line.startswith("Name:")] or [0]
    for first, last in zip(starts, [*starts[1:], len(lines)], strict=True):
        host, rank, inner = None, None, []
        at, ended = -1, None
        for leaf in outline.indented(lines[first:last]):
            key = str(leaf.path[-1])
            if leaf.path == ("Node",):
                host = leaf.value.partition("/")[0]
            elif key == "RANK" and "Environment" in leaf.path:
                rank = number(leaf.value)
            elif _STATE.match(key):
                at, ended = leaf.line, None
            elif key == "Finished" and at >= 0 and (m := _FINISHED.match(leaf.value)) and m[2] in _MONTHS:
                month = _MONTHS.index(m[2]) + 1
                ended = times.find(f"{m[3]}-{month:02}-{m[1]}T{m[4]}{m[5]}:{m[6]}")
                inner.append(Scope(first + at + 1, first + leaf.line + 1, None, None, ended))
        yield Scope(first + 1, last, host, rank)
        yield from inner


__all__ = ["placed"]
