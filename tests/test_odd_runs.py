"""Odd failures of real jobs, each a run of ours that failed on purpose; the logs are excerpts of what was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postmortem.analyze import analyze

GLOO = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/home/dora/fold/fold.py", line 11, in <module>\n'
    "[rank{rank}]:     l = m(torch.randn(8, 16)).square().mean(); l.backward(); opt.step()\n"
    '[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward\n'
    "[rank{rank}]:     torch.autograd.backward(\n"
    "[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
    "[127.0.0.1]:18076: Connection reset by peer. This is typically caused by a remote worker hanging.\n"
)


def verdict(folder: Path, **logs: str) -> dict[str, Any]:
    """What is said of logs, by name; `__` in a name is its dot."""
    for name, text in logs.items():
        (folder / name.replace("__", ".")).write_text(text)
    found: dict[str, Any] = analyze([str(folder)]).document["verdict"]
    return found


def ranks_of(said: dict[str, Any]) -> list[int]:
    found: list[int] = said["culprit"]["ranks"]
    return found


def test_spawn_names_the_limit_that_killed_its_child(tmp_path: Path) -> None:
    """`ulimit -t` of one worker: torch.multiprocessing.spawn has the signal's name, and the index is the rank's."""
    said = verdict(
        tmp_path,
        ppo__stderr=(
            "W1123 14:05:33.859000 16154 torch/multiprocessing/spawn.py:165] Terminating process 16166 via signal"
            " SIGTERM\n"
            'Traceback (most recent call last):\n  File "/home/noor/rl/ppo.py", line 14, in <module>\n'
            '    mp.start_processes(run, (2,), 2, start_method="spawn")\n'
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGXCPU\n"
        ),
        ppo__stdout="actor0 update=60 fps=8.0\nactor1 update=60 fps=8.0\n",
    )
    assert (said["category"], ranks_of(said)) == ("resource-limit", [1])


BASH = (
    "Mon Nov 23 14:10:19 2026: worker {c} (pid 19202) of 3\n"
    "Mon Nov 23 14:10:19 2026: worker {a} (pid 19200) of 3\n"
    "Mon Nov 23 14:10:19 2026: worker {b} (pid 19201) of 3\n"
    "Mon Nov 23 14:10:34 2026: cycle 40 fape=0.205\n"
    "{lost}launch.sh: line 8: 19202 Segmentation fault      RANK=$i python fold.py\n"
)


def test_a_shell_knows_the_pid_and_the_first_lines_whose_it_is(tmp_path: Path) -> None:
    """A bash loop starts the ranks, and names a dead one by its pid alone."""
    lost = GLOO.format(rank=1) + GLOO.format(rank=0)
    said = verdict(tmp_path, run__log=BASH.format(a=0, b=1, c=2, lost=lost))
    assert (said["category"], ranks_of(said)) == ("native-crash", [2])


def test_numbers_that_are_not_one_for_each_rank_name_nobody(tmp_path: Path) -> None:
    """The same lines of the workers of loaders: two have one number."""
    lost = GLOO.format(rank=1) + GLOO.format(rank=0)
    said = verdict(tmp_path, run__log=BASH.format(a=0, b=1, c=1, lost=lost))
    assert (said["category"], ranks_of(said)) == ("native-crash", [])


STACK = (
    "Process {pid}: python vlm.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
    'Thread {pid} (idle): "MainThread"\n{frames}'
)
BACKWARD = (
    "    _engine_run_backward (torch/autograd/graph.py:979)\n    backward (torch/autograd/__init__.py:395)\n"
    "    Tensor.backward (torch/_tensor.py:623)\n    <module> (vlm.py:12)\n"
)
STEPS = "14:08:19 part-4.bin done, n=40\n14:08:20 part-5.bin done, n=50\n"


def test_dumps_that_are_numbered_like_the_logs_are_the_ranks(tmp_path: Path) -> None:
    """One of rank 2's shards is a FIFO that nobody writes. Whoever looked ran `py-spy dump` on each rank, into a file
    with the number that its log has; no line names a rank."""
    logs = {f"out__{r}": STEPS for r in range(4)}
    dumps = {
        f"pyspy_{r}__txt": STACK.format(
            pid=17981 + r, frames="    <module> (vlm.py:9)\n" if r == 2 else BACKWARD
        )
        for r in range(4)
    }
    said = verdict(tmp_path, **logs, **dumps)
    assert (said["category"], ranks_of(said)) == ("hang", [2])


def test_several_dumps_of_one_process_are_no_ranks(tmp_path: Path) -> None:
    dumps = {
        f"pyspy_{n}__txt": STACK.format(pid=17981, frames=BACKWARD if n else "    <module> (vlm.py:9)\n")
        for n in range(3)
    }
    assert ranks_of(verdict(tmp_path, **dumps)) == []


def test_a_supervisor_that_begins_each_line_with_a_number(tmp_path: Path) -> None:
    """The ranks' own output was thrown away; what is left is their launcher's, which is no rank's console."""
    said = verdict(
        tmp_path,
        spawn__log=(
            "".join(f"14:20:51 [spawn] worker {r} started, pid {23789 + r}\n" for r in range(4))
            + "14:21:14 [spawn] worker 2 (pid 23791) ended with return code -9\n"
            "14:21:14 [spawn] terminating the remaining workers\n"
            + "".join(f"14:21:14 [spawn] worker {r} return code {-9 if r == 2 else -15}\n" for r in range(4))
        ),
    )
    assert (said["category"], ranks_of(said)) == ("external-signal", [2])


