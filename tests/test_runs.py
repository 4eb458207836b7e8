"""Which events belong together: jobs in a folder, attempts of a job, which have a row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from claims import NOON, event, final_line, library, pattern, source, steps
from conftest import SAMPLES, solved
from postmortem.model import ClockKind, Event, Source
from postmortem.report import render_markdown, render_terminal
from postmortem.runs import cuts
from postmortem.runs.attempts import separated
from postmortem.runs.folders import split

DEATH = pattern("death", None, role="confirms", tells=("death",))
BIRTH = pattern("birth", None, role="context", tells=("birth",))
AGAIN = pattern("again", None, role="context", tells=("again",))


def job(folder: str, *ranks: int, at: float | None = NOON, run: str | None = None, well: bool = False, **more: Any) -> tuple[list[Event], list[Source]]:  # fmt: skip
    files = [source(f"{folder}/rank{r}.log", rank=r, run=run) for r in ranks]
    events = [e for r in ranks for e in steps(r, 1, 2, file=f"{folder}/rank{r}.log", at=at, **more)]
    if well:
        events += [final_line(r, file=f"{folder}/rank{r}.log", at=None if at is None else at + 3) for r in ranks]
    return events, files


def stamped(events: Sequence[Event], clock: ClockKind = "naive") -> list[Event]:
    """As they are read: with the stamps of their logs, before the clocks are compared."""
    return [e if e.at is None else e._replace(time=e.at, clock=clock, at=None) for e in events]


def jobs(*parts: tuple[list[Event], list[Source]]) -> list[list[str]]:
    events = [e for part in parts for e in part[0]]
    sources = [s for part in parts for s in part[1]]
    found = split(stamped(events), sources)
    if list(found) == [None]:
        return [["all"]]
    return [sorted({p.split("/")[0] for p in paths}) for paths in found.values()]


def test_different_ranks_in_two_folders_are_one_job() -> None:
    assert jobs(job("node-a", 0, 1), job("node-b", 2, 3, at=NOON + 9999)) == [["all"]]


def test_the_same_ranks_at_different_times_are_two_jobs_the_earlier_first() -> None:
    assert jobs(job("monday", 0, 1, at=NOON + 9999), job("tuesday", 0, 1)) == [["tuesday"], ["monday"]]


def test_the_same_ranks_at_one_time_are_one_job() -> None:
    assert jobs(job("out", 0, 1), job("err", 0, 1)) == [["all"]]
    assert jobs(job("out", 0, 1), job("err", 0, 1, at=NOON + 2.0)) == [["all"]]  # a second of slack
    assert jobs(job("out", 0, 1), job("err", 0, 1, at=NOON + 2.1)) == [["out"], ["err"]]


def test_without_clocks_two_runs_of_which_one_ended_well_are_two_jobs() -> None:
    assert jobs(job("a", 0, at=None), job("b", 0, at=None)) == [["all"]]
    assert jobs(job("a", 0, at=None), job("b", 0, at=None, well=True)) == [["a"], ["b"]]


@pytest.mark.parametrize(("apart", "several"), [(9999.0, 1), (14 * 3600.0, 1), (14 * 3600.0 + 9, 2)])
def test_stamps_with_and_without_a_zone_are_compared_by_no_less_than_zones_can_differ(
    apart: float, several: int
) -> None:
    early, late = job("a", 0), job("b", 0, at=NOON + apart)
    events = [*stamped(early[0]), *stamped(late[0], "absolute")]
    assert len(split(events, [*early[1], *late[1]])) == several


def test_stamps_without_a_year_are_compared_with_those_that_have_one() -> None:
    noon = datetime(1972, 11, 21, 12, tzinfo=UTC).timestamp()  # as a stamp without a year is read
    assert jobs(job("a", 0, at=noon), job("b", 0)) == [["all"]]
    assert len(jobs(job("a", 0, at=noon - 999), job("b", 0))) == 2


def test_logs_of_two_hosts_without_ranks_may_be_of_two_zones() -> None:
    def on(host: str, at: float, well: bool) -> tuple[list[Event], list[Source]]:
        events, files = nameless(host, at, well)
        return events, [replace(s, host=host) for s in files]

    assert jobs(on("a", NOON, True), on("b", NOON + 8 * 3600, False)) == [["all"]]
    assert len(jobs(on("a", NOON, True), on("b", NOON + 15 * 3600, False))) == 2


def nameless(folder: str, at: float | None, well: bool) -> tuple[list[Event], list[Source]]:
    file = f"{folder}/train.log"
    work = [event(f"step {n}", file, n, "progress", at=at, source_kind="console") for n in (1, 2)]
    return work + ([final_line(None, file=file, at=at)] if well else []), [source(file)]


def test_of_nameless_logs_both_the_time_and_the_end_have_to_differ() -> None:
    early, later = NOON, NOON + 999
    assert jobs(nameless("a", early, True), nameless("b", later, False)) == [["a"], ["b"]]
    assert jobs(nameless("a", early, True), nameless("b", early, False)) == [["all"]]
    assert jobs(nameless("a", early, False), nameless("b", later, False)) == [["all"]]
    assert len(jobs(nameless("a", None, True), nameless("b", None, False))) == 2
    assert jobs(nameless("a", early, True), job("b", 0, at=later, well=True)) == [["all"]]


@pytest.mark.parametrize(("kind", "several"), [("console", 2), ("agent", 2), ("json-lines", 2), ("kernel", 1)])
def test_jobs_are_separated_by_their_own_logs(kind: str, several: int) -> None:
    def of(folder: str, at: float) -> tuple[list[Event], list[Source]]:
        events, sources = job(folder, 0, at=at)
        return [e._replace(source_kind=kind) for e in events], sources

    assert len(jobs(of("a", NOON), of("b", NOON + 999))) == several


def test_two_pids_in_common_are_one_job_however_far_apart() -> None:
    def parts(pids: tuple[int, ...]) -> list[tuple[list[Event], list[Source]]]:
        made = [job("a", 0, 1), job("b", 0, 1, at=NOON + 9999)]
        return [([e._replace(pid=pids[e.rank or 0]) for e in events], files) for events, files in made]

    assert jobs(*parts((70, 71))) == [["all"]]
    assert len(jobs(*parts((70, 70)))) == 2
    assert len(jobs(*parts((1, 0)))) == 2


def test_a_launcher_is_of_the_run_beside_it() -> None:
    """It has lines only at the end, which may be later than the next job's first one."""

    def launched(folder: str, run: str, at: float, end: float) -> tuple[list[Event], list[Source]]:
        events, files = job(folder, 0, 1, at=at, run=run)
        path = f"{folder}/launch.log"
        return [*events, event("x", path, kind="line", at=end, source_kind="agent")], [*files, source(path, "agent")]

    parts = launched("monday", "r1", NOON, NOON + 999), launched("tuesday", "r2", NOON + 9999, NOON + 19999)
    assert jobs(*parts) == [["monday"], ["tuesday"]]


