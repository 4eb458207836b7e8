"""Who is who: pids, local ranks, GPUs and files are ranks by what lines, names and places tell."""

from __future__ import annotations

from typing import Any

import pytest

from claims import event, library, pattern, source
from postmortem.diagnose.identity import Registry, build
from postmortem.diagnose.same import bus_key, same_host, stem
from postmortem.model import Event, Source

COMM = pattern("comm", None, role="context", tells=("communicator",))
EXIT = pattern("exit", None, role="confirms", tells=("exit",))
PROXY = pattern("proxy", None, role="context", tells=("proxy",))


def known(*events: Event, sources: tuple[Source, ...] = ()) -> Registry:
    return build(events, sources, library(COMM, EXIT, PROXY))


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


def test_pid_1_is_every_containers() -> None:
    assert known(who(0, 1)).rank_of_pid(1) is None


def test_a_local_rank_is_a_rank_on_its_host() -> None:
    reg = known(who(0, host="a", fields={"local_rank": 0}), who(1, host="b", fields={"local_rank": 0}),
                who(2, host="b", fields={"local_rank": 1}))  # fmt: skip
    assert reg.rank_of_local(None, "b", 0) == 1
    assert reg.rank_of_local("run", "b", 0) == 1
    assert reg.rank_of_local(None, None, 0) is None
    assert reg.rank_of_local(None, None, 1) == 2
    assert reg.rank_of_local(None, "c", 1) is None


def test_a_bus_id_is_a_rank_on_its_host() -> None:
    reg = known(who(0, host="a", fields={"bus": "0000:48:00.0"}), who(1, host="b", fields={"bus": "48000"}))
    assert reg.rank_of_bus("0000:48:00", "a.cluster") == 0
    assert reg.rank_of_bus("48:00", "b") == 1
    assert reg.rank_of_bus("0000:48:00", None) is None
    assert reg.rank_of_bus("0000:5e:00", "a") is None


@pytest.mark.parametrize("same", ["0000:56:00", "00000000:56:00.0", "56:00", "56000", "056000"])
def test_nccls_bus_id_and_the_kernels_are_one_gpu(same: str) -> None:
    assert bus_key(same) == "5600"
    assert bus_key("0000:57:00") != "5600"


@pytest.mark.parametrize(
    "a, b, same",
    [("node7", "node7", True), ("node7", "node7.cluster.local", True), ("node7", "node71", False),
     ("192.0.2.7", "192.0.2.8", False), ("192.0.2.7", "192.0.2.7", True), (None, "a", False), ("a", None, False)],
)  # fmt: skip
def test_two_names_of_one_host(a: str | None, b: str | None, same: bool) -> None:
    assert same_host(a, b) is same


@pytest.mark.parametrize(
    "path", ["p/proc1.err", "p/proc1.out", "p/proc1.log", "p/proc1.stderr", "p/proc1-stdout.log", "p/proc1"]
)
def test_two_streams_of_one_process_have_one_stem(path: str) -> None:
    assert stem(path) == "p/proc1"


# ── whom an event speaks for ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_lines_prefix_goes_before_its_file_its_local_rank_and_its_pid() -> None:
    reg = Registry(by_source={"f": 1}, by_local={(None, None, 0): 2}, by_pid={7: {None: 3}})
    said = event(file="f", rank=0, pid=7, fields={"local_rank": "0"})
    assert reg.rank_of(said) == 0
    assert reg.rank_of(said._replace(rank=None)) == 1
    other = said._replace(rank=None, where=said.where._replace(source="g"))
    assert reg.rank_of(other) == 2
    assert reg.rank_of(other._replace(fields={})) == 3
    assert reg.rank_of(other._replace(fields={}, pid=None)) is None


def test_the_agents_own_pid_is_no_ranks() -> None:
    reg = Registry(by_pid={7: {None: 3}})
    own = event("W1121 7 torch/distributed/elastic/agent/server/api.py:753] Received 15", pid=7, source_kind="agent")
    assert reg.rank_of(own) is None
    assert reg.rank_of(own._replace(text="a rank's tee")) == 3
    assert reg.rank_of(own._replace(source_kind="console")) == 3


# ── what is learnt ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_name_tells_rank_and_host() -> None:
    reg = known(sources=(source("rank3.log", rank=3, host="a"),))
    assert (reg.by_source, reg.host_of) == ({"rank3.log": 3}, {3: "a"})


def test_what_is_quoted_teaches_nothing() -> None:
    assert known(who(0, 77, fields={"quoted": True})).by_pid == {}


def test_a_rank_that_an_identity_line_names_in_words() -> None:
    said = event("I am rank 5", "x.log", 1, "identity", fields={"said_rank": 5, "pid": 9})
    assert known(said).rank_of_pid(9) == 5


def test_lines_bind_a_pid_but_the_agents_do_not() -> None:
    line = event("x", "a", 1, "line", rank=1, pid=9)
    assert known(line).rank_of_pid(9) == 1
    assert known(line._replace(kind="progress")).rank_of_pid(9) == 1
    assert known(line._replace(source_kind="agent")).rank_of_pid(9) is None
    assert known(line._replace(kind="pattern")).rank_of_pid(9) is None


def test_the_kernels_host_is_not_where_a_rank_lives() -> None:
    assert known(event(rank=1, host="a", speaker="kernel")).host_of == {}


def comm(rank: str, world: str = "4", pid: int = 50, **more: Any) -> Event:
    fields = {"rank": rank, "world": world, "pci": "48000"}
    return event("comm", pattern="comm", pid=pid, host="a", fields=fields, **more)


