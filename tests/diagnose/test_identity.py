"""Who is who: pids, local ranks, GPUs and files are ranks by what lines, names and places tell,
and the rank of a line that names none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from claims import case, event, exits, final_line, library, pattern, source, steps
from conftest import table
from postmortem.diagnose.same import bus_key
from postmortem.diagnose.who import elimination, numbering
from postmortem.diagnose.who.evidence import Evidence, Kind, Registry, Strength, Subject
from postmortem.diagnose.who.ways import build
from postmortem.model import Event, Source

COMM = pattern("comm", None, role="context", tells=("communicator",))
EXIT = pattern("exit", None, role="confirms", tells=("exit",))
PROXY = pattern("proxy", None, role="context", tells=("proxy",))


def known(*events: Event, sources: tuple[Source, ...] = ()) -> Registry:
    return build(events, sources, library(COMM, EXIT, PROXY))


def files(reg: Registry) -> dict[str, int]:
    return {name: e.rank for name, e in reg.files.items()}


def local_ranks(reg: Registry) -> dict[tuple[str | None, int], int]:
    """Host and local rank -> rank."""
    return {(e.subject.host, e.subject.name): e.rank for e in reg.all("local")}


def registry(*rows: tuple[Kind, Any, int, Strength]) -> Registry:
    made = Registry()
    for kind, name, rank, strength in rows:
        made.bind(Evidence(Subject(kind, name), rank, strength))
    return made


def who(rank: int, pid: int | None = None, **more: Any) -> Event:
    fields = more.pop("fields", {}) | ({} if pid is None else {"pid": pid})
    return event("rank", more.pop("file", f"rank{rank}.log"), 1, "identity", rank=rank, fields=fields, **more)


# ── lookups ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pid_is_a_rank_on_its_host_and_elsewhere_if_it_is_not_ambiguous() -> None:
    reg = known(who(0, 77, host="a"), who(1, 77, host="b"), who(2, 78, host="a"))
    assert [reg.rank_of_pid(77, host) for host in ("a", "b", "c", None)] == [0, 1, None, None]
    assert reg.rank_of_pid(78) == 2
    assert reg.rank_of_pid(78, "b") is None
    assert reg.rank_of_pid(None) is None
    assert known(who(2, 78)).rank_of_pid(78, "b") == 2


def test_a_local_rank_is_a_rank_on_its_host() -> None:
    reg = known(who(0, host="a", fields={"local_rank": 0}), who(1, host="b", fields={"local_rank": 0}),
                who(2, host="b", fields={"local_rank": 1}))  # fmt: skip
    assert reg.rank_with("local", 0, "b", None) == 1
    assert reg.rank_with("local", 0, "b", "run") == 1
    assert reg.rank_with("local", 0, None, None) is None
    assert reg.rank_with("local", 1, None, None) == 2
    assert reg.rank_with("local", 1, "c", None) is None


def test_a_bus_id_is_a_rank_on_its_host() -> None:
    reg = known(who(0, host="a", fields={"bus": "0000:48:00.0"}), who(1, host="b", fields={"bus": "48000"}))
    assert reg.rank_with("gpu", bus_key("0000:48:00"), "a.cluster") == 0
    assert reg.rank_with("gpu", bus_key("48:00"), "b") == 1
    assert reg.rank_with("gpu", bus_key("0000:48:00"), None) is None
    assert reg.rank_with("gpu", bus_key("0000:5e:00"), "a") is None


@pytest.mark.parametrize("same", ["0000:56:00", "00000000:56:00.0", "56:00", "56000", "056000"])
def test_nccls_bus_id_and_the_kernels_are_one_gpu(same: str) -> None:
    assert bus_key(same) == "5600"
    assert bus_key("0000:57:00") != "5600"


# ── whom an event speaks for ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_lines_prefix_goes_before_its_file_its_local_rank_and_its_pid() -> None:
    joined = Strength.JOINED
    reg = registry(("file", "f", 1, Strength.STATED), ("local", 0, 2, joined), ("pid", 7, 3, joined))
    said = event(file="f", rank=0, pid=7, fields={"local_rank": 0})
    assert reg.rank_of(said) == 0
    assert reg.rank_of(said._replace(rank=None)) == 1
    other = said._replace(rank=None, where=said.where._replace(source="g"))
    assert reg.rank_of(other) == 2
    assert reg.rank_of(other._replace(fields={})) == 3
    assert reg.rank_of(other._replace(fields={}, pid=None)) is None


def test_how_well_a_rank_is_known_decides() -> None:
    stated, joined, numbered, listed = Strength.STATED, Strength.JOINED, Strength.NUMBERED, Strength.LISTED
    reg = registry(
        ("file", "s", 1, stated), ("file", "w", 1, numbered), ("local", 0, 2, joined), ("pid", 7, 3, joined),
        ("writer", "pod-2", 2, numbered), ("line", ("x", 5), 4, listed),
    )  # fmt: skip
    agent = event("torch/distributed/run.py:874] failed", "x", 9, pid=7, source_kind="agent")
    for e, rank, strength in (
        (event(file="s", pid=7), 1, "STATED"),
        (event(file="w"), 1, "NUMBERED"),
        (event(file="w", pid=7), 3, "JOINED"),
        (event(file="w", local_rank=0), 1, "NUMBERED"),
        (event(file="x", local_rank=0), 2, "JOINED"),
        (event(file="x", line=5, writer="pod-2"), 2, "NUMBERED"),
        (event(file="x", line=5), 4, "LISTED"),
        (agent, None, "LISTED"),
        (agent._replace(text="a rank's own line"), 3, "JOINED"),
        (agent._replace(source_kind="console"), 3, "JOINED"),
    ):
        assert reg.identify(e) == (rank, Strength[strength]), e


# ── what is learnt ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rank_that_an_identity_line_names_in_words() -> None:
    said = event("I am rank 5", "x.log", 1, "identity", fields={"stated_rank": 5, "pid": 9})
    assert known(said).rank_of_pid(9) == 5


def comm(rank: int, world: int = 4, pid: int = 50, **more: Any) -> Event:
    fields = {"rank": rank, "world": world, "pci": "48000"}
    return event("comm", pattern="comm", pid=pid, host="a", fields=fields, **more)


def test_nccl_tells_ranks_processes_and_gpus() -> None:
    reg = known(comm(3))
    assert (reg.rank_of_pid(50, "a"), reg.host_of[3], reg.rank_with("gpu", bus_key("0000:48:00"), "a")) == (3, "a", 3)


def test_sub_groups_of_nccl_number_their_own_ranks() -> None:
    assert known(comm(3), comm(0)).rank_of_pid(50, "a") == 3
    assert known(comm(0)._replace(rank=3)).rank_with("gpu", bus_key("48000"), "a") == 3


def test_a_stream_without_a_name_is_the_rank_whose_other_stream_says_so() -> None:
    said = event("x", "p/a.out", 1, "line", rank=2)
    reg = known(said, sources=(source("p/a.out"), source("p/a.err", host="h"), source("p/b.err")))
    assert files(reg) == {"p/a.out": 2, "p/a.err": 2}
    assert reg.host_of == {2: "h"}


def test_not_where_two_ranks_speak_in_it_or_where_it_is_reported() -> None:
    both = [event("x", "a.out", n, "line", rank=n) for n in (1, 2)]
    assert files(known(*both, sources=(source("a.err"),))) == {}
    quoted = event("x", "a.out", 1, "line", rank=1, fields={"reported_by": "agent"})
    assert files(known(quoted, sources=(source("a.err"),))) == {}
    named = event("x", "a.out", 1, "line", rank=1)
    assert files(known(named, sources=(source("a.err", "agent"), source("a.log", "kernel")))) == {}


def test_a_local_rank_has_its_name_from_the_folder() -> None:
    said = event("x", "run/0/stdout.log", 1, "line", rank=5)
    reg = known(said, sources=(source("run/0/error.json", local_rank=0, host="h"),))
    assert files(reg) == {"run/0/error.json": 5}
    assert local_ranks(reg) == {("h", 0): 5}


def test_on_one_node_the_local_rank_is_the_rank_as_an_assumption() -> None:
    reg = known(sources=(source("run/1/stderr.log", local_rank=1),))
    assert [(e.subject.name, e.rank, e.assumed) for e in reg.files.values()] == [("run/1/stderr.log", 1, True)]


def test_nccls_proxy_thread_is_its_ranks_process() -> None:
    proxy = event("[Proxy Service 3]", pattern="proxy", pid=60, fields={"detail": "3"})
    assert known(proxy).rank_of_pid(60) == 3
    assert known(who(1, 60), proxy).rank_of_pid(60) == 1
    small = event(kind="identity", file="x", fields={"world": 2})
    assert known(small, proxy).rank_of_pid(60) is None


def test_how_large_the_job_is_and_what_it_runs_on_is_what_most_lines_say() -> None:
    def said(**fields: Any) -> Event:
        return event("x", kind="identity", fields=fields)

    reg = known(said(world=8, torch="2.4"), said(world=8), said(world=4), said(nccl="2.20"))
    assert (reg.world, reg.torch, reg.nccl) == (8, "2.4", "2.20")
    assert reg.ranks == tuple(range(8))
    assert known(*(said(world=n)._replace(kind="pattern") for n in (4, 16))).world == 16
    assert known(said(world=0)).world is None
    assert known().ranks == ()


def test_ranks_are_those_that_spoke_where_the_size_is_not_known_or_wrong() -> None:
    assert known(who(5), event(rank=2)).ranks == (2, 5)
    small = event("x", kind="identity", fields={"world": 2})
    assert known(small, who(5)).ranks == (5,)
    assert known(event("x", kind="identity", fields={"world": 99999}), who(5)).ranks == (5,)


@pytest.mark.parametrize(("kind", "source_kind", "bound"), table("identity")["pids"])
def test_pids_are_read_from_lines_of_some_kinds(kind: str, source_kind: str, bound: bool) -> None:
    line = event(kind=kind, source_kind=source_kind, rank=1, pid=77, host="a")
    reg = known(line)
    assert (reg.rank_of_pid(77) == 1) is bound and reg.host_of == {1: "a"}
    assert known(line._replace(fields={"quoted": True})).host_of == {}
    assert known(line._replace(speaker="kernel")).host_of == {}
    assert known(line._replace(pid=1)).pids == {}


def member(n: int, pid: int, of: int = 2) -> Event:
    return event(kind="pid", file="job.log", line=n + 1, fields={"member": n, "pid": pid, "of": of})


def test_members_that_print_their_number_are_ranks_where_there_is_one_for_each() -> None:
    size = event(kind="identity", fields={"world": 4})
    for events, found in (
        ([member(0, 50), member(1, 51)], {0: [50], 1: [51]}),
        ([member(0, 50), member(1, 50)], {}),  # one process
        ([member(0, 50), member(1, 51, of=3)], {}),
        ([member(1, 50), member(2, 51)], {}),
        ([member(0, 50), member(1, 51), member(0, 52), member(1, 53)], {}),  # of loaders of two ranks
        ([member(0, 50), member(1, 51), size], {}),
    ):
        assert known(*events).pids == found


@pytest.mark.parametrize("names, ranks", [
    (("train-master-0", "train-worker-0", "train-worker-1"), [0, 1, 2]),
    (("train-master-1", "train-worker-0", "train-worker-1"), []),  # no master of one PyTorchJob
    (("train-master-0", "workers/train-worker-0", "workers/train-worker-1"), [0, 1, 2]),
    (("train-worker-0", "train-worker-1"), []),  # pods, which may have several ranks each
    (("train-trainer-0", "train-trainer-1"), []),
    (("worker 0", "worker 1"), [0, 1]),  # processes of one log
])  # fmt: skip
def test_workers_are_counted_behind_the_master_of_a_pytorchjob(names: tuple[str, ...], ranks: list[int]) -> None:
    found = numbering.of_names({name: Counter() for name in names}, None)
    assert [found[name] for name in names if name in found] == ranks


def test_writers_are_ranks_where_lines_under_both_names_are_as_many() -> None:
    votes = {name: Counter[int]() for name in ("pod-0", "pod-1")}
    assert numbering.of_names(votes, None, {0, 1}) == {"pod-0": 0, "pod-1": 1}
    assert numbering.of_names(votes, None, {0}) == {}
    assert numbering.of_names(votes, 2) == {"pod-0": 0, "pod-1": 1}


def test_local_ranks_of_a_prefix_are_ranks_where_there_are_as_many() -> None:
    def local(n: int, host: str = "h") -> Event:
        return event(kind="line", line=n + 1, host=host, fields={"local_rank": n})

    def size(world: int) -> Event:
        return event(kind="identity", fields={"world": world})

    assert local_ranks(known(local(0), local(1), size(2))) == {("h", 0): 0, ("h", 1): 1}
    for events in ([local(0), local(1), size(3)], [local(0), local(2), size(2)], [local(0), local(1, "g"), size(2)]):
        assert local_ranks(known(*events)) == {}


def test_an_exit_report_a_file_of_ray_and_a_number_beyond_the_world() -> None:
    end = event(pattern="exit", fields={"local_rank": 4, "pid": 99})
    assert known(end).rank_of_pid(99) == 4
    assert known(end, who(0, fields={"local_rank": 0})).rank_of_pid(99) is None
    ray = event(file="worker-0a1b-01000000-77.err", kind="line")
    assert files(known(who(3, 77), ray)) == {ray.where.source: 3}
    size = event(kind="identity", fields={"world": 2})
    assert files(known(size, sources=(source("rank5.log", rank=5), source("rank1.log", rank=1)))) == {"rank1.log": 1}


def test_a_console_with_lines_of_others_is_not_of_the_one_rank_that_it_names() -> None:
    named, other = event("w", "job.log", 1, "line", rank=0), event("x", "job.log", 2, "line")
    assert files(known(named, other, sources=(source("job.log"),))) == {}
    said = event("I am rank 0", "job.log", 3, "identity", rank=0, fields={"stated_rank": 0})
    assert files(known(named, other, said, sources=(source("job.log"),))) == {"job.log": 0}
    one = event(kind="identity", file="x", fields={"world": 1})
    assert files(known(named, other, one, sources=(source("job.log"),))) == {"job.log": 0}


@pytest.mark.parametrize(("kind", "source_kind", "fields", "claims"), table("identity")["claims"])
def test_lines_of_a_rank_claim_it_for_their_process(kind: str, source_kind: str, fields: Any, claims: bool) -> None:
    found = known(event("x", "a.log", 1, kind, rank=1, source_kind=source_kind, fields=fields)).claims
    assert found == ({1: {"a"}} if claims else {})


def test_a_process_has_its_steps_its_end_and_how_it_is_known() -> None:
    seen = case(
        *steps(0, 3, 7), final_line(0), *steps(1, 3), *exits(r1=-9), ranks=(0, 1), pids={1: 101}, hosts={1: "a"}
    )
    first, second = seen.processes
    assert (first.first_step, first.last_step, bool(first.finished), first.end) == (3, 7, True, None)
    assert second.end is not None and (second.end.kind, second.pid, second.host) == ("kill", 101, "a")
    assert second.known["rank"].event.where.source == "rank1.log"


def test_a_request_to_stop_is_that_of_its_pid_else_that_of_the_job() -> None:
    asks = event(pattern="launcher-sending-sigterm", pid=9, speaker="launcher", fields={"pid": 101})
    cancel = event(pattern="slurm-cancelled", line=2, speaker="scheduler")
    seen = case(asks, cancel, ranks=(0, 1), pids={1: 101})
    assert [(p.role, p.stop.by if p.stop else None) for p in seen.processes] == [
        ("rank", "scheduler"), ("rank", "launcher"), ("launcher", None),
    ]  # fmt: skip


def test_a_worker_of_a_data_loader_is_a_child_of_the_rank_that_reports_it() -> None:
    lost = event(
        "DataLoader worker (pid 4377) is killed by signal: Killed.", pattern="dataloader-worker-killed", rank=2
    )
    child = case(lost, ranks=(2,)).processes[-1]
    assert (child.role, child.pid, child.parent) == ("dataloader-worker", 4377, 2)


LOST = pattern("lost", "peer-lost", role="symptom")
Votes = dict[str, Counter[int]]


def of_files(*names: str, votes: dict[str, int] | None = None, world: int | None = None, kind: str = "console") -> Any:
    said: Votes = {name: Counter({rank: 1}) for name, rank in (votes or {}).items()}
    found = numbering.numbered([source(n, kind) for n in names], {n: n for n in names}, said, world)
    return [found.get(n) for n in names]


# ── numbers in names ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_numbers_that_disagree_name_no_rank() -> None:
    assert of_files("rank0.p1", "rank1.p0") == [None, None]
    assert of_files("rank0.p0", "rank1.p1") == [0, 1]
    assert of_files("node0.rank0", "node0.rank1") == [0, 1]


def test_numbers_of_ranks_are_complete_and_below_the_size_of_the_job() -> None:
    assert of_files("rank0", "rank00") == [None, None]
    assert of_files("rank0", "rank1", "rank2", world=2) == [None, None, None]
    assert of_files("epoch0", "epoch1", world=2) == [None, None]
    assert of_files("x1", "x2", votes={"x1": 1, "x2": 2}) == [1, 2]  # two lines show it, one may be chance
    assert of_files("x1", "x2", votes={"x1": 1}) == [None, None]


def test_a_rank_that_a_worker_states_is_a_vote_for_its_file() -> None:
    up = event("worker 1 of 2 up", "w1", kind="line", fields={"stated_worker": 1})
    assert numbering.votes_of([up, up._replace(fields={"stated_worker": 1, "quoted": True})], {"w1": "w1"})["w1"] == {
        1: 1
    }


# ── tracebacks without a name ────────────────────────────────────────────────────────────────────────────────────────


def raised(line: int, text: str = "ValueError: odd", rank: int | None = None, **more: Any) -> Event:
    return event(text, "console", line, "exception", rank=rank, **more)


def ends(**codes: int) -> list[Event]:
    return [event(kind="exit", rank=int(k[1:]), exitcode=c, file="agent") for k, c in codes.items()]


def whose(*events: Event) -> dict[int | None, int]:
    found = elimination.known(events, {}, library(LOST))
    return {e.subject.name[1]: e.rank for e in found.all("line")}


def test_the_only_rank_that_failed_by_itself_owns_the_line_of_no_other() -> None:
    assert whose(raised(5), *ends(r0=-15, r1=1)) == {5: 1}
    assert whose(raised(5)) == {}
    assert whose(raised(5), *ends(r0=1, r1=1)) == {}
    assert whose(raised(5), raised(9), *ends(r0=-15, r1=1)) == {5: 1, 9: 1}


def test_an_error_on_a_host_where_no_rank_ran_is_of_none() -> None:
    here = [e._replace(host="node-a") for e in ends(r0=-15, r1=1)]
    assert whose(raised(5, host="node-a"), *here) == {5: 1}
    assert whose(raised(5, host="node-b"), *here) == {}


def test_where_as_many_failed_as_print_the_same_each_has_one() -> None:
    assert whose(raised(5), raised(9), *ends(r0=1, r1=1)) == {5: 0, 9: 1}
    assert whose(raised(5), raised(9, "KeyError: x"), *ends(r0=1, r1=1)) == {}


def test_a_rank_that_its_own_line_names_is_another() -> None:
    assert whose(raised(5), raised(7, "KeyError: x", rank=0), *ends(r0=1, r1=1)) == {5: 1}


def lost(rank: int, line: int) -> list[Event]:
    said = event("reset", "console", line, pattern="lost", rank=rank)
    return [said, raised(line, "reset", rank=rank)]


def test_where_all_others_complain_of_a_peer_the_one_that_does_not_is_the_peer() -> None:
    assert whose(raised(5), *lost(0, 7), *ends(r0=-6, r1=-6)) == {5: 1}
    assert whose(raised(5), *ends(r1=-6)) == {}
    assert whose(raised(5), *ends(r0=-6, r1=-6)) == {}
    spoke = raised(3, "KeyError: x", rank=1)
    assert whose(raised(5), spoke, *lost(0, 7), *ends(r0=-6, r1=-6)) == {}


def test_a_complaint_of_a_peer_without_a_name_is_no_orphan() -> None:
    nameless = [event("reset", "console", 7, pattern="lost"), raised(7, "reset")]
    assert whose(*nameless, *ends(r0=-15, r1=1)) == {}


def test_what_a_launcher_quotes_or_wraps_was_not_raised_here() -> None:
    code = ends(r0=-15, r1=1)
    assert whose(raised(5, reported_by="agent"), *code) == {}
    assert whose(raised(5, wrapper=True), *code) == {}
    assert whose(raised(5, "  ValueError: odd", source_kind="agent"), *code) == {}
    assert whose(raised(5, "ValueError: odd", source_kind="agent"), *code) == {5: 1}


def test_several_attempts_have_several_lists() -> None:
    two = [e._replace(attempt=n) for n, e in enumerate(ends(r0=-15, r1=1))]
    assert whose(raised(5), *two) == {}


LONG = "the tokenizer could not decode byte 17"


def test_a_later_line_names_the_rank_of_earlier_ones() -> None:
    orphan = raised(5, f"ValueError: {LONG}", message=LONG)
    echo = event(f"[rank3] watchdog: {LONG}", "console", 9, "line", rank=3)
    assert whose(orphan, echo) == {5: 3}
    assert whose(orphan, echo, echo._replace(rank=2)) == {}
    assert whose(orphan, echo._replace(rank=None)) == {}
    short = raised(5, "ValueError: odd", message="odd")
    assert whose(short, event("[rank3] odd", "console", 9, "line", rank=3)) == {}
    other = raised(7)
    assert whose(orphan, other, echo, *ends(r3=1, r1=1)) == {5: 3, 7: 1}
