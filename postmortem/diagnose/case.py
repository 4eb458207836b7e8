"""One attempt of one job, ready to be reasoned about: its events by kind, file and rank, and its processes.

In: the aligned events of one attempt, copies merged. Out: `Case`, which the rules and the derivations only read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from postmortem.align.place import moment
from postmortem.align.years import YEARLESS_END
from postmortem.diagnose import processes
from postmortem.diagnose.claim import Claim, by
from postmortem.diagnose.processes import Process
from postmortem.diagnose.who.evidence import Registry
from postmortem.formats.endings import Ending
from postmortem.library import Library
from postmortem.model import Event, Source, Where
from postmortem.model.digits import whole
from postmortem.model.grouped import grouped
from postmortem.system import forms

AT_WORK = ("count", "loss", "answer")  # other kinds of `worked` show that a process was up, or had a result
PROOF = 64  # events of one claim
_REGEXES = forms.regexes("diagnose/lines")
_TASK = _REGEXES["step-task"]
_JOB_PART = re.compile(r"[_+]")
DAY_S = 86400.0
BEFORE_S, AFTER_S = 120.0, 900.0  # around the job's own lines: its start and its end take time
RANK_LOGS = ("console", "json-lines", "ray")  # kinds of source in which ranks write


@dataclass
class Case:
    """One attempt. `notes` are sentences on how the verdict came about, each once."""

    events: Sequence[Event]
    registry: Registry
    library: Library
    sources: Mapping[str, Source]
    attempt: int | None = None
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, text: str) -> None:
        self.notes[text] = None

    def claim(self, pattern: str, ranks: Iterable[int], events: Iterable[Event | None], because: str) -> Claim | None:
        """A claim that rests on several lines; None without proof."""
        p = self.library.get(pattern)
        named = tuple(sorted(set(ranks)))
        proof = tuple(e for e in events if e is not None)[:PROOF]
        if p is None or not proof:
            return None
        hosts = tuple(sorted({h for r in named if (h := self.registry.host_of.get(r))}))
        self.note(f"{pattern}: {because}")
        return Claim(p, p.role, proof, named, hosts, (), (), self.attempt, because, p.strength)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────

    def of_kind(self, *kinds: str) -> list[Event]:
        return list(self.by_kind[kinds[0]]) if len(kinds) == 1 else [e for e in self.events if e.kind in kinds]

    def telling(self, word: str) -> list[Event]:
        """Events of all patterns with this word (TELLS of vocabulary.py), in their order."""
        return list(self.by_word.get(word, ()))

    @cached_property
    def by_word(self) -> dict[str, list[Event]]:
        own = (e for e in self.by_kind["pattern"] if not self.not_ours(e))
        known = [(e, pattern) for e in own if (pattern := self.library.get(e.pattern)) is not None]
        named = {e.place for e, pattern in known if not pattern.generic}  # a generic pattern of such a line gives way
        found = ((e, pattern) for e, pattern in known if not (pattern.generic and e.place in named))
        return grouped((word, e) for e, pattern in found for word in pattern.tells)

    @cached_property
    def by_kind(self) -> dict[str, list[Event]]:
        return grouped((e.kind, e) for e in self.events)

    @cached_property
    def at_work(self) -> dict[str, list[Event]]:
        """By source the events that show a writer at work or finished, and not only that it could still write."""
        signs = self.of_kind("worked", "finished")
        return grouped((e.where.source, e) for e in signs if e.kind == "finished" or e.fields.get("by") in AT_WORK)

    @cached_property
    def by_pattern(self) -> dict[str, list[Event]]:
        return grouped((e.pattern or "", e) for e in self.by_kind["pattern"])

    @cached_property
    def by_source(self) -> dict[str, list[Event]]:
        return grouped((e.where.source, e) for e in self.events)

    @cached_property
    def writers(self) -> dict[str, set[int]]:
        """The ranks in each log."""
        return {source: self.ranks_of(events) for source, events in self.by_source.items()}

    @cached_property
    def beside(self) -> set[str]:
        """Files beside the logs of ranks (settings, a list of packages, notes): no line has a rank or a stamp, or
        counts."""
        logs = {e.where.source for e in self.events if e.raw_time or e.kind in ("progress", "worked", "finished")}
        ranked = {source for source, ranks in self.writers.items() if ranks}
        return self.by_source.keys() - logs - ranked if ranked else set()

    @cached_property
    def by_rank(self) -> dict[int, list[Event]]:
        """The events of each rank's own; a line in which a launcher introduces it is none."""
        ranked = ((self.rank_of(e), e) for e in self.events if e.kind != "pid")
        return grouped((rank, e) for rank, e in ranked if rank is not None)

    @cached_property
    def kernel_on(self) -> dict[int, list[Event]]:
        """The kernel's lines on each pid."""
        return grouped((e.fields.get("pid") or 0, e) for e in self.by_kind["pattern"] if e.speaker == "kernel")

    @cached_property
    def task_of(self) -> dict[int, int]:
        """The task of a Slurm step that the kernel's lines on a pid name first."""
        found = ((pid, _TASK.search(e.text)) for pid, own in self.kernel_on.items() for e in own)
        return {pid: whole(m["task"]) for pid, m in reversed([(pid, m) for pid, m in found if m])}

    def rank_of(self, e: Event) -> int | None:
        """The rank that an event is about, where it is known."""
        return self.registry.rank_of(e)

    def ranks_of(self, events: Iterable[Event]) -> set[int]:
        return {rank for e in events if (rank := self.rank_of(e)) is not None}

    @cached_property
    def known_benign(self) -> set[Where]:
        """Lines that a pattern knows to report no trouble."""
        patterns = ((e, self.library.get(e.pattern)) for e in self.by_kind["pattern"])
        return {e.where for e, pattern in patterns if pattern is not None and pattern.role == "context"}

    # ── processes ───────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """A row for each process, those of ranks first."""
        return processes.table(self.by_rank, self.by_word, self.ends, self.registry, self.library)

    @cached_property
    def finished(self) -> set[int]:
        """Ranks that reported that they finished."""
        return self.ranks_of(self.of_kind("finished"))

    @property
    def all_finished(self) -> bool:
        """Whether every rank of the job is known to have finished."""
        return bool(self.finished) and self.finished >= set(self.registry.ranks)

    @cached_property
    def ends(self) -> dict[int, Ending]:
        """How the launcher saw each rank end."""
        exits = [e for e in self.of_kind("exit") if not self._lived_on(e)]
        return processes.ends(exits, self.telling("exit"), self.registry)

    def _lived_on(self, e: Event) -> bool:
        """Whether a rank has lines below the line in which a script reports its end: that was another attempt. A
        script that begins each line with the rank's number may only repeat it."""
        if e.fields.get("reported_by") != "script" or e.rank is None:
            return False
        here = [x for x in self.by_rank[e.rank] if x.where.source == e.where.source]
        again = {x.where.line for x in here if x.kind == "exit"}
        own = (x.where.line for x in here if x.kind in processes.WRITTEN)
        return any(line is not None and line > e.line and line not in again for line in own)

    def ended(self, *kinds: str) -> list[int]:
        """Ranks whose end the launcher saw, of these kinds (see `endings.Ending`)."""
        return [rank for rank, end in self.ends.items() if end.kind in kinds]

    def end_of(self, rank: int | None) -> Ending | None:
        return None if rank is None else self.ends.get(rank)

    def unharmed(self, rank: int | None) -> bool:
        """Whether no bad end of this rank is known."""
        end = self.end_of(rank)
        return end is None or end.kind == "clean"

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def start(self) -> float | None:
        """The first moment at which this job is known to have run."""
        return self._span[0]

    @property
    def end(self) -> float | None:
        return self._span[1]

    @cached_property
    def own(self) -> list[Event]:
        """What the job itself left: its lines, or else the crashes of processes whose environment has a rank."""
        lines = [e for e in self.events if not by(e, "outside")]
        return lines or [e for e in self.of_kind("crash") if e.rank is not None]

    @cached_property
    def _span(self) -> tuple[float | None, float | None]:
        dated = [at for e in self.own if (at := moment(e)) is not None]
        return min(dated, default=None), max(dated, default=None)

    def outside(self, e: Event) -> bool:
        """Whether an event lies well before or after all that is known of the job."""
        at = moment(e)
        if at is None or self.start is None or self.end is None:
            return False
        return at < self.start - BEFORE_S - 3 * e.at_sigma or at > self.end + AFTER_S

    def not_ours(self, e: Event) -> str:
        """Why a report of a scheduler or a cluster is not about this job; empty where it may be. Both keep reports on
        earlier jobs. Stamps without a zone may be off by hours."""
        if e.where in self.other_rows:
            return "its row is that of another job"
        at, first, last = moment(e), self.start, self.end
        if at is None or first is None or last is None:
            at, (first, last) = _dated(e), self._dates
        if not by(e, "of_jobs") or at is None or first is None or last is None:
            return ""
        return "" if first - DAY_S < at < last + DAY_S else "it is dated more than a day before or after this job"

    @cached_property
    def _dates(self) -> tuple[float | None, float | None]:
        """The first and the last stamp of the job's own lines, whatever their zone."""
        dated = [at for e in self.own if (at := _dated(e)) is not None]
        return min(dated, default=None), max(dated, default=None)

    @cached_property
    def stated_rows(self) -> dict[Where, str]:
        """The rows of tables of jobs, each with its number; that of an array or of a heterogeneous job is one."""
        facts = [e for e in self.of_kind("fact") if e.fields.get("job_id")]
        return {e.where: _JOB_PART.split(e.fields["job_id"])[0] for e in facts}

    @cached_property
    def other_rows(self) -> set[Where]:
        """Rows about other jobs, in tables that have this one's."""
        own = self.own_numbers(self.stated_rows) & {*self.stated_rows.values()}
        return {where for where, job in self.stated_rows.items() if own and job not in own}

    def own_numbers(self, rows: Mapping[Where, str]) -> set[str]:
        """The numbers of this job, by names of files and by lines outside of the tables."""
        tables = {where.source for where in rows}
        found: set[str] = set()
        for path in set(self.sources) - tables:
            found |= {*_REGEXES["job-number"].findall(path)} | ({*_REGEXES["number"].findall(path)} & {*rows.values()})
        own = (e for e in self.by_kind["pattern"] if e.where.source not in tables and e.fields.get("job_id"))
        return found | {e.fields["job_id"] for e in own}

    # ── the evidence at hand ────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def only_kernel(self) -> bool:
        """Whether the user gave nothing but the kernel's lines, and so chose them."""
        return all(e.speaker == "kernel" for e in self.events)

    @property
    def has_kernel_log(self) -> bool:
        return any(s.kind == "kernel" for s in self.sources.values())

    def at_hand(self, what: str) -> bool:
        """Whether evidence of a kind (AT_HAND in vocabulary.py) is in these logs."""
        if what == "kernel-log":
            return self.has_kernel_log
        return bool(self.of_kind("stack" if what == "stacks" else what))


__all__ = ["RANK_LOGS", "Case", "moment"]


def _dated(e: Event) -> float | None:
    """The stamp of an event in a zone that may be unknown; None without a year."""
    return e.time if e.clock in ("naive", "absolute") and e.time is not None and e.time > YEARLESS_END else None
