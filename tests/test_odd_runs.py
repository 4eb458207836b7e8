"""Odd failures of real jobs, each a run of ours that failed on purpose; the logs are excerpts of what was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


STACK = (
    'Process {pid}: python vlm.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{frames}'
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
        f"pyspy_{r}__txt": STACK.format(pid=17981 + r, frames="    <module> (vlm.py:9)\n" if r == 2 else BACKWARD)
        for r in range(4)
    }
    said = verdict(tmp_path, **logs, **dumps)
    assert (said["category"], ranks_of(said)) == ("hang", [2])


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
    assert said["evidence"][0]["line"] == 5  # where it was told first


REAPER = "2026-11-23 14:20:06 idle-reaper[881]: pid 23002 (uma, python bio.py) idle for 31 min, sending SIGKILL\n"


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


def test_who_sent_the_signal_states_so_in_a_log_of_its_own(tmp_path: Path) -> None:
    """A site's reaper kills what seems idle, by its pid."""
    said = reaped(tmp_path, REAPER)
    assert (said["category"], ranks_of(said)) == ("external-signal", [1])
    assert said["evidence"][0]["source"].endswith("idle_reaper.log")


def test_a_kill_of_a_another_job_process_is_not_this_jobs(tmp_path: Path) -> None:
    said = reaped(tmp_path, REAPER.replace("23002", "555"))
    assert said["category"] == "peer-lost"


AGENT = (
    "E1123 14:18:{s}.105000 {pid} torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)"
    " local_rank: {failed} (pid: 1{s}{failed}) of binary: /opt/venv/bin/python\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent\n'
    "    raise ChildFailedError(\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "============================================================\nqa.py FAILED\n"
    "------------------------------------------------------------\nFailures:\n[1]:\n"
    "  time      : 2026-11-23_14:18:{s}\n  host      : {host}\n  rank      : {other} (local_rank: {local})\n"
    "  exitcode  : {code} (pid: 1{s}{other})\n  error_file: <N/A>\n"
    "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
    "  time      : 2026-11-23_14:18:{s}\n  host      : {host}\n  rank      : {failed} (local_rank: 1)\n"
    "  exitcode  : 1 (pid: 1{s}{failed})\n  error_file: <N/A>\n"
    "============================================================\n"
)
RAISED = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/home/vera/qa/qa.py", line {line}, in <module>\n'
    "[rank{rank}]: {said}\n"
)


def launch(s: int, pid: int, host: str, ranks: tuple[int, int], *said: str) -> str:
    """What two ranks of one launcher say, and its report."""
    own = "".join(RAISED.format(rank=r, line=8, said=word) for r, word in zip(ranks[::-1], said, strict=False))
    own += "" if len(said) == 2 else GLOO.format(rank=ranks[0])
    code = "1" if len(said) == 2 else "-15"
    return own + AGENT.format(s=s, pid=pid, host=host, other=ranks[0], failed=ranks[1], local=0, code=code)


def test_a_second_launch_appends_to_the_same_log(tmp_path: Path) -> None:
    """`torchrun … >> train.log` twice: the first dies of a wrong setting, which is then corrected; the second of
    something else. What the ranks print before their launcher speaks again is of the second life."""
    said = verdict(
        tmp_path,
        train__log=launch(14, 22505, "node-a", (0, 1), *2 * ["ValueError: hidden size 18 is not divisible by 4 heads"])
        + "2026-11-23 14:18:32,094 r0 0 em 0.370\n2026-11-23 14:18:33,201 r1 30 em 0.231\n"
        + "W1123 14:18:36.937000 22539 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 220"
        " closing signal SIGTERM\n"
        + launch(37, 22539, "node-a", (0, 1), "FileNotFoundError: [Errno 2] No such file or directory: 'a.json'"),
    )
    assert (said["category"], ranks_of(said)) == ("storage", [1])
    assert "a.json" in said["evidence"][0]["text"]


def test_launchers_of_two_hosts_on_one_console_are_one_attempt(tmp_path: Path) -> None:
    """Each tells of its own ranks; none of them ends twice."""
    said = verdict(
        tmp_path,
        train__log=launch(
            14, 22505, "node-a", (0, 1), "FileNotFoundError: [Errno 2] No such file or directory: 'a.json'"
        )
        + GLOO.format(rank=2)
        + GLOO.format(rank=3)
        + AGENT.format(s=16, pid=931, host="node-b", other=2, failed=3, local=0, code="1").replace(
            "local_rank: 3 (", "local_rank: 1 ("
        ),
    )
    assert (said["category"], ranks_of(said)) == ("storage", [1])


PICKLE = (
    '{"component": "eval", "proc": 2, "event": "unhandled", "level": "error", "timestamp": '
    '"2026-11-23T14:05:45.609407Z", "exception": "Traceback (most recent call last):\\n  File '
    '\\"/home/bea/eval/harness.py\\", line 12, in main\\n    dist.all_gather_object(out, res)\\n  File '
    '\\"/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py\\", line 3405, in '
    "_object_to_tensor\\n    _pickler(f).dump(obj)\\nAttributeError: Can't pickle local object "
    "'main.<locals>.<lambda>'\"}\n"
)


BANNER = (
    "W1123 14:05:40.100000 16318 torch/distributed/run.py:851] \n"
    "W1123 14:05:40.100000 16318 torch/distributed/run.py:851] *****************************************\n"
    "W1123 14:05:40.100000 16318 torch/distributed/run.py:851] Setting OMP_NUM_THREADS environment variable\n"
)


@pytest.mark.parametrize("banner", ["", BANNER])
def test_records_among_what_their_launcher_prints(tmp_path: Path, banner: str) -> None:
    """structlog writes JSON to torchrun's console, and torchrun's own report is longer than all that was logged:
    the traceback is one record's field."""
    done = (
        '{{"component": "eval", "proc": {r}, "task": "piqa", "acc": 0.515, "event": "task finished", "level": "info",'
        ' "timestamp": "2026-11-23T14:05:45.30{r}Z"}}\n'
    )
    report = AGENT.format(s=49, pid=16318, host="node-a", other=0, failed=2, local=0, code="-15")
    said = verdict(tmp_path, eval__log=banner + "".join(done.format(r=r) for r in range(4)) + PICKLE + report)
    assert (said["category"], ranks_of(said)) == ("python-exception", [2])
    assert "Can't pickle" in said["evidence"][0]["text"]


def test_mpi4py_aborts_for_the_rank_that_raised(tmp_path: Path) -> None:
    """`python -m mpi4py` prints a traceback without a rank, and Open MPI names the rank right below."""
    said = verdict(
        tmp_path,
        cfd__log=(
            "iter 20 residual 4.76e-02\nTraceback (most recent call last):\n"
            '  File "/opt/venv/lib/python3.11/site-packages/mpi4py/run.py", line 53, in run_command_line\n'
            '    run_path(sys.argv[0], run_name="__main__")\niter 30 residual 3.23e-02\n'
            '  File "halo.py", line 7, in <module>\n    c.Recv(inn, source=(r - 1) % n, tag=it)\n'
            "mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated\n"
            "--------------------------------------------------------------------------\n"
            "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
        ),
    )
    assert (said["category"], ranks_of(said)) == ("python-exception", [2])
    assert "MPI_ERR_TRUNCATE" in said["evidence"][0]["text"]
