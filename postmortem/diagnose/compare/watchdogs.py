"""The watchdogs' counts: the work that each rank waits in, per process group.

[rank1]: … Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, …) ran for 600020 ms
[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank 1] … at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.
Rank 3 has launched up to operation 5020 -- GPU 3 managed by process 812 on node n4                                    (NCCL RAS)

Numbers of two process groups are not comparable, so each group is compared by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.compare.rank_rows import Table, at_odds, odd_one_out
from postmortem.diagnose.wording import capital, ranks_text
from postmortem.model import Event
from postmortem.model.grouped import grouped, only, usual

FIRST = 1  # the number of a group's first work
DEFAULT = ("0(default_pg)", "default_pg", "0")


class Wait(NamedTuple):
    """How far one rank had come in one group, and the work that it waited for: of several works that timed out the
    first is the one that is stuck."""

    rank: int
    event: Event
    seq: int | None
    op: str
    numel: str
    numel_out: str
    enqueued: int | None
    completed: int | None
    timeout_s: float | None
    waited_s: float | None


def _wait(rank: int, events: Sequence[Event]) -> Wait:
    """What the lines on one rank state."""
    rows: list[dict[str, Any]] = [dict(e.fields) for e in events]

    def first(name: str, unknown: Any = None) -> Any:
        return next((row[name] for row in rows if row.get(name)), unknown)

    def known(name: str) -> list[int]:
        return [row[name] for row in rows if row.get(name) is not None]

    seq = min(known("seq"), default=None)
    shown = min(events, key=lambda e: (not e.fields.get("op"), e.fields.get("seq") != seq))
    op, numel, numel_out = first("op", ""), first("numel_in", ""), first("numel_out", "")
    top, done = max(known("enqueued"), default=None), max(known("completed"), default=None)
    return Wait(
        rank, shown, seq, op, numel, numel_out, top, done, seconds(first("timeout_ms")), seconds(first("ran_ms"))
    )


def seconds(milliseconds: int | None) -> float | None:
    """None for 0, too."""
    return milliseconds / 1000 if milliseconds else None


@dataclass(frozen=True)
class Group:
    """One process group: the waits of its ranks. `key` is None where the watchdog names no group (before
    torch 2.3)."""

    key: str | None
    waits: Mapping[int, Wait]

    @property
    def ranks(self) -> list[int]:
        return sorted(self.waits)

    @property
    def seqs(self) -> set[int]:
        return {w.seq for w in self.waits.values() if w.seq is not None}

    @property
    def completed(self) -> dict[int, int]:
        return {r: w.completed for r, w in self.waits.items() if w.completed is not None}

    @property
    def differs(self) -> bool:
        """Whether the numbers of enqueued works differ, so that some rank did not arrive."""
        return len({w.enqueued for w in self.waits.values()} - {None}) > 1

    @property
    def named(self) -> str:
        """` of group 3(mesh_tp)`; empty for the group of all ranks."""
        return "" if self.key is None or self.key in DEFAULT else f" of group {self.key}"

    @property
    def work(self) -> str:
        """`ALLREDUCE 808 of group 3(tp) after 600 s`, the work that all wait in."""
        waits = self.waits.values()
        op = next((w.op for w in waits if w.op), "collective")
        after = next((f" after {w.timeout_s:g} s" for w in waits if w.timeout_s), "")
        return f"{op}{f' {min(self.seqs)}' if self.seqs else ''}{self.named}{after}"

    @property
    def first(self) -> bool:
        """Whether the group's first work never ended."""
        done = max(self.completed.values(), default=None)
        return max(self.seqs, default=FIRST) <= FIRST and (self.seqs == {FIRST} if done is None else done <= 0)


def groups(case: Case, without: Collection[int] = ()) -> list[Group]:
    """The process groups in which ranks wait, those with most ranks first."""
    stated: list[tuple[tuple[int, str | None], Event]] = []
    for e in case.telling("count"):
        named = e.fields.get("rank")
        rank = named if e.rank is None and named is not None else case.rank_of(e)
        if rank is not None and rank not in without and e.fields.keys() & {"seq", "enqueued", "op"}:
            stated.append(((rank, e.fields.get("pg") or None), e))
    waits = {key: _wait(key[0], events) for key, events in grouped(stated).items()}
    merged = grouped(((name or _group_of(waits, waits[rank, name]), rank), e) for (rank, name), e in stated)
    members = grouped((name, _wait(rank, events)) for (name, rank), events in merged.items())
    found = [Group(name, {w.rank: w for w in own}) for name, own in members.items()]
    return sorted(found, key=lambda g: (-len(g.waits), str(g.key)))


def _group_of(found: Mapping[tuple[int, str | None], Wait], wait: Wait) -> str | None:
    """The group of a line that names none: that in which the same rank, else another, waits in the same work."""
    same = [
        (rank, name) for (rank, name), w in found.items() if name is not None and w.seq == wait.seq and _alike(w, wait)
    ]
    own = [name for rank, name in same if rank == wait.rank]
    return only(own[:1] or (name for _, name in same))


def _alike(a: Wait, b: Wait) -> bool:
    return a.rank == b.rank or not (a.op and b.op) or a.op == b.op


