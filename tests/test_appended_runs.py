"""Several runs in one file (nohup.out): the last one decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze

SYNTAX = """Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "<frozen runpy>", line 88, in _run_code
  File "/home/me/train.py", line 20, in <module>
    from .brain import Brain
  File "/home/me/brain.py", line 63
    def record(self):
                    ^
IndentationError: unindent does not match any outer indentation level
"""
FULL = """Traceback (most recent call last):
  File "/home/me/train.py", line 317, in <module>
    writer.write(data)
OSError: [Errno 28] No space left on device
"""
USAGE = "usage: train.py [-h] [--workers N]\ntrain.py: error: argument --workers: expected one argument\n"
STOPPED = FULL.replace("OSError: [Errno 28] No space left on device", "KeyboardInterrupt")
SPAWNED = """2026-07-24 04:29:06 - INFO - distributed init (rank 0): tcp://localhost:30001
Traceback (most recent call last):
  File "/home/me/main.py", line 318, in <module>
    launch(main)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/home/me/env/lib/python3.10/site-packages/torch/multiprocessing/spawn.py", line 68, in _wrap
    fn(i, *args)
  File "/home/me/data.py", line 81, in load
    raise ValueError("bad sample 17")
ValueError: bad sample 17

"""
TERMINATED = """2026-07-25 07:56:59 - WARNING - Unsupported Ops:
2026-07-25 07:56:59 - INFO - Max. epochs for training: 60
2026-07-25 07:57:01 - INFO - Training epoch 0
Terminated
"""


def verdict(folder: Path, text: str) -> Any:
    (folder / "nohup.out").write_text(text)
    return analyze([str(folder)]).document["verdict"]


def test_the_last_of_two_different_errors_that_ended_a_program_decides(tmp_path: Path) -> None:
    assert verdict(tmp_path, SYNTAX + FULL)["category"] == "storage"
    assert verdict(tmp_path, FULL + SYNTAX)["category"] == "python-exception"
    assert verdict(tmp_path, USAGE + STOPPED)["category"] == "external-signal"


def test_errors_that_alternate_are_those_of_several_processes(tmp_path: Path) -> None:
    found = verdict(tmp_path, FULL + SYNTAX + FULL + SYNTAX)
    assert "attempt" not in found or found["attempt"] is None


def test_log_lines_a_day_after_the_report_of_spawn_are_another_run(tmp_path: Path) -> None:
    assert verdict(tmp_path, SPAWNED)["category"] == "python-exception"
    assert verdict(tmp_path, SPAWNED + TERMINATED)["category"] == "external-signal"


STEPS = "".join(
    f"2026-03-0{{day}} 10:{i // 60:02d}:{i % 60:02d},120 INFO step {i} loss {4 - i / 100:.2f}\n" for i in range(40)
)
DONE = "Training finished. Saved model to out/model.pt\n"
CANCELED = "slurmstepd: error: *** STEP 991.0 ON node16 CANCELLED AT 2026-03-04T10:12:33 ***\n"
PREPARING = FULL.replace("train.py", "prepare.py")
RAISED = SYNTAX.replace("IndentationError: unindent does not match any outer indentation level", "KeyError: 'lr'")


@pytest.mark.parametrize(
    "text, outcome, category",
    [
        (STEPS.format(day=4) + FULL + STEPS.format(day=5) + DONE, "recovered", "storage"),
        (STEPS.format(day=4) + CANCELED + STEPS.format(day=5) + DONE, "recovered", "scheduler"),
        (STEPS.format(day=4) + FULL + STEPS.format(day=5) + RAISED, "incident", "python-exception"),
        (STEPS.format(day=4) + DONE + STEPS.format(day=5) + FULL, "incident", "storage"),
        ("2026-03-04 10:00:00 INFO reading\n" + PREPARING + "2026-03-04 12:00:00 INFO begin\n" + RAISED, "incident", "python-exception"),
        (STEPS.format(day=4) + "eval failed, skipping\n" + FULL.replace("<module>", "evaluate") + DONE, "healthy", None),
    ],
)  # fmt: skip
def test_work_that_begins_again_after_an_end_is_another_run(
    text: str, outcome: str, category: str, tmp_path: Path
) -> None:
    found = verdict(tmp_path, text)
    assert (found["outcome"], found["category"]) == (outcome, category), found["headline"]


def test_a_collectors_stamps_on_all_lines_leave_a_traceback_uncaught(tmp_path: Path) -> None:
    lines = [f"2026-03-04T10:00:0{i % 10}.000Z {line}\n" for i, line in enumerate((USAGE + STOPPED).splitlines())]
    assert verdict(tmp_path, "".join(lines))["category"] == "external-signal"
