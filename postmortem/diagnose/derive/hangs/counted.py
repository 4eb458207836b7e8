"""A time-out is arithmetic: in one process group, who waits in which operation, who completed what, who is
silent.

[rank1]: … Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, …) ran for 600020 ms
[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank 1] … at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.
Rank 3 has launched up to operation 5020 -- GPU 3 managed by process 812 on node n4                                    (NCCL RAS)

Numbers of two process groups have nothing to do with each other, so each group is weighed by itself:
numbers or operations that differ, ranks that enqueued less, then groups in which everybody who speaks waits
in the same work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import Scene, at_odds, minority
from postmortem.diagnose.wording import capital, ranks_text
from postmortem.model import Event
from postmortem.model.digits import number

FIRST = 1  # the number of a group's first work
DEFAULT = ("0(default_pg)", "default_pg", "0")


@dataclass
class Wait:
    """How far one rank had come in one group, and what it waited for."""

    rank: int
    event: Event
    seq: int | None = None
    op: str = ""
    numel: str = ""
    numel_out: str = ""
    enqueued: int | None = None
    completed: int | None = None
    timeout_s: float | None = None
    waited_s: float | None = None

    def learn(self, e: Event) -> None:
        """Take over what a line says; of several works that timed out the first is the one that is stuck."""
        seq, op = number(e.fields.get("seq")), str(e.fields.get("op") or "")
        if seq is not None and (self.seq is None or seq < self.seq):
            self.seq = seq
            self.event = e if op or not self.op else self.event
        self.op, self.numel = self.op or op, self.numel or str(e.fields.get("numel_in") or "")
        self.numel_out = self.numel_out or str(e.fields.get("numel_out") or "")
        self.enqueued = _most(self.enqueued, number(e.fields.get("enqueued")))
        self.completed = _most(self.completed, number(e.fields.get("completed")))
        self.timeout_s = self.timeout_s or seconds(e, "timeout_ms")
        self.waited_s = self.waited_s or seconds(e, "ran_ms")

    def join(self, other: Wait) -> None:
        """Take over what another account of the same rank in the same group says, where this one does not."""
        self.op, self.numel = self.op or other.op, self.numel or other.numel
        self.numel_out = self.numel_out or other.numel_out
        self.timeout_s, self.waited_s = self.timeout_s or other.timeout_s, self.waited_s or other.waited_s
        self.enqueued = _most(self.enqueued, other.enqueued)
        self.completed = _most(self.completed, other.completed)


def seconds(e: Event, name: str) -> float | None:
    """A captured number of milliseconds, in seconds; None for 0, too."""
    told = number(e.fields.get(name))
    return told / 1000 if told else None


def _most(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


@dataclass
class Group:
    """One process group: the waits of its ranks. `key` is None where the watchdog names no group (before
    torch 2.3)."""

    key: str | None
    waits: dict[int, Wait] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        return sorted(self.waits)

    @property
    def seqs(self) -> set[int]:
        return {w.seq for w in self.waits.values() if w.seq is not None}

    @property
    def work(self) -> str:
        """`ALLREDUCE 808`, the work that all wait in."""
        op = next((w.op for w in self.waits.values() if w.op), "collective")
        return f"{op} {min(self.seqs)}" if self.seqs else op

    @property
    def named(self) -> str:
        """` of group 3(mesh_tp)`; empty for the group of all ranks."""
        return "" if self.key is None or self.key in DEFAULT else f" of group {self.key}"

    @property
    def first(self) -> bool:
        """Whether the group's first work never ended."""
        if self.seqs and max(self.seqs) > FIRST:
            return False
        done = [w.completed for w in self.waits.values() if w.completed is not None]
        return bool(done) and max(done) <= 0 or (not done and self.seqs == {FIRST})