# ── attempts that only a launcher's log shows ────────────────────────────────────────────────────────────────────────


def attempts(*events: Event) -> list[int | None]:
    return [e.attempt for e in cuts.numbered(events, library(DEATH, BIRTH, AGAIN))]


def line(n: int, p: str | None = None, kind: str = "line", **more: Any) -> Event:
    return event("x", "agent.err", n, kind if p is None else "pattern", pattern=p, source_kind="agent", **more)


def test_after_a_death_the_ranks_begin_again() -> None:
    work = [line(n, kind="progress") for n in (1, 20)]
    assert attempts(work[0], line(10, "death"), line(13), line(14), work[1]) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(("before", "again"), [(1.0, True), (1.1, False)])
def test_lines_that_a_pipe_held_back_begin_nothing(before: float, again: bool) -> None:
    """A rank had printed them before the launcher reported its death."""
    death, late = (line(10, "death", at=NOON, raw_time="x"), line(20, kind="progress", at=NOON - before, raw_time="x"))
    assert attempts(line(1, kind="progress"), death, late) == ([0, 0, 1] if again else [None] * 3)


def test_a_death_without_later_work_is_the_end() -> None:
    assert attempts(line(1, kind="progress"), line(10, "death"), line(20)) == [None] * 3


def test_an_agent_that_reports_two_deaths_had_two_attempts() -> None:
    """A group that never forms again begins nothing, and the agent tells of its end, too."""
    assert attempts(line(1), line(10, "death", pid=7), line(20), line(30, "death", pid=7)) == [0, 0, 1, 1]
    assert attempts(line(1), line(10, "death", pid=7), line(20), line(30, "death", pid=8)) == [None] * 4