REAPER = (
    "2026-11-23 14:20:06 idle-reaper[881]: pid 23002 (uma, python bio.py) idle for 31 min, sending SIGKILL\n"
)


def reaped(folder: Path, reaper: str) -> dict[str, Any]:
    """Three ranks that introduce themselves with pid and rank; rank 1 falls silent, the others lose it."""
    own = {
        f"bio__{r}__log": (
            f"2026-11-23 14:19:49 pid={23001 + r} rank={r} start\n"
            f"2026-11-23 14:20:05 rank={r} round=60 nll=0.2034\n" + ("" if r == 1 else GLOO.format(rank=r))
        )
        for r in range(3)
    }
    return verdict(folder, **own, idle_reaper__log=reaper)


def test_who_sent_the_signal_says_so_in_a_log_of_its_own(tmp_path: Path) -> None:
    """A site's reaper kills what seems idle, by its pid."""
    said = reaped(tmp_path, REAPER)
    assert (said["category"], ranks_of(said)) == ("external-signal", [1])
    assert said["evidence"][0]["source"].endswith("idle_reaper.log")


def test_a_kill_of_a_strangers_process_is_not_this_jobs(tmp_path: Path) -> None:
    said = reaped(tmp_path, REAPER.replace("23002", "555"))
    assert said["category"] == "peer-lost"


DOWNLOAD = (
    "2026-11-23 14:23:16,736 ERROR rank 1: download of shard 5 failed, using the local mirror\n"
    'Traceback (most recent call last):\n  File "/usr/lib/python3.11/urllib/request.py", line 1348, in do_open\n'
    "    h.request(req.get_method(), req.selector, req.data, headers,\n"
    "ConnectionRefusedError: [Errno 111] Connection refused\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "/home/ada/c.py", line 6, in fetch\n'
    '    try: urllib.request.urlopen("http://127.0.0.1:9/x", timeout=2)\n'
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>\n"
)


def test_a_chain_is_survived_as_a_whole(tmp_path: Path) -> None:
    """A download that failed is logged with its traceback, which has two exceptions; a mirror has the file, and
    both ranks come to their end. The first exception of the two is no lost peer."""
    steps = "".join(
        f"2026-11-23 14:23:1{s},595 INFO rank {r} step {s}0 loss 0.4{s}\n" for s in (6, 7) for r in (0, 1)
    )
    end = "".join(
        f"2026-11-23 14:23:18,594 INFO rank {r}: epoch 1/1 complete, val_acc 0.83\n" for r in (0, 1)
    )
    assert verdict(tmp_path, c__log=steps + DOWNLOAD + end)["outcome"] == "healthy"
