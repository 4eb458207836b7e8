"""What evidence to get next, and how, for the versions at hand; and what was not read, and the jobs that a loss concerns."""

from __future__ import annotations

from typing import Any

import pytest

from claims import case, claim, event, exits, final_line, pattern, source
from conftest import table
from postmortem.causes import facts
from postmortem.causes.seen import Seen
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.verdict.unread import losses
from postmortem.model import collected as items
from postmortem.model.vocabulary import WINDOW
from postmortem.say.missing import missing, of_unread, recorder_settings

DMESG = source("dmesg.txt", "kernel")


def asked(
    category: str | None, *events: Any, claims: Any = (), root: Claim | None = None, **known: Any
) -> list[dict[str, str]]:
    root = root or (claim(pattern("p", category)) if category else None)
    hosts, named, stuck = known.pop("hosts", ["node-a"]), known.pop("named", ()), known.pop("stuck", None)
    seen = case(*events, **known)
    solution = Solution(seen, "incident", root, tuple(named), (*claims, *([root] if root else [])), ())
    of = Seen(solution, category, stuck, hosts=hosts)
    return missing(of, facts.of(of))


def wanted(category: str | None, *events: Any, **known: Any) -> list[str]:
    return [item["what"].split(" of ")[0] for item in asked(category, *events, **known)]


@pytest.mark.parametrize("category, what", table("missing")["evidence"])
def test_the_evidence_that_would_decide(category: str | None, what: list[str]) -> None:
    assert wanted(category) == what


def test_each_request_has_the_command_of_collect() -> None:
    """With the same command: who has no `postmortem collect` there types it."""
    took = [set(way) for item in items.ALL for way in item.ways]
    for way in (items.PY_SPY, items.KERNEL_JOURNAL, items.KERNEL_DMESG, items.SACCT, items.PREVIOUS):
        assert any(words >= set(way) for words in took), way
    kernel = asked("host-oom")[0]["how"]
    assert items.shown(items.KERNEL_JOURNAL) in kernel and items.shown(items.KERNEL_DMESG) in kernel
    stacks = asked("hang")[1]["how"]
    assert stacks.startswith("postmortem collect ") and items.shown(items.PY_SPY) in stacks


def test_evidence_at_hand_is_not_requested() -> None:
    assert wanted("host-oom", sources=[DMESG]) == []
    assert wanted("hang", event(kind="recorder"), event(kind="stack")) == []


@pytest.mark.parametrize("category, code, what", table("missing")["questions"])
def test_the_questions_that_an_end_leaves_open(category: str, code: int, what: list[str]) -> None:
    root = claim(pattern("p", category), strength="ended")
    assert wanted(category, *exits(r1=code), root=root, named=(1,)) == what


def stack(rank: int | None, *files: str, **more: Any) -> Any:
    frames = tuple((file, 9, "f") for file in files or ("train.py",))
    return event("Thread", kind="stack", rank=rank, frames=frames, **more)


def test_a_stack_that_is_here_is_not_requested() -> None:
    """Of three ranks rank 1 is waited for. The others' stacks are here, and its own would decide."""
    others = [stack(r, collective="all_reduce") for r in (0, 2)]
    others.append(event(kind="line", rank=1))
    asked_for = [i["what"] for i in asked("hang", *others, named=(1,), ranks=(0, 1, 2))]
    assert asked_for == ["flight-recorder dumps of all ranks", "stacks of rank 1 during the hang"]
    assert wanted("hang", *others, stack(1), named=(1,), ranks=(0, 1, 2)) == []
    # a guard dumped one process, and no line names it: it is not all four
    (_, item) = asked("hang", stack(None), ranks=(0, 1, 2, 3))
    assert item["what"] == "stacks of the other ranks during the hang"
    assert wanted("hang", *(stack(None) for _ in range(4)), ranks=(0, 1, 2, 3))[1:] == []


def test_of_a_rank_that_waits_for_its_loader_the_workers_are_open() -> None:
    loading = stack(1, "multiprocessing/connection.py", "torch/utils/data/dataloader.py", "train.py")
    (item,) = asked("hang", loading, named=(1,), ranks=(1,))
    assert item["what"] == "stacks of the DataLoader workers of rank 1" and "--subprocesses" in item["how"]
    assert asked("hang", loading, stack(1, child=True), named=(1,), ranks=(1,)) == []


def test_a_rank_in_another_collective_is_not_searched_for() -> None:
    stuck: Any = {"op": "allreduce", "seq": 4, "group": None, "timeout_s": None, "numel_in": None, "entered": [0],
                  "completed": {}, "elsewhere": {"1": "broadcast"}, "missing": []}  # fmt: skip
    assert wanted("collective-mismatch", named=(1,), stuck=stuck) == []
    assert wanted("hang", named=(1,), stuck=stuck | {"elsewhere": {}, "missing": [1]}) == [
        "flight-recorder dumps",
        "stacks",
    ]


def test_of_a_rank_that_had_finished_its_batches_are_open() -> None:
    assert wanted("collective-mismatch", final_line(1), named=(1,), ranks=(1,)) == ["the number"]


def test_a_rank_that_aborts_after_a_timeout_is_not_the_dead_one() -> None:
    """The watchdog ends its own process with SIGABRT: rank 1 was killed, rank 0 only waited."""
    timed_out = pattern("timed-out", "hang", role="symptom", tells=("wait",))
    waits = event("timed out", rank=0, pattern="timed-out")
    item = asked("peer-lost", waits, *exits(r0=-6, r1=-9), ranks=(0, 1), hosts=[], patterns=[timed_out])[0]
    assert item["what"] == "kernel log of the host of rank 1"


