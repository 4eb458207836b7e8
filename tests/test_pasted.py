"""What people paste of a console has lost its escape bytes, or stands indented: that changes no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import Options, analyze
from postmortem.formats import pasted

# verl issue 184: the paste of a browser; Ray colours the names of its workers
CRASH = (
    "[36m(WorkerDict pid=3175143, ip=192.0.2.7)[0m Fatal Python error: Aborted\n"
    "[36m(WorkerDict pid=3175143, ip=192.0.2.7)[0m\n"
    "[36m(WorkerDict pid=3175143, ip=192.0.2.7)[0m   warnings.warn('leaked shared_memory objects')\n"
)
# and the driver, which raises what became of a worker; its name is cut off with the excerpt
DRIVER = (
    "Traceback (most recent call last):\n"
    ' File "/verl/verl/trainer/main_ppo.py", line 163, in run_ppo\n'
    "   ray.get(main_task.remote(config, compute_score))\n"
    ' File "/opt/env/ray/_private/worker.py", line 919, in get_objects\n'
    "   raise value.as_instanceof_cause()\n"
    "ray.exceptions.RayTaskErr\n"
)
# open-r1 issue 544: the whole log stands one tab to the right
BLOCK = (
    '\t[rank1]:   File "/opt/env/deepspeed/runtime/zero/partition_parameters.py", line 284, in free_param\n'
    "\t[rank1]:     assert not param.ds_active_sub_modules, param.ds_summary()\n"
    "\t[rank1]:            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
    "\t[rank1]: AssertionError: {'id': 0, 'status': 'AVAILABLE', 'numel': 544997376}\n"
)


def told(tmp_path: Path, text: str) -> tuple[str, str | None, list[int]]:
    (tmp_path / "console.txt").write_text(text)
    verdict = analyze([str(tmp_path)], Options()).document["verdict"]
    return verdict["outcome"], verdict["category"], verdict["culprit"]["ranks"]


def test_a_worker_that_crashes_and_the_driver_that_hands_it_on(tmp_path: Path) -> None:
    assert told(tmp_path, CRASH + DRIVER) == ("incident", "native-crash", [])


def test_a_block_that_stands_indented_as_a_whole(tmp_path: Path) -> None:
    assert told(tmp_path, BLOCK) == ("incident", "python-exception", [1])


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("[36m(raylet)[0m ready", "(raylet) ready"),
        ("#033[2m#033[33m(raylet)#033[0m ready", "(raylet) ready"),
        ("^[[38;5;9mERROR^[[39m lost", "ERROR lost"),
        (r"\x1b[31mERROR\x1b[m lost", "ERROR lost"),
    ],
)
def test_colours_without_their_escape_byte(printed: str, read: str) -> None:
    undo = pasted.learn(f"{printed}\n{printed}\n")
    assert undo is not None
    assert undo(printed) == read


@pytest.mark.parametrize(
    "lines",
    [
        ["step 3 took [5m]", "step 4 took [5m]"],  # minutes
        ["\x1b[36m(raylet)\x1b[0m ready"] * 3,  # what a terminal prints
        ["[rank0]: step 3", "    [rank1]: step 3", "[rank0]: step 4"],
        [
            '  File "train.py", line 3, in <module>',
            "    main()",
            "    ^^^^^^",
        ],  # of a traceback: at its place
    ],
)
def test_lines_that_stand_as_they_were_printed(lines: list[str]) -> None:
    assert pasted.learn("\n".join(lines)) is None


def test_a_frame_stands_two_further_in_than_its_block() -> None:
    undo = pasted.learn('      File "train.py", line 3, in <module>\n        main()\n        ^^^^^^\n')
    assert undo is not None
    assert undo("    KeyError: 'x'") == "KeyError: 'x'"
