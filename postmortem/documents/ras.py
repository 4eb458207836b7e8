"""What NCCL's RAS subsystem answers (`ncclras`), as text and JSON, of NCCL 2.24 and later.

  #0-0 (27a079b828ff1a75) MISMATCH
    Communicator ranks have different AllReduce operation counts
    30 ranks have launched up to operation 640
    2 ranks have launched up to operation 641
    Rank 12 -- GPU 4 managed by process 323032 on node 10.1.2.3

Below a count are the ranks that have it, of a minority only (src/ras/client_support.cc). The ranks that are behind hold
up the others: where the listed ones are ahead, the suspects are those that are not listed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from postmortem.documents import outline
from postmortem.formats import times
from postmortem.formats.excerpt import document_event, fact
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.model.digits import number, whole
from postmortem.system import forms

MOST_RANKS = 4096  # ranks of a communicator that are listed
_REGEXES = forms.regexes("documents/ras")
Counts = dict[int, tuple[int, list[int], int]]  # count -> how many ranks, those listed, line


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """The processes, the ranks that are missing or dead, and those that are behind."""
    lines, long = outline.lines_of(source, content)
    if content[:4096].lstrip().startswith(b"{"):
        leaves, broken = outline.read(source, content)
        yield from _json(source, lines, leaves)
        yield from broken
    else:
        yield from _text(source, lines)
        yield from long


def _process(source: Source, lines: list[str], at: int, rank: int, pid: int, host: str) -> Event:
    return document_event(source, "pid", lines, at, {"pid": pid}, pid)._replace(rank=rank, host=host)


def _suspects(
    source: Source, lines: list[str], at: int, ranks: Sequence[int], signature: str, stamp: Stamp | None = None
) -> Event:
    fields: Details = {"ranks": ", ".join(map(str, sorted(ranks)[:MOST_RANKS]))} if ranks else {}
    if len(ranks) == 1:
        fields["rank"] = ranks[0]
    return fact(source, lines, at, signature, stamp=stamp, fields=fields)


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────


def _text(source: Source, lines: list[str]) -> Iterator[Event]:
    now, world = _Section(), 0
    for at, line in enumerate([*lines, END]):
        form, m = next(((form, m) for form in FORMS if (m := _REGEXES[form].match(line))), ("", None))
        if m is None:
            continue
        if form in ("comm", "operation") and now.op:
            yield from _behind(source, lines, now.op, now.counts, world)
        if form == "comm":
            now = _Section()
        elif form == "operation":
            now.op, now.counts = m["op"], {}
        elif form == "group":
            world = max(world, whole(m["size"]))
        elif form == "count" and now.op:
            now.last = whole(m["last"] or "0")
            now.counts[now.last] = (whole(m["ranks"]), [], at)
        elif form == "lost":
            now.lost = "dead" if "dead" in m[0] else "missing"
        elif form in ("rank", "missing", "process"):
            yield from _listed(source, lines, at, m, now)


@dataclass
class _Section:
    """The section that is being read: of a communicator, or of processes that are lost."""

    op: str = ""
    last: int = -1
    lost: str = ""
    counts: Counts = field(default_factory=dict)


def _listed(source: Source, lines: list[str], at: int, m: re.Match[str], now: _Section) -> Iterator[Event]:
    """A rank with its process, ranks that are missing, or a process that is lost."""
    found = m.groupdict()
    if "ranks" in found:
        ranks = [whole(n) for n in m["ranks"].split(",")[:MOST_RANKS] if n.strip()]
        yield _suspects(source, lines, at, ranks, "ras ranks missing")
    elif "gpu" in found:
        fields: Details = {"host": m["host"], "pid": whole(m["pid"]), "gpu": whole(m["gpu"])}
        if now.lost:
            yield fact(source, lines, at, f"ras process {now.lost}", pid=whole(m["pid"]), fields=fields)
    elif (rank := whole(m["rank"])) < MOST_RANKS:
        if m["pid"]:
            yield _process(source, lines, at, rank, whole(m["pid"]), m["host"])
        last = whole(m["last"]) if m["last"] else 0 if m["none"] else now.last
        if now.op and (m["last"] or m["none"]):  # the only rank with its count, which has no line of its own
            now.counts.setdefault(last, (1, [], at))
        if now.op and last in now.counts:
            now.counts[last][1].append(rank)
        elif not now.op and now.lost:
            yield _suspects(source, lines, at, [rank], f"ras rank {now.lost}")


END = "#0-0 (0) END"
FORMS = ("comm", "group", "operation", "count", "lost", "missing", "rank", "process")


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────


def _json(source: Source, lines: list[str], leaves: Sequence[outline.Leaf]) -> Iterator[Event]:
    stamp = next((times.find(leaf.value) for leaf in leaves if leaf.path == ("timestamp",)), None)
    counts: dict[tuple[object, str], dict[int, outline.Leaf]] = defaultdict(dict)  # of each rank, by operation
    for path, item in outline.items(leaves, 4):
        value = {leaf.dotted: leaf for leaf in item}
        rank = number(value["rank"].value) if "rank" in value and path[0] == "communicators" else None
        if rank is None or rank >= MOST_RANKS:
            continue
        at = value["rank"].line
        pid = number(value["pid"].value) if "pid" in value else None
        if pid is not None and "host" in value:
            yield _process(source, lines, at, rank, pid, value["host"].value)
        if path[2] == "missing_ranks":
            dead = "true" in (leaf.value for name, leaf in value.items() if name == "status.considered_dead")
            yield _suspects(source, lines, at, [rank], f"ras rank {'dead' if dead else 'missing'}", stamp)
        for name, leaf in value.items():
            if name.startswith("collective_counts.") and number(leaf.value) is not None:
                counts[path[1], name.rpartition(".")[2]][rank] = leaf
    for (_, op), of_ranks in counts.items():
        found: Counts = {}
        for rank, leaf in of_ranks.items():
            found.setdefault(whole(leaf.value), (0, [], leaf.line))[1].append(rank)
        yield from _behind(source, lines, op, found, 0, stamp)


def _behind(
    source: Source, lines: list[str], op: str, counts: Counts, world: int, stamp: Stamp | None = None
) -> Iterator[Event]:
    """The ranks with the lowest count: those listed there, or all but those listed elsewhere."""
    if len(counts) < 2:
        return
    least = min(counts)
    many, listed, at = counts[least]
    if not listed:
        others = {rank for count, (_, ranks, _) in counts.items() if count != least for rank in ranks}
        rest = [rank for rank in range(min(world, MOST_RANKS)) if rank not in others]
        listed = rest if len(rest) == many else []
    yield _suspects(source, lines, at, listed, f"ras ranks behind {op} {least} of {max(counts)}", stamp)
