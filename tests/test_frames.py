"""Which frame of a stack is the user's own, and the collective that it is in."""

from __future__ import annotations

from conftest import table
from postmortem.blocks.frames import code_line, collective_in, collective_of, is_only_printed

OWN = ("/work/train.py", 41, "main")


def test_a_librarys_frame_is_not_the_users() -> None:
    for file in table("frames")["libraries"]:
        assert code_line([OWN, (file, 7, "run")]) == "train.py:41", file


def test_exceptions_in_pythons_own_cleanup_are_only_printed() -> None:
    for file, func, passes in table("frames")["cleanups"]:
        assert is_only_printed([(file, 300, func), OWN]) is passes, file
        assert not is_only_printed([OWN, (file, 300, func)]), file


def test_a_path_of_windows_is_shown_by_its_name() -> None:
    assert code_line([("D:\\work\\train.py", 12, "<module>")]) == "train.py:12"


def test_a_collective_is_a_frame_or_the_call_that_the_last_one_shows() -> None:
    assert collective_of([OWN, ("torch/distributed/distributed_c10d.py", 9, "all_reduce")]) == "all_reduce"
    functional = "/opt/venv/lib/python3.11/site-packages/torch/distributed/_functional_collectives.py"
    below = ("/opt/venv/lib/python3.11/site-packages/torch/_ops.py", 1279, "__call__")
    assert collective_of([OWN, (functional, 142, "wait_tensor"), below]) == "wait_tensor"
    assert collective_of([OWN, (functional, 900, "__torch_dispatch__"), below]) is None
    assert collective_of([OWN]) is None
    assert collective_in("dist.all_reduce(x)") == "all_reduce"
    assert collective_in("loss.backward()") == "backward"
    assert collective_in("dist.destroy_process_group()") is None
