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

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from postmortem.documents import outline
from postmortem.documents.facts import fact
from postmortem.formats import times
from postmortem.formats.excerpt import document_event
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Details
from postmortem.model.digits import whole
from postmortem.system import forms

MOST = 4096  # ranks of a communicator that are listed
_REGEXES = forms.regexes("documents/ras")
Counts = dict[str, dict[int, int]]  # by operation, of each rank


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
    source: Source, lines: list[str], at: int, ranks: Sequence[int], says: str, stamp: Stamp | None = None
) -> Event:
    fields: Details = {"ranks": ", ".join(map(str, sorted(ranks)[:MOST]))}
    if len(ranks) == 1:
        fields["rank"] = ranks[0]
    return fact(source, lines, at, says, stamp=stamp, fields=fields)


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────


def _text(source: Source, lines: list[str]) -> Iterator[Event]:
    op, world, at, count = "", 0, 0, -1
    counts: dict[int, tuple[int, list[int], int]] = {}  # count -> how many ranks, those listed, line
    lost = ""
    for number, line in enumerate([*lines, "#0-0 (0) END"]):
        if m := _REGEXES["comm"].match(line):
            yield from _behind(source, lines, op, counts, world)
            op, counts, count, lost = "", {}, -1, ""
        elif m := _REGEXES["group"].match(line):
            world = max(world, whole(m["size"]))
        elif m := _REGEXES["operation"].match(line):
            yield from _behind(source, lines, op, counts, world)
            op, counts = m["op"], {}
        elif op and (m := _REGEXES["count"].match(line)):
            count, at = whole(m["last"] or "0"), number
            counts[count] = (whole(m["ranks"]), [], at)
        elif m := _REGEXES["lost"].match(line):
            lost = "dead" if "dead" in line else "missing"
        elif m := _REGEXES["missing"].match(line):
            yield _suspects(source, lines, number, [whole(n) for n in m["ranks"].split(",") if n.strip()][:MOST],
                            "ras ranks missing")  # fmt: skip
        elif m := _REGEXES["rank"].match(line):
            rank = whole(m["rank"])
            if m["pid"] and rank < MOST:
                yield _process(source, lines, number, rank, whole(m["pid"]), m["host"])
            last = whole(m["last"]) if m["last"] else 0 if m["none"] else count
            if op and (m["last"] or m["none"]):  # the only rank with its count
                counts.setdefault(last, (1, [], number))
            if op and last in counts and len(counts[last][1]) < MOST:
                counts[last][1].append(rank)
            elif not op and lost and rank < MOST:
                yield _suspects(source, lines, number, [rank], f"ras rank {lost}")
        elif lost and (m := _REGEXES["process"].match(line)):
            fields: Details = {"host": m["host"], "pid": whole(m["pid"]), "gpu": whole(m["gpu"])}
            yield fact(source, lines, number, f"ras process {lost}", pid=whole(m["pid"]), fields=fields)


def _behind(
    source: Source, lines: list[str], op: str, counts: Mapping[int, tuple[int, list[int], int]], world: int
) -> Iterator[Event]:
    """The ranks with the lowest count: those listed there, or all but those listed elsewhere."""
    if not op or len(counts) < 2:
        return
    least = min(counts)
    number, listed, at = counts[least]
    if not listed and world:
        others = {rank for count, (_, ranks, _) in counts.items() if count != least for rank in ranks}
        listed = [rank for rank in range(min(world, MOST)) if rank not in others]
        listed = listed if len(listed) == number else []
    says = f"ras ranks behind {op} {least} of {max(counts)}"
    yield _suspects(source, lines, at, listed, says) if listed else fact(source, lines, at, says)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────


def _json(source: Source, lines: list[str], leaves: Sequence[outline.Leaf]) -> Iterator[Event]:
    taken = next((leaf.value for leaf in leaves if leaf.path == ("timestamp",)), "")
    counts: dict[object, Counts] = defaultdict(lambda: defaultdict(dict))
    for path, rank in outline.items(leaves, 4):
        value = {leaf.dotted: leaf for leaf in rank}
        if path[:1] != ("communicators",) or "rank" not in value:
            continue
        number, at = whole(value["rank"].value), value["rank"].line
        if "pid" in value and "host" in value and number < MOST:
            yield _process(source, lines, at, number, whole(value["pid"].value), value["host"].value)
        if path[2] == "missing_ranks":
            dead = value.get("status.considered_dead")
            says = "ras rank dead" if dead is not None and dead.value == "true" else "ras rank missing"
            yield _suspects(source, lines, at, [number], says, times.find(taken))
        for name, leaf in value.items():
            if name.startswith("collective_counts.") and leaf.value.isdecimal():
                counts[path[1]][name.rpartition(".")[2]][number] = whole(leaf.value)
    for of_comm in counts.values():
        for op, of_ranks in of_comm.items():
            least = min(of_ranks.values())
            behind = [rank for rank, n in of_ranks.items() if n == least]
            if len(Counter(of_ranks.values())) > 1 and len(behind) < len(of_ranks):
                at = next(leaf.line for leaf in leaves if leaf.path[-1] == op and leaf.value == str(least))
                says = f"ras ranks behind {op} {least} of {max(of_ranks.values())}"
                yield _suspects(source, lines, at, behind, says, times.find(taken))
