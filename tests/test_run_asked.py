"""What ranks answered when `postmortem run` asked where they stood, read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_run_journal import HEAD, STARTS, lines

from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.live.run.quiet import Quiet

ASKED = "2026-11-20T21:20:31.000100Z node-a rank 1 (pid 4711) dumps its stacks: rank 0 (pid 4710) {how}\n"
FRAMES = """\
Thread 0x00007f84f0000640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f84f4890b80 (most recent call first):
  File "/job/train.py", line 39 in load_batch
  File "/job/train.py", line 60 in main
"""
WAITED = """\
{n} INFO [rank{rank}] train: step 6
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 61, in main
[rank{rank}]:     loss.backward()
[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete
"""
ENDS = [("end", f"rank {r} (pid {4710 + r}) exited with code 1", {"pid": 4710 + r}) for r in (0, 2)]
BY_LAUNCHER = ("end", "rank 1 (pid 4711) killed by SIGTERM", {"pid": 4711, "signal": "SIGTERM"})


def verdict(folder: Path, how: str, *records: Any, waited: tuple[int, ...] = (0, 2)) -> dict[str, Any]:
    """Of a run in which rank 0 ended and rank 1, which said nothing, was asked."""
    (folder / "run.jsonl").write_text(lines(HEAD, *STARTS, *records))
    told = "".join(WAITED.format(n=f"2026-11-20 21:20:2{rank},000", rank=rank) for rank in waited)
    (folder / "stderr.log").write_text(told + "2026-11-20 21:20:21,500 INFO [rank1] train: step 6\n")
    (folder / "rank1.pid4711.stacks.txt").write_text(ASKED.format(how=how) + FRAMES)
    return dict(analyze([str(folder)]).document["verdict"])


def test_a_rank_seen_elsewhere_when_the_others_timed_out_is_established(tmp_path: Path) -> None:
    found = verdict(tmp_path, "exited with code 1", *ENDS, BY_LAUNCHER)
    assert (found["category"], found["confidence"], found["culprit"]["ranks"]) == ("hang", "established", [1])
    assert "in load_batch (train.py:39)" in found["headline"]


def test_where_one_of_the_others_is_not_known_to_have_waited_something_is_left_to_deduce(
    tmp_path: Path,
) -> None:
    found = verdict(tmp_path, "exited with code 1", ENDS[0], BY_LAUNCHER, waited=(0,))
    assert found["confidence"] != "established"


def test_who_loads_while_another_is_killed_does_not_hang(tmp_path: Path) -> None:
    killed = ("end", "rank 0 (pid 4710) killed by SIGABRT", {"pid": 4710, "signal": "SIGABRT"})
    found = verdict(tmp_path, "killed by SIGABRT", killed, BY_LAUNCHER, waited=())
    assert found["category"] == "native-crash" and found["culprit"]["ranks"] == [0]


@pytest.mark.parametrize("when", ["rank 0 (pid 4710) exited with code 1", "SIGTERM came"])
def test_a_stopped_rank_is_what_the_others_waited_for(tmp_path: Path, when: str) -> None:
    stopped = ("stopped", f"rank 1 (pid 4711) is stopped (state T): {when}", {})
    verdict(tmp_path, "exited with code 1", stopped, *ENDS, BY_LAUNCHER)
    (tmp_path / "rank1.pid4711.stacks.txt").unlink()
    found = dict(analyze([str(tmp_path)]).document["verdict"])
    assert (found["category"], found["confidence"], found["culprit"]["ranks"]) == ("hang", "established", [1])
    assert "stopped by a signal" in found["headline"]


def test_a_dump_that_was_asked_for_knows_whose_it_is_and_when() -> None:
    (event,) = [e for e in read_text(ASKED.format(how="exited with code 1") + FRAMES) if e.kind == "stack"][:1]
    assert (event.rank, event.pid, event.fields["after"]) == (1, 4711, 0)
    assert event.raw_time.startswith("2026-11-20T21:20:31.0001") and event.fields["code"] == "train.py:39"


STILL = "SIGTERM came; the job had printed nothing for 312 s, and before that never for more than 4 s"
IN_A_COLLECTIVE = """\
Current thread 0x00007f84f4890b80 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "/job/train.py", line 61 in main
"""


def stopped_from_outside(folder: Path, why: str) -> dict[str, Any]:
    """A job whose three ranks were asked when somebody ended it, and died of that."""
    came = ("signal", "SIGTERM came to the wrapper, passed on to 4700", {"signal": "SIGTERM"})
    ends = [(e, m.replace("exited with code 1", "killed by SIGTERM"), f) for e, m, f in (*ENDS, BY_LAUNCHER)]
    (folder / "run.jsonl").write_text(lines(HEAD, *STARTS, came, *ends))
    steps = [
        f"2026-11-20 21:1{n // 60}:{n % 60:02d},000 INFO [rank{n % 3}] train: step {n // 3} loss 2.1" for n in range(60)
    ]
    told = "W1120 21:20:01.061000 4700 torch/distributed/elastic/agent/server/api.py:740] Received 15 death signal, shutting down workers"
    (folder / "stderr.log").write_text("\n".join([*steps, told, ""]))
    for rank in range(3):
        head = ASKED.replace("rank 1 (pid 4711)", f"rank {rank} (pid {4710 + rank})").replace(
            "rank 0 (pid 4710) {how}", why
        )
        (folder / f"rank{rank}.pid{4710 + rank}.stacks.txt").write_text(
            head + (FRAMES if rank == 1 else IN_A_COLLECTIVE)
        )
    return dict(analyze([str(folder)]).document["verdict"])


def test_what_stood_still_when_somebody_ended_the_job_is_named(tmp_path: Path) -> None:
    found = stopped_from_outside(tmp_path, STILL)
    assert (found["category"], found["culprit"]["ranks"]) == ("hang", [1])
    assert "in load_batch (train.py:39)" in found["headline"]


def test_where_ranks_of_a_job_that_got_on_stood_when_it_was_stopped_accuses_nobody(tmp_path: Path) -> None:
    """In any moment one rank is at its batch, and the others wait for it."""
    found = stopped_from_outside(tmp_path, "SIGTERM came")
    assert found["category"] == "external-signal" and not found["culprit"]["ranks"]


@pytest.mark.parametrize(
    ("comes", "asked", "still"),
    [
        ([34, 40, 44, 48, 52, 56], 200, True),
        ([34, 40, 44, 48, 52, 56], 100, False),  # 44 s: an evaluation
        ([34, 40, 44, 48, 52, 100], 300, False),  # it has been silent like that before
        ([0, 40, 44], 900, False),  # nobody knows its rhythm: it may print into a file of its own
        ([], 900, False),
    ],
)
def test_quiet_is_compared_with_the_jobs_own_rhythm(
    tmp_path: Path, comes: list[float], asked: float, still: bool
) -> None:
    quiet = Quiet(tmp_path, -30)
    for number, now in enumerate(comes, 1):
        (tmp_path / "stdout.log").write_text("x" * number)
        quiet.look(now)
        quiet.look(now + 0.5)
    assert bool(quiet.report(asked)) is still


@pytest.mark.parametrize("why", ["SIGTERM came to the wrapper", "rank x (pid 1) exited", "", "rank 0 fell"])
def test_who_was_asked_for_another_reason_names_no_rank(why: str) -> None:
    text = ASKED.replace("rank 0 (pid 4710) {how}", why) + FRAMES
    assert all("after" not in e.fields for e in read_text(text) if e.kind == "stack")


def test_who_raised_in_a_step_had_not_done_it(tmp_path: Path) -> None:
    """Rank 1 leaves without a word in step 6, the others lose it in the same step: nobody was behind."""
    gone = ("end", "rank 1 (pid 4711) exited with code 3", {"pid": 4711})
    (tmp_path / "run.jsonl").write_text(lines(HEAD, *STARTS, gone, *ENDS))
    steps = [f"2026-11-20 21:20:0{s},{r}00 INFO [rank{r}] train: step {s} loss 2.1" for s in range(5) for r in range(3)]
    (tmp_path / "stderr.log").write_text("\n".join([*steps, ""]))
    lost = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5163"
    for rank in (0, 2):
        trace = f'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    loss.backward()\n{lost}\n'
        record = {"time": "2026-11-20T21:20:06.000000Z", "host": "node-a", "event": "exception", "rank": rank}
        record |= {
            "pid": 4710 + rank,
            "in_step": 6,
            "message": f"rank {rank} raised RuntimeError",
            "traceback": trace,
        }
        (tmp_path / f"rank{rank}.pid{4710 + rank}.exceptions.jsonl").write_text(json.dumps(record) + "\n")
    found = analyze([str(tmp_path)]).document["verdict"]
    assert found["pattern"] == "rank-exit-without-reason" and found["culprit"]["ranks"] == [1]
