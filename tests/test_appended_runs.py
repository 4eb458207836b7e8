"""Several runs in one file (nohup.out): the last one decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