@pytest.mark.parametrize(("rank", "local", "again"), [(3, 3, True), (1, 1, True), (5, 1, False)])
def test_another_launcher_of_the_same_host_was_started_anew(rank: int, local: int, again: bool) -> None:
    """It reports ranks of which the first is the same; another host's launcher has others."""
    first = [line(1), line(10, "death", pid=7), line(16, kind="exit", rank=1, local_rank=1)]
    second = [line(20), line(30, "death", pid=8), line(31, kind="exit", rank=rank, local_rank=local)]
    assert attempts(*first, *second) == ([0, 0, 0, 1, 1, 1] if again else [None] * 6)


@pytest.mark.parametrize(
    ("kind", "pause", "again"), [("line", 60.0, 0), ("line", 60.1, 1), ("progress", 60.1, 1), ("notice", 60.1, 0)]
)
def test_a_program_that_ended_and_writes_a_minute_later_was_started_anew(kind: str, pause: float, again: int) -> None:
    """A complaint is of a process that waited for it."""
    raised = line(5, kind="exception", frames=[["train.py", 3, "<module>"]])
    written = [line(n, at=NOON + at, raw_time="x") for n, at in ((1, -9.0), (4, 0.0))]
    assert attempts(*written, raised, line(9, kind=kind, at=NOON + pause, raw_time="x")) == (
        [0, 0, 0, 1] if again else [None] * 4
    )


def test_counts_fall_behind_a_stop() -> None:
    stopped = pattern("stopped", None, role="confirms", tells=("stop",))
    log = [line(5), line(10, "stopped"), line(20, kind="restart", grew=5)]
    assert [e.attempt for e in cuts.numbered(log, library(stopped))] == [0, 0, 1]
    assert attempts(*log) == [None] * 3


def test_the_controller_reports_each_start() -> None:
    assert attempts(line(1, "birth"), line(5), line(10, "birth"), line(15)) == [0, 0, 1, 1]
    assert attempts(line(1, "birth"), line(5)) == [None, None]
    assert attempts(line(1, "birth"), line(10, "birth", rank=0)) == [None, None]


def test_a_platform_reports_another_attempt() -> None:
    assert attempts(line(1), line(10, "again"), line(15)) == [0, 1, 1]
    assert attempts(line(1), line(10, "again", rank=1), line(15)) == [None] * 3


REQUEUED = pattern("requeued", "scheduler", entity="job", tells=("death",))


def requeued(*events: Event) -> list[int | None]:
    return [e.attempt for e in cuts.numbered(events, library(REQUEUED, DEATH))]


def test_a_job_that_is_put_back_into_the_queue_begins_where_its_ranks_introduce_themselves() -> None:
    """Slurm stops step and job in two lines, and ranks go on for the seconds that they are given."""
    stops = [line(10, "requeued"), line(11, "requeued")]
    starts = [line(20, kind="restart", rank=r) for r in (0, 1)]
    assert requeued(line(1), *stops, line(15), *starts, line(30)) == [0, 0, 0, 0, 1, 1, 1]
    assert requeued(line(1), *stops, line(15, kind="progress"), line(30)) == [None] * 5
    torn = line(12, "death")  # torchrun's word on workers that Slurm ended is no end of another attempt
    assert requeued(line(1), *stops, torn, *starts, line(30)) == [0, 0, 0, 0, 1, 1, 1]


def test_a_rank_that_goes_on_counting_was_not_requeued() -> None:
    count = line(40, kind="worked", rank=1, by="count")
    assert requeued(line(1), line(10, "requeued"), line(20, kind="restart", rank=0), count) == [None] * 4


# ── the attempt of a line without one ────────────────────────────────────────────────────────────────────────────────


def in_attempts(e: Event, *known: Event) -> list[int]:
    starts = [event(f"attempt {n}", at=NOON + 100 * n, attempt=n, fields={"pid": 50 + n}) for n in (0, 1)]
    return [n for n in (0, 1) if e in separated([*starts, *known, e])[n]]