def groups(case: Case) -> list[Group]:
    """The process groups in which ranks wait, those with most ranks first."""
    found: dict[tuple[int, str | None], Wait] = {}
    for e in _counts(case):
        rank = _rank(case, e)
        if rank is None:
            continue
        key = (rank, str(e.fields["pg"]) if e.fields.get("pg") else None)
        found.setdefault(key, Wait(rank, e)).learn(e)
    by_group: dict[str | None, Group] = {}
    for (rank, name), wait in found.items():
        if name is None:
            name = _group_of(found, wait)
        group = by_group.setdefault(name, Group(name))
        known = group.waits.setdefault(rank, wait)
        if known is not wait:
            known.join(wait)
    return sorted(by_group.values(), key=lambda g: (-len(g.waits), str(g.key)))


def _counts(case: Case) -> list[Event]:
    return [e for e in case.telling("count") if e.fields.keys() & {"seq", "enqueued", "op"}]


def _rank(case: Case, e: Event) -> int | None:
    said = number(e.fields.get("rank"))
    return case.rank_of(e) if e.rank is not None or said is None else said


def _group_of(found: dict[tuple[int, str | None], Wait], wait: Wait) -> str | None:
    """The group of a line that names none: the one in which the same rank, else another, waits in the
    same work."""
    same = [(rank, name, other) for (rank, name), other in found.items() if name is not None and other.seq == wait.seq]
    for rank, name, _ in same:
        if rank == wait.rank:
            return name
    names = {name for _, name, other in same if wait.op in ("", other.op) or not other.op}
    return names.pop() if len(names) == 1 else None


def _several_at_once(scene: Scene, group: Group) -> bool:
    """Before torch 2.3 the watchdog names no process group: a rank that times out in two numbers at once
    waits in two groups."""
    if group.key is not None:
        return False
    numbers: dict[int, set[object]] = defaultdict(set)
    for e in scene.case.telling("wait"):
        rank = scene.case.rank_of(e)
        if rank is not None and not e.fields.get("pg") and e.fields.get("seq"):
            numbers[rank].add(e.fields["seq"])
    return any(len(found) > 1 for found in numbers.values())


# ── numbers or operations that differ ───────────────────────────────────────────────────────────────────


def differ(scene: Scene) -> Claim | None:
    """The watchdogs name number, operation and size of the work that each rank waits in."""
    for group in groups(scene.case):
        counted = {r: w for r, w in group.waits.items() if w.seq is not None}
        if len(counted) < 2 or _several_at_once(scene, group):
            continue
        usual_op = _usual(w.op for w in counted.values())
        usual_numel = _usual(w.numel for w in counted.values())
        works: dict[tuple[int, str, str], list[int]] = defaultdict(list)
        for r, w in counted.items():
            works[(w.seq or 0, w.op or usual_op, w.numel or usual_numel)].append(r)
        if len(works) > 1:
            return _differing(scene, group, works)
    return None


def _usual(values: Iterator[str]) -> str:
    found = Counter(v for v in values if v)
    return found.most_common(1)[0][0] if found else ""


def _differing(scene: Scene, group: Group, works: dict[tuple[int, str, str], list[int]]) -> Claim | None:
    told = []
    for (seq, op, numel), ranks in sorted(works.items()):
        told.append(f"{ranks_text(ranks)} waited in {op or 'work'} {seq}" + (f" ({numel} elements)" if numel else ""))
    because = "; ".join(told) + group.named
    odd, majority = minority(works)
    pattern = "ranks-in-different-collectives"
    if len({(op, numel) for _, op, numel in works}) == 1:  # only the numbers differ
        pattern, odd = "rank-behind", works[min(works)]
    else:
        because = at_odds(odd, majority, because)
    proof = sorted(group.waits.values(), key=lambda w: (w.rank not in odd, w.rank))
    return scene.make(pattern, odd, [w.event for w in proof], because)


