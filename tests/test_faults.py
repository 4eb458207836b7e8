"""The system's refusals, by the structure of the line; which frame of a stack is the user's own, and the collective that
it is in."""

from __future__ import annotations

import time

import pytest

from conftest import table
from postmortem.blocks import faults, read_text
from postmortem.formats.frames import code_line, collective_in, collective_of, is_only_printed

REFUSALS = table("faults")["refusals"]
REASONS = table("faults")["reasons"]
NONE = table("faults")["none"]


def test_a_refusal_has_a_library_a_call_and_a_reason() -> None:
    for text, summary in REFUSALS.items():
        library, message = faults.library_of(text)
        found = faults.read(message, library)
        assert found is not None and found.summary == summary
    for text, reason in REASONS.items():
        found = faults.read(text)
        assert found is not None and (found.domain, found.reason) == ("file", reason), text
    assert [faults.read(text) for text in NONE] == [None] * len(NONE)


def test_a_socket_that_is_not_connected_is_no_mount() -> None:
    text = "OSError: [Errno 107] Transport endpoint is not connected"
    inner = faults.read(text, inner="/usr/lib/python3.11/socket.py getpeername: ")
    outer = faults.read(text, inner="fsspec/implementations/local.py write: ")
    assert inner is not None
    assert outer is not None
    assert (inner.domain, outer.domain) == ("socket", "file")


LAST = """[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, invalid usage, NCCL 2.19.3
[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
[rank1]: Last error:
[rank1]: {}
"""


def test_the_last_error_is_read_as_the_warning_that_it_was() -> None:
    for error, pattern in table("faults")["last_errors"].items():
        found = [(e.where.line, e.rank) for e in read_text(LAST.format(error)) if e.pattern == pattern]
        assert found == [(4, 1)], pattern


def test_a_warning_before_a_retry_is_no_refusal() -> None:
    text = """node-a:1:2 [0] misc/socket.cc:602 NCCL WARN poll() failed, error Connection timed out
node-a:1:2 [0] misc/socket.cc:551 NCCL INFO connect returned Connection timed out, retrying (1/34)
"""
    assert not [e for e in read_text(text) if e.pattern == "nccl-peer-unreachable"]


def test_a_waiting_task_is_held_by_the_file_system_of_its_own_stack() -> None:
    text = """[1.0] INFO: task python3:15902 blocked for more than 122 seconds.
[1.0] Call Trace:
[1.0]  schedule+0x69/0x110
[1.0] INFO: task python3:15903 blocked for more than 122 seconds.
[1.0] Call Trace:
[1.0]  nfs4_proc_getattr+0x7f/0xb0 [nfsv4]
"""
    found = [e for e in read_text(text, "kernel") if e.pattern == "task-waits-for-storage"]
    assert [(str(e.fields["pid"]), e.fields["detail"]) for e in found] == [("15903", "nfs")]


@pytest.mark.parametrize("text", ["a" * 4000, '{"a":' * 800, "9 " * 2000])
def test_the_library_of_a_long_line_is_found_at_once(text: str) -> None:
    """A search that begins anew at each letter and reads to the end took half a second for one line."""
    start = time.process_time()
    for _ in range(20):
        assert faults.library_of(text) == ("", text)
    assert time.process_time() - start < 1
    line = f"{text} prov_errno: 12 (Cannot allocate memory)"
    assert faults.library_of(line[-4000:]) == ("ofi", line[-4000:].strip())


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
