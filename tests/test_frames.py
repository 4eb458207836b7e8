"""Which frame of a stack is the user's own, and in which collective it stands."""

from __future__ import annotations

import pytest

from postmortem.parsers.frames import code_line, collective_in, collective_of

OWN = ("/work/train.py", 41, "main")


@pytest.mark.parametrize(
    "file",
    [
        "/opt/venv/lib/python3.11/site-packages/numpy/core/fromnumeric.py",
        "C:\\env\\lib\\site-packages\\torch\\serialization.py",
        "C:\\Python311\\Lib\\asyncio\\events.py",
        "pandas/_libs/parsers.pyx",
        "uvloop/loop.pyx",
        "<frozen importlib._bootstrap>",
    ],
)
def test_a_librarys_frame_is_not_the_users(file: str) -> None:
    assert code_line([OWN, (file, 7, "run")]) == "train.py:41"


def test_a_path_of_windows_is_shown_by_its_name() -> None:
    assert code_line([("D:\\work\\train.py", 12, "<module>")]) == "train.py:12"


def test_a_collective_is_a_frame_or_the_call_that_the_last_one_shows() -> None:
    assert collective_of([OWN, ("torch/distributed/distributed_c10d.py", 9, "all_reduce")]) == "all_reduce"
    assert collective_of([OWN]) is None
    assert collective_in("dist.all_reduce(x)") == "all_reduce"
    assert collective_in("loss.backward()") == "backward"
    assert collective_in("dist.destroy_process_group()") is None