def test_a_line_belongs_to_the_attempt_of_its_time() -> None:
    assert in_attempts(event("x", at=NOON + 50)) == [0]
    assert in_attempts(event("x", at=NOON + 150)) == [1]
    assert in_attempts(event("x", at=NOON - 50)) == [0]
    assert in_attempts(event("x", at=NOON + 99, at_sigma=2.0)) == [1]


def test_a_line_at_an_unknown_time_belongs_to_every_attempt() -> None:
    assert in_attempts(event("x")) == [0, 1]
    assert in_attempts(event("x", at=NOON, at_sigma=31.0)) == [0, 1]


def test_a_pid_or_a_copy_precedes_the_time() -> None:
    assert in_attempts(event("x", at=NOON + 50, fields={"pid": 51})) == [1]
    assert in_attempts(event("x", at=NOON + 50, kind="exit", pid=51)) == [1]
    assert in_attempts(event("[rank0]: attempt 1", at=NOON + 50)) == [1]
    twice = event("attempt 1", attempt=0)
    assert in_attempts(event("attempt 1", at=NOON + 50), twice) == [0]
    assert in_attempts(event("attempt 1"), twice) == [0]


def numbered(prefix: str, *ranks: int, at: float = NOON) -> tuple[list[Event], list[Source]]:
    """Per-rank files of one flat folder, named after the job: j100-rank0.log."""
    names = {r: f"logs/{prefix}-rank{r}.log" for r in ranks}
    events = [e for r in ranks for e in steps(r, 1, 2, file=names[r], at=at)]
    return events, [source(names[r], rank=r) for r in ranks]


def test_numbers_before_the_rank_in_file_names_separate_two_jobs_of_a_folder() -> None:
    early, late = numbered("j100", 0, 1), numbered("j101", 0, 1, at=NOON + 9999)
    found = split(stamped([*early[0], *late[0]]), [*early[1], *late[1]])
    assert found == {
        "j100": ["logs/j100-rank0.log", "logs/j100-rank1.log"],
        "j101": ["logs/j101-rank0.log", "logs/j101-rank1.log"],
    }


def test_nodes_that_number_their_files_and_streams_that_overlap_are_one_job() -> None:
    for one, other in (
        (numbered("node0", 0, 1), numbered("node1", 2, 3, at=NOON + 9999)),  # other ranks
        (numbered("out1", 0, 1), numbered("out2", 0, 1)),  # the same ranks at the same time
    ):
        assert list(split(stamped([*one[0], *other[0]]), [*one[1], *other[1]])) == [None]


def test_three_attempts_of_which_two_failed_alike() -> None:
    incident = solved(SAMPLES / "restart-fails-three-times")
    found = [(r["number"], r["ranks"], r["category"], r["ended"]) for r in incident.document["attempts"]]
    assert found == [
        (0, [0], "python-exception", "exit code 1"),
        (1, [], "rendezvous", None),
        (2, [0], "python-exception", "exit code 1"),
    ]
    because = incident.document["verdict"]["because"]
    assert because[0] == "It failed twice in the same way, in attempts 0 and 2."
    where = "torchelastic/job17_ke6swcyd/attempt_1/1/stderr.log:34"
    assert because[1] == f"Attempt 1 failed differently ({where}).", "how is told in its row, once"
    assert incident.document["attempts"][1]["why"].startswith("A gloo peer refused the connection")
    shown = render_terminal(incident)
    assert "  attempts attempt 0, 13:14:15 to 13:14:22: Rank 0 raised RuntimeError" in shown
    last = "| 2 | 13:14:32 | 13:14:41 | The same as attempt 0. (Python exception) | exit code 1 |"
    assert last in render_markdown(incident)


@pytest.mark.parametrize(("after", "attempts"), [(1.0, [None, None]), (1.1, [0, 1])])
def test_a_part_of_a_rotated_log_is_another_run_if_it_begins_later(after: float, attempts: list[int | None]) -> None:
    """A line may be written a second late; a run that somebody started again begins after the end of the other."""
    raised = event(file="train.log.1", kind="exception", at=NOON, raw_time="x", frames=[["train.py", 3, "<module>"]])
    again = event(file="train.log", kind="worked", at=NOON + after, raw_time="x", by="count")
    assert [e.attempt for e in cuts.numbered([raised, again], library())] == attempts