def behind(scene: Scene) -> Claim | None:
    """Ranks that had enqueued less of one group than the others."""
    for group in groups(scene.case):
        counts = {r: w.enqueued for r, w in group.waits.items() if w.enqueued is not None}
        if len(set(counts.values())) < 2:
            continue
        top = max(counts.values())
        low = sorted(r for r, n in counts.items() if n < top)
        if len(low) * 2 < len(counts) or len(counts) == 2:
            proof = [group.waits[r].event for r in (*low, *(r for r in counts if r not in low))]
            because = f"{ranks_text(low)} had enqueued {counts[low[0]]} collectives{group.named}; the others {top}"
            return scene.make("rank-behind", low, proof, because)
    return None


# ── all who speak wait in the same work ─────────────────────────────────────────────────────────────────


def together(scene: Scene) -> Claim | None:
    """Everybody who speaks waits in the same work, and nobody else is known to be elsewhere. Where that
    is the group's first work on all ranks, its transport never worked; later, the network or a GPU
    stopped; where ranks are missing from the logs, or nothing tells how many there are, it stays open
    whom they waited for."""
    found = groups(scene.case)
    for group in found:
        if len(group.seqs) != 1 or _several_at_once(scene, group):
            continue
        whole = len(group.ranks) > 1 and _is_whole(scene, group)
        if whole and group.first:
            because = f"{ranks_text(group.ranks)} timed out in {_told(group)}, the first of its group: none was missing"
            return scene.make("first-collective-never-ended", [], _proof(group), capital(because))
        if whole:
            because = (
                f"{ranks_text(group.ranks)} timed out in {_told(group)}: none was missing or late, and none had exited"
            )
            return scene.make("all-ranks-stuck", [], _proof(group), capital(because))
        if not _spoken_of(scene, group.ranks):
            because = f"{ranks_text(group.ranks)} timed out in {_told(group)}; {_open(scene, group.ranks)}"
            return scene.make("collective-timed-out", [], _proof(group), capital(because))
    return _unnamed(scene) if not found else None


def _unnamed(scene: Scene) -> Claim | None:
    """Ranks that timed out in a collective of which nothing tells the number: gloo's, or a log that
    broke the line."""
    if not scene.waiting or _spoken_of(scene, scene.waiting):
        return None
    places = {p for r in scene.waiting if (p := scene.views[r].place) is not None}
    where = f" ({places.pop()[1]})" if len(places) == 1 else ""
    because = f"{ranks_text(scene.waiting)} timed out in a collective{where}; {_open(scene, scene.waiting)}"
    proof = [e for r in scene.waiting if (e := scene.views[r].complaint) is not None and e.kind != "line"]
    return scene.make(
        "collective-timed-out", [], proof, capital(because)
    )  # none where only heads of complaints are left


def _proof(group: Group) -> list[Event]:
    return [group.waits[r].event for r in group.ranks]


def _is_whole(scene: Scene, group: Group) -> bool:
    """Whether all ranks of the group wait. Who belongs to a subgroup only a flight recorder tells."""
    if group.key is not None and group.key not in DEFAULT:
        return False
    return scene.world is not None and set(group.waits) >= set(range(scene.world))


def _spoken_of(scene: Scene, waiting: list[int]) -> list[int]:
    """Ranks that are in these logs, do not wait, and were not merely stopped: what they did is for other
    comparisons to tell."""
    others = set(scene.views) - set(waiting) - set(scene.waiting)
    return sorted(r for r in others if scene.views[r].lines and not scene.views[r].stopped)


def _open(scene: Scene, waiting: list[int]) -> str:
    """What stays open: how many there are besides, and that nothing of them is here."""
    n = (scene.world or 0) - len(waiting)
    if n <= 0:
        return "these logs do not show how many ranks the job has"
    return f"these logs do not show what the other {f'{n} ranks' if n > 1 else 'rank'} did"


def _told(group: Group) -> str:
    """`ALLREDUCE 808 of group 3(tp) after 600 s`"""
    after = next((f" after {w.timeout_s:g} s" for w in group.waits.values() if w.timeout_s), "")
    return f"{group.work}{group.named}{after}"
