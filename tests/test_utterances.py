"""Exceptions that a line names without a traceback, and what stands around a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import analyze
from postmortem.blocks import read_text, utterances

EPILOGUE = """E1120 20:53:27.061000 10515 api.py:1] failed (exitcode: 1) local_rank: 1 (pid: 10519) of binary: x
Traceback (most recent call last):
  File "/venv/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_06:51:00
  host      : gpu-box
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 10519)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def headline(tmp_path: Path, text: str) -> str:
    (tmp_path / "train.log").write_text(text)
    return str(analyze([str(tmp_path)]).document["verdict"]["headline"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "2026-01-01 10:00:01 ERROR    wds.r2       ReadError: unexpected end of data",
            "ReadError: unexpected end of data",
        ),
        (
            "rank=1 FATAL DuplicateIds('batch 23 holds id 93 twice')",
            "DuplicateIds: batch 23 holds id 93 twice",
        ),
        ("mypkg.errors.BadShard: shard 17 has 3 columns", "mypkg.errors.BadShard: shard 17 has 3 columns"),
        ("ERROR download failed, retrying: HTTPError: 503", ""),
        ("UserWarning: this is deprecated", ""),
        ("torch.Size: 3", ""),
    ],
)
def test_a_line_names_an_exception(line: str, said: str) -> None:
    assert utterances.said(line) == said


def test_the_reason_stands_above_the_launchers_block(tmp_path: Path) -> None:
    text = "INFO step 20 loss 1.0\nValueError: bad shard index 17\n" + EPILOGUE
    assert headline(tmp_path, text).endswith("raised ValueError: bad shard index 17 at about 20:53.")


def test_a_class_that_nobody_knows_is_the_last_word(tmp_path: Path) -> None:
    text = "2026-01-01 10:00:00,000 INFO step 20 loss 1.0\nmypkg.errors.BadShard: shard 17 has 3 columns\n"
    assert "BadShard: shard 17 has 3 columns" in headline(tmp_path, text)


def test_an_exception_that_the_program_logs_and_survives_is_none(tmp_path: Path) -> None:
    text = "ERROR mail: SMTPError: no server\n" + "".join(f"INFO step {n} loss 1.0\n" for n in range(9))
    assert headline(tmp_path, text + "Training finished.\n").startswith("No failure")


def test_two_interrupts_on_one_line_are_an_interrupt() -> None:
    text = """Traceback (most recent call last):
  File "t.py", line 3, in <module>
    main()
KeyboardInterruptKeyboardInterrupt
"""
    assert [e.fields["type"] for e in read_text(text) if e.kind == "exception"] == ["KeyboardInterrupt"]


def test_what_fails_in_the_handler_of_a_ctrl_c_is_not_the_cause(tmp_path: Path) -> None:
    text = """Traceback (most recent call last):
  File "launch.py", line 30, in main
    proc.wait()
KeyboardInterrupt

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "launch.py", line 33, in main
    os.killpg(pgid, signal.SIGTERM)
NameError: name 'pgid' is not defined
"""
    assert headline(tmp_path, text).startswith("Somebody pressed Ctrl-C")


def test_an_rpc_raised_on_the_other_worker() -> None:
    text = """[rank0]: Traceback (most recent call last):
[rank0]:   File "rpc.py", line 20, in <module>
[rank0]:     rpc.rpc_sync("worker1", f)
[rank0]: KeyError: On WorkerInfo(id=1, name=worker1):
[rank0]: KeyError('weights')
[rank0]: Traceback (most recent call last):
[rank0]:   File "/opt/train/rpc.py", line 9, in f
[rank0]:     return d["weights"]
[rank0]: KeyError: 'weights'
"""
    raised = [(e.rank, bool(e.fields.get("wrapper"))) for e in read_text(text) if e.kind == "exception"]
    assert raised == [(0, True), (1, False)]


def test_an_aborted_collective_asks_for_garbage(tmp_path: Path) -> None:
    work = "WorkNCCL(SeqNum=120, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=4, Timeout(ms)=600000)"
    text = f"""[rank0]:[E1120 10:00:00.000 x.cpp:629] Watchdog caught collective operation timeout: \
{work} ran for 600015 milliseconds before timing out.
[rank0]: Traceback (most recent call last):
[rank0]:   File "t.py", line 20, in <module>
[rank0]:     dist.all_gather_object(out, x)
[rank0]:   File "/venv/site-packages/torch/distributed/distributed_c10d.py", line 2705, in all_gather_object
[rank0]:     coalesced_output_tensor = torch.empty(
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 184.00 GiB.
"""
    assert "out of GPU memory" not in headline(tmp_path, text)


def test_an_optional_import_beats_no_exception_of_the_ranks(tmp_path: Path) -> None:
    rank = """[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "t.py", line 3, in <module>
[rank{0}]:     main()
[rank{0}]: ValueError: bad shape
"""
    text = """Unable to import wandb
Traceback (most recent call last):
  File "/opt/train/log.py", line 3, in <module>
    import wandb
ModuleNotFoundError: No module named 'wandb'
"""
    assert headline(tmp_path, text + rank.format(0) + rank.format(1)).startswith("Ranks 0 and 1 raised ValueError")


def test_the_reason_that_a_rank_sent_along_decides(tmp_path: Path) -> None:
    text = """[rank0]: Traceback (most recent call last):
[rank0]:   File "t.py", line 3, in <module>
[rank0]:     dcp.save(sd)
[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([2])
[rank0]: Traceback (most recent call last): (RANK 2)
[rank0]:   File "/venv/site-packages/torch/distributed/checkpoint/filesystem.py", line 400, in _write_item
[rank0]: OSError: [Errno 28] No space left on device
"""
    assert headline(tmp_path, text) == "Rank 2: a file system had no space left (OSError: No space left on device)."


def test_a_node_that_failed_beats_the_error_of_its_gpu(tmp_path: Path) -> None:
    text = """[rank3]: Traceback (most recent call last):
[rank3]:   File "t.py", line 3, in <module>
[rank3]:     main()
[rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure
srun: error: Node failure on node-7
"""
    assert "Slurm lost a node" in headline(tmp_path, text)


def test_the_reader_of_a_print_is_not_a_peer(tmp_path: Path) -> None:
    text = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/opt/train/train.py", line 20, in <module>
[rank0]:     print(f"step {i:05d}", flush=True)
[rank0]: BrokenPipeError: [Errno 32] Broken pipe
"""
    assert headline(tmp_path, text).startswith("Rank 0 could not write to stdout: its reader had exited")


FAILED_TASK = """\
2026-11-22 11:56:04,227 - distributed.worker - ERROR - Compute Failed
Key:       rank-fb2de1b3
State:     executing
Task:  <Task 'rank-fb2de1b3' rank(...)>
Exception: "{}"
Traceback: '  File "/opt/train/t.py", line 8, in rank\\n    step(row)\\n  File "/opt/train/data.py", line 31, in step\\n    raise ValueError(row)\\n'

"""


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("ValueError('row 7 has no label')", "ValueError: row 7 has no label"),
        ("ValueError(7)", "ValueError: 7"),
        ("AssertionError()", "AssertionError"),
    ],
)
def test_dask_tells_what_a_task_raised(told: str, line: str) -> None:
    found = [e for e in read_text(FAILED_TASK.format(told)) if e.kind == "exception"]
    assert [(e.fields["line"], e.fields["code"], e.where.line) for e in found] == [(line, "data.py:31", 5)]


def test_what_dask_says_of_no_exception_is_none() -> None:
    assert not [e for e in read_text(FAILED_TASK.format("nothing here")) if e.kind == "exception"]
