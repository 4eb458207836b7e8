"""The system's refusals, by the structure of the line."""

from __future__ import annotations

import time

import pytest

from postmortem.blocks import faults, read_text

REFUSALS = {
    "NCCL WARN socketStartConnect: Connect to 10.0.0.5<36541> failed : No route to host": "nccl socket/connect EHOSTUNREACH peer:address",
    "NCCL WARN Call to bind failed : Cannot assign requested address": "nccl socket/bind EADDRNOTAVAIL",
    "NCCL WARN socketStartConnect: Connect to 169.254.3.1<41231> failed : Connection refused": "nccl socket/connect ECONNREFUSED peer:link-local",
    "|CCL_ERROR| base_thread.cpp:36 start: error while creating thread #0 pthread_create returns 22": "oneccl thread/pthread_create EINVAL",
    "ib_md.c:318 UCX  ERROR ibv_reg_mr(address=0x7f) failed: Cannot allocate memory : Please set": "ucx verbs/ibv_reg_mr ENOMEM",
    "NCCL WARN Error: failed to extend /dev/shm/nccl-Zk to 33 bytes, error: No space left on device": "nccl shm/dev/shm ENOSPC path",
    "NCCL WARN Cuda failure 1 'invalid argument'": "nccl cuda/- 'invalid argument'",
}
REASONS = {
    "OSError: [Errno 27] File too large": "EFBIG",
    "RuntimeError: write failed (28: No space left on device)": "ENOSPC",
    "WriteFailed: could not flush shard 3: errno=122": "EDQUOT",
    "  what():  filesystem error: cannot copy: Disk quota exceeded [/home/u/.cache]": "EDQUOT",
    'IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })': "ENOSPC",
    "read failed (os error 5)": "EIO",
}
NONE = (
    "if you see No space left on device then raise --shm-size",  # advice
    "ConnectionRefusedError: [Errno 111] Connection refused",  # of a peer: no library names the call
    "step 28: loss 5",
    "",
)


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
    for error, pattern in {
        "socketStartConnect: Connect to 10.0.0.5<36541> failed : No route to host": "nccl-peer-unreachable",
        "Call to ibv_create_qp failed": "nccl-ibv-call-failed",
        "Call to ibv_reg_mr failed with error Cannot allocate memory": "nccl-ibv-reg-mr-failed",
        "Message truncated : received 1024 bytes instead of 256": "nccl-bootstrap-truncated",
    }.items():
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