def test_the_kernel_log_of_the_host_in_question() -> None:
    assert asked("host-oom", hosts=["node-a", "node-b"])[0]["what"] == "kernel log of node-a"
    dead = asked("peer-lost", *exits(r1=-9), ranks=(0, 1), hosts=[])
    assert dead[0]["what"] == "kernel log of the host of rank 1"
    assert asked("peer-lost", hosts=[])[0]["what"] == "kernel log of each host of the job"  # none died


def test_the_kernel_log_around_the_moment() -> None:
    root = claim(pattern("p", "external-signal"), event(at=1_795_208_328.0, signal="SIGKILL"))
    for clock, zone in (("naive", ""), ("absolute", " UTC")):
        item = asked("external-signal", event(at=1_795_208_328.0, time=1_795_208_328.0, clock=clock), root=root)[0]
        assert item["what"] == f"kernel log of node-a around 20:58{zone}"
        assert f"--since '2026-11-20 20:53:48{zone}'" in item["how"]


def test_the_log_of_the_address_that_was_lost() -> None:
    line = event("Connection closed by peer [10.22.0.12]:40412", rank=1)
    lost = claim(pattern("closed", "peer-lost", role="symptom"), line)
    item = asked("peer-lost", claims=[lost, lost], root=claim(pattern("p", "peer-lost")))[0]
    assert item["what"] == "logs of the host at 10.22.0.12" and "2 lines report it" in item["would_tell"]
    own = claim(pattern("closed", "peer-lost", role="symptom"), event("Connection closed by peer [127.0.0.1]:40412"))
    assert wanted("peer-lost", claims=[own]) == ["kernel log"]


def test_the_schedulers_account_of_a_job_whose_number_is_known() -> None:
    ended = claim(pattern("cancelled", "scheduler", role="symptom"), event("STEP 17.0 CANCELLED", job_id="17"))
    assert asked(None, claims=[ended])[0]["how"].startswith("sacct -j 17 ")


def test_logs_of_ranks_that_have_none() -> None:
    output = event(kind="line", rank=0)
    assert [i["what"] for i in asked("", output, root=claim(pattern()), ranks=(0, 1, 2))] == ["logs of ranks 1 and 2"]
    assert asked("", root=claim(pattern()), ranks=(0, 1)) == []
    assert asked("", output, root=claim(pattern()), ranks=(0,)) == []


@pytest.mark.parametrize(
    "version, new", [("2.8.0", False), ("2.9.0", True), ("2.10", True), ("1.13", False), (None, True)]
)
def test_the_recorders_variables_were_renamed_in_torch_2_9(version: str | None, new: bool) -> None:
    assert recorder_settings(version).startswith("TORCH_FR_" if new else "TORCH_NCCL_")


def row(path: str = "a.log", reason: str = "gz ends early.", size: int = 0, **more: Any) -> dict[str, Any]:
    return {"path": path, "reason": reason, "bytes": size, "lost": True, **more}


def unread(*rows: Any, own: tuple[str, ...] = (), others: tuple[str, ...] = ()) -> Any:
    ledger: Any = {"skipped": list(rows), "bytes": 2000}
    return losses(ledger, own, others)


def test_a_loss_concerns_a_job_unless_its_file_is_of_another_job() -> None:
    assert unread() is None and unread(row(lost=False)) is None
    assert unread(row("x.tar!/a"), others=("x.tar!/b",)) is None
    assert unread(row("x.tar!/a"), own=("x.tar!/c",), others=("x.tar!/b",)).rows == (row("x.tar!/a"),)
    assert losses({}, (), ()) is None  # type: ignore[arg-type]


def test_the_extent_is_in_bytes_or_in_files() -> None:
    lead = "no failure in what was read, but "
    for rows, words in (
        ([row(size=1200), row("b", size=34)], f"{lead}1,234 bytes of 2,000 were not read"),
        ([row(), row()], f"{lead}a.log could not be read to the end"),
        ([row(), row("b")], f"{lead}2 files could not be read to the end"),
        (
            [row("the diagnosis", "an internal error in x.py:3")],
            f"{lead}an internal error lost a part of the diagnosis",
        ),
        ([row(), row(WINDOW, "no event since noon")], "no event since noon"),
    ):
        assert str(unread(*rows)) == words


def test_the_first_five_losses_are_listed_and_requested() -> None:
    found = unread(*(row(f"{n}.log") for n in range(7)))
    assert found.sentences() == [*(f"{n}.log: gz ends early." for n in range(5)), "2 more losses are in the ledger."]
    assert [item["what"] for item in of_unread(found)] == [f"{n}.log: gz ends early" for n in range(5)]
    assert unread(row()).sentences() == ["a.log: gz ends early."] and len(unread(*[row()] * 5).sentences()) == 5


def test_a_request_has_the_way_to_get_the_file() -> None:
    for reason, what, how in table("unread")["requests"]:
        (item,) = of_unread(unread(row("a b.log", reason)))
        assert (item["what"], item["how"]) == (what, how)
        assert item["would_tell"] == "whether the unread part contains a failure"
    assert of_unread(unread(row(reason="an internal error in x.py:3"))) == []
    (window,) = of_unread(unread(row(WINDOW, "no event since noon")))
    assert window["what"] == "events in the time window" and "--since T --until T" in window["how"]