def test_nccl_tells_ranks_processes_and_gpus() -> None:
    reg = known(comm("3"))
    assert (reg.rank_of_pid(50, "a"), reg.host_of[3], reg.rank_of_bus("0000:48:00", "a")) == (3, "a", 3)


def test_sub_groups_of_nccl_number_their_own_ranks() -> None:
    assert known(comm("3"), comm("0")).rank_of_pid(50, "a") == 3
    assert known(comm("0")._replace(rank=3)).by_bus == {("a", "4800"): 3}
    assert known(comm("x")).by_pid == {}


def test_a_stream_without_a_name_is_the_rank_whose_other_stream_says_so() -> None:
    said = event("x", "p/a.out", 1, "line", rank=2)
    reg = known(said, sources=(source("p/a.out"), source("p/a.err", host="h"), source("p/b.err")))
    assert reg.by_source == {"p/a.out": 2, "p/a.err": 2}
    assert reg.host_of == {2: "h"}


def test_not_where_two_ranks_speak_in_it_or_where_it_is_reported() -> None:
    both = [event("x", "a.out", n, "line", rank=n) for n in (1, 2)]
    assert known(*both, sources=(source("a.err"),)).by_source == {}
    quoted = event("x", "a.out", 1, "line", rank=1, fields={"reported_by": "agent"})
    assert known(quoted, sources=(source("a.err"),)).by_source == {}
    named = event("x", "a.out", 1, "line", rank=1)
    assert known(named, sources=(source("a.err", "agent"), source("a.log", "kernel"))).by_source == {}


def test_a_local_rank_has_its_name_from_the_folder() -> None:
    said = event("x", "run/0/stdout.log", 1, "line", rank=5)
    reg = known(said, sources=(source("run/0/error.json", local_rank=0, host="h"),))
    assert reg.by_source == {"run/0/error.json": 5}
    assert reg.by_local == {(None, "h", 0): 5}


def test_on_one_node_the_local_rank_is_the_rank_as_an_assumption() -> None:
    reg = known(sources=(source("run/1/stderr.log", local_rank=1),))
    assert (reg.by_source, reg.assumed) == ({"run/1/stderr.log": 1}, {"run/1/stderr.log"})


def test_on_two_nodes_it_is_not() -> None:
    logs = (source("a/1/e.log", local_rank=1, host="a"), source("b/1/e.log", local_rank=1, host="b"))
    assert known(sources=logs).by_source == {}
    reg = known(who(3, host="b", fields={"local_rank": 1}), sources=logs)
    assert reg.by_source == {"b/1/e.log": 3}
    assert reg.assumed == set()


def test_nor_where_a_line_contradicts_it() -> None:
    said = who(5, fields={"local_rank": 1})
    assert known(said, sources=(source("0/e.log", local_rank=0),)).by_source == {}


def test_a_launchers_failure_binds_pid_and_local_rank() -> None:
    failed = event("failed", "agent.err", pattern="exit", fields={"pid": "77", "local_rank": "1"})
    reg = known(failed)
    assert reg.rank_of_pid(77) == 1
    assert known(who(5, fields={"local_rank": 1}), failed).rank_of_pid(77) == 5
    assert known(who(5, fields={"local_rank": 3}), failed).rank_of_pid(77) is None


def test_nccls_proxy_thread_is_its_ranks_process() -> None:
    proxy = event("[Proxy Service 3]", pattern="proxy", pid=60, fields={"detail": "3"})
    assert known(proxy).rank_of_pid(60) == 3
    assert known(who(1, 60), proxy).rank_of_pid(60) == 1
    small = event(kind="identity", file="x", fields={"world": 2})
    assert known(small, proxy).rank_of_pid(60) is None


def test_a_ray_workers_file_is_named_after_its_pid() -> None:
    path = "ray/worker-5ac2-01000000-17082.err"
    assert known(who(1, 17082), event("x", path)).by_source == {path: 1}
    assert known(who(1, 1), event("x", path)).by_source == {}


def test_how_large_the_job_is_and_what_it_runs_on_is_what_most_lines_say() -> None:
    def said(**fields: Any) -> Event:
        return event("x", kind="identity", fields=fields)

    reg = known(said(world=8, torch="2.4"), said(world=8), said(world=4), said(nccl="2.20"))
    assert (reg.world, reg.torch, reg.nccl) == (8, "2.4", "2.20")
    assert reg.ranks == tuple(range(8))
    assert known(said(world="4"), said(world="16")).world == 16
    assert known(said(world=0)).world is None
    assert known().ranks == ()


def test_ranks_are_those_that_spoke_where_the_size_is_not_known_or_wrong() -> None:
    assert known(who(5), event(rank=2)).ranks == (2, 5)
    small = event("x", kind="identity", fields={"world": 2})
    assert known(small, who(5)).ranks == (5,)
    assert known(event("x", kind="identity", fields={"world": 99999}), who(5)).ranks == (5,)


def test_separate_processes_that_say_they_are_one_rank() -> None:
    reg = known(*(who(1, file=f, source_kind="console") for f in ("a.out", "a.err", "b.out")))
    assert reg.claims == {1: {"a", "b"}}
    assert known(who(1, file="a", source_kind="agent")).claims == {}
    assert known(who(1, file="a", source_kind="json-lines")).claims == {1: {"a"}}
    local = who(1, file="a", source_kind="console", fields={"local_rank": 1})
    assert known(local).claims == {}


def test_a_pid_is_a_ranks_once_however_often_it_is_said() -> None:
    reg = known(who(1, 9), who(1, 9), who(1, 8))
    assert reg.pids == {1: [9, 8]}