def _mixed(table: Table, group: Group) -> bool:
    """Whether a group without a name is several: before torch 2.3 the watchdog names none, and a rank that times
    out in two works at once waits in two groups."""
    if group.key is not None:
        return False
    unnamed = [e for e in table.case.telling("wait") if not e.fields.get("pg")]
    works = [(table.case.rank_of(e), e.fields.get("seq") or e.fields.get("op")) for e in unnamed]
    numbers = grouped((rank, work) for rank, work in works if work is not None)
    return any(len(set(found)) > 1 for rank, found in numbers.items() if rank is not None)


def _counted(group: Group) -> dict[int, Wait]:
    """The works that have a number; where none has, as of old watchdogs, those that have a name."""
    numbered = {r: w for r, w in group.waits.items() if w.seq is not None}
    return numbered or {r: w for r, w in group.waits.items() if w.op}


def differ(table: Table) -> Claim | None:
    """Ranks that wait in works of other numbers, operations or sizes."""
    for group in groups(table.case, table.only_lost):
        counted = _counted(group)
        if _mixed(table, group):
            continue
        usual_op = usual(w.op for w in counted.values()) or ""
        usual_numel = usual(w.numel for w in counted.values()) or ""
        works = grouped(((w.seq or 0, w.op or usual_op, w.numel or usual_numel), r) for r, w in counted.items())
        if len(works) > 1:
            return _differing(table, group, works)
    return None


def _differing(table: Table, group: Group, works: dict[tuple[int, str, str], list[int]]) -> Claim | None:
    places = [
        f"{ranks_text(ranks)} waited in {op or 'work'}{f' {seq}' if seq else ''}"
        + (f" ({numel} element{'s' * (numel != '1')})" if numel else "")
        for (seq, op, numel), ranks in sorted(works.items())
    ]
    because = "; ".join(places) + group.named
    odd, majority = odd_one_out(works)
    pattern = "ranks-in-different-collectives"
    if len({(op, numel) for _, op, numel in works}) == 1:  # only the numbers differ
        pattern, odd = "rank-behind", works[min(works)]
    else:
        because = at_odds(odd, majority, because)
    proof = sorted(group.waits.values(), key=lambda w: (w.rank not in odd, w.rank))
    return table.case.claim(pattern, odd, [w.event for w in proof], because)


def behind(table: Table) -> Claim | None:
    """Ranks that had enqueued less of one group than the others."""
    for group in groups(table.case, table.only_lost):
        counts = {r: w.enqueued for r, w in group.waits.items() if w.enqueued is not None}
        top = max(counts.values(), default=0)
        low = sorted(r for r, n in counts.items() if n < top)
        if low and (len(low) * 2 < len(counts) or len(counts) == 2):
            proof = [group.waits[r].event for r in sorted(counts, key=lambda r: (r not in low, r))]
            because = f"{ranks_text(low)} had enqueued {counts[low[0]]} collectives{group.named}; the others {top}"
            return table.case.claim("rank-behind", low, proof, because)
    return None


def together(table: Table) -> Claim | None:
    """All ranks that complain wait in the same work. Where these are all ranks of the group, its transport never
    worked (first work) or the network or a GPU stopped; else it remains open for whom they waited."""
    found = groups(table.case, table.only_lost)
    for group in found:
        if len(group.seqs) != 1 or _mixed(table, group):
            continue
        ranks, proof = group.ranks, [group.waits[r].event for r in group.ranks]
        timed_out = f"{capital(ranks_text(ranks))} timed out in {group.work}"
        # only a flight recorder lists the members of a subgroup
        everyone = not group.named and len(ranks) > 1 and table.world is not None and {*ranks} >= {*range(table.world)}
        if everyone and group.first:
            because = f"{timed_out}, the first of its group: none was missing"
            return table.case.claim("first-collective-never-ended", [], proof, because)
        if everyone:
            because = f"{timed_out}: none was missing or late, and none had exited"
            return table.case.claim("all-ranks-stuck", [], proof, because)
        if not _others_ran(table, ranks):
            return table.case.claim("collective-timed-out", [], proof, f"{timed_out}; {_unknown(table, ranks)}")
    return _without_number(table) if not found else None


def _without_number(table: Table) -> Claim | None:
    """Ranks that timed out in a collective without a number: gloo's, or a line that the log broke."""
    if not table.waiting or _others_ran(table, table.waiting):
        return None
    places = {p for r in table.waiting if (p := table.rows[r].place) is not None}
    proof = [e for r in table.waiting if (e := table.rows[r].complaint) is not None and e.kind != "line"]
    if len(places) == 1:
        call = " in {} ({})".format(*places.pop())
    else:  # a watchdog of steps or of requests does not see the collective
        call = " in a collective" if any("ollective" in e.text for e in proof) else ""
    because = f"{ranks_text(table.waiting)} timed out{call}; {_unknown(table, table.waiting)}"
    return table.case.claim("collective-timed-out", [], proof, capital(because))


def _others_ran(table: Table, waiting: list[int]) -> bool:
    """Whether the logs show other ranks that did not wait and were not merely stopped: then other
    comparisons name them."""
    others = set(table.rows) - set(waiting) - set(table.waiting)
    return any(table.rows[r].process.lines and not table.rows[r].stopped for r in others)


def _unknown(table: Table, waiting: list[int]) -> str:
    n = (table.world or 0) - len(waiting)
    if n <= 0:
        return "these logs do not show how many ranks the job has"
    return f"these logs do not show what the other {f'{n} ranks' if n > 1 else 'rank'} did"
