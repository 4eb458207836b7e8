"""Pieces of logs, as people paste them: cut at both ends, torn by a terminal.
What is missing is never taken for health or for guilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postmortem import blocks as parsers
from postmortem.analyze import Options, analyze

HEAD = 'Traceback (most recent call last):\n  File "train.py", line 41, in <module>\n    main()\n'
FRAMES = '  File "train.py", line 398, in one_epoch\n    loss.backward()\n'
WATCHDOG = "[rank{0}]:[E419 10:42:28.858931807 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4486, OpType=ALLTOALL, NumelIn=4668, NumelOut=4668, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
OWN = "[rank{0}]:[E1128 21:11:49.041194513 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: {1}, last completed NCCL work: 19.\n"
HEARD = "[rank{0}]:[E1128 21:11:49.041188078 ProcessGroupNCCL.cpp:1806] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Observed flight recorder dump signal from another rank via TCPStore.\n"
LOST = "WARNING:dynamic_rendezvous:The node 'a_1' has failed to send a keep-alive heartbeat to the rendezvous 'r' due to an error of X.\n"
MEMBER = "initializing ddp: GLOBAL_RANK: {}, MEMBER: {}/4\n"
TORN = (
    '  File "/opt/conda/lib/python3.11/site-packages/torch/tens\nor.py", line 198, in backward\n    run()\n'
    "RuntimeError: no grad_fn\n"
)
QUOTING = (
    "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
    "ImportError: cannot import name 'key' from 'triton'\n"
)
HOOK = "[2026-04-18 15:55:06] CRITICAL [app.util:158] Uncaught HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/x\n"
MIDDLE = "".join(f"node-3 >> [rank3]: {line}\n" for line in (2 * FRAMES).splitlines())
FLAT = "".join(
    f"[rank9]: {line}\n\n"
    for line in (
        'File "train.py", line 12, in <module>',
        "main(args)",
        'File "train.py", line 7, in main',
        "return rows[3]",
    )
)
INDENTED = "".join(f"    {line}\n" for line in (2 * FRAMES + "RuntimeError: no grad_fn\n").splitlines())
DOUBLED = (2 * FRAMES + "RuntimeError: no grad_fn\n").replace("\n", "\n\n")
BACKTRACE = "".join(
    f"frame #{n}: c10d::Reducer::prepare(at::Tensor) + 0x4a{n} (0x7f3e5c0bf4a{n} in /x/libtorch_cpu.so)\n"
    for n in range(3, 9)
)
RAISED = "Exception raised from f at ../c10/cuda/CUDAException.cpp:44 (most recent call first):\n"
ENTRY = (
    "Root Cause (first observed failure):\n[0]:\n"
    "  time      : 2024-07-03_09:12:41\n  host      : node-2\n  rank      : 5 (local_rank: 1)\n"
)
CASES = {
    "a log that ends inside a traceback": (HEAD, ("python-exception", [])),
    "of two exceptions the second is cut": (
        HEAD + "ValueError: odd batch\n" + HEAD,
        ("python-exception", []),
    ),
    "a traceback without head, torn by the edge of a terminal": (TORN, ("python-exception", [])),
    "horovodrun's label over Gloo": (
        "[2]<stderr>:" + HEAD.replace("\n  ", "\n[2]<stderr>:  ") + "[2]<stderr>:KeyError: 'x'\n",
        ("python-exception", [2]),
    ),
    "frames that somebody printed, and then went on": (
        MIDDLE + "epoch 0 step 10 loss 0.31\n",
        ("healthy", []),
    ),
    "a traceback without head whose indentation was lost": (
        FLAT + "[rank9]: IndexError: list index out of range\n",
        ("python-exception", [9]),
    ),
    "torch before 1.13 gave collectives no number": (
        WATCHDOG.format(1).replace("SeqNum=4486, ", "").replace("NumelIn=4668, NumelOut=4668, ", ""),
        ("hang", []),
    ),
    "a wrapper that quotes what it was raised by": (FRAMES + QUOTING, ("python-exception", [])),
    "an excepthook that logs": (HOOK, ("network", [])),
    "a carrier of an exception that is not there": (
        FRAMES + "ray.exceptions.RayTaskError(ValueError): ray::W.f() (pid=7)\n",
        ("python-exception", []),
    ),
    "Composer's older wording": (
        "ERROR:composer.cli.launcher:Rank 3 crashed with exit code -11.\n",
        ("native-crash", [3]),
    ),
    "a store that does not answer": (3 * LOST, ("peer-lost", [])),
    "a group that was never complete": (
        "".join(MEMBER.format(n, n + 1) for n in (1, 1, 0, 0)),
        ("undetermined", []),
    ),
    "a group that was complete": (
        MEMBER.format(1, 2) + MEMBER.format(0, 1) + "epoch 0 step 10 loss 0.31\n",
        ("healthy", []),
    ),
    "a store that was gone first": ("epoch 0 step 10 loss 0.31\n" + LOST, ("peer-lost", [])),
    "a rank of whose complaint only the head is left": (
        WATCHDOG.format(7) + WATCHDOG.format(3) + "[rank6]:[E419 10:42:28.887728774 ProcessGroupNCCL.cpp\n",
        ("hang", []),
    ),
    "of a complaint the first words are left": (
        WATCHDOG.format(0)
        + (
            "[rank1]:[E1213 17:24:49.331433657 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a\n"
        ),
        ("hang", []),
    ),
    "one who only heard of the time-out did not wait": (
        WATCHDOG.format(1) + WATCHDOG.format(2) + HEARD.format(0),
        ("hang", [0]),
    ),
    "of a traceback only the `raise` is whole": (
        (
            'model/heads.py", line 103, in find_top_\nproposals\n    raise FloatingPointError(\n'
            "FloatingPointError: Training has diverged.\n"
        ),
        ("numerics", []),
    ),
    "a traceback without head that stands indented": (INDENTED, ("python-exception", [])),
    "a traceback without head, double-spaced by the paste": (DOUBLED, ("python-exception", [])),
    "a C++ backtrace whose error was left out": (
        RAISED + BACKTRACE.replace("#3", "#0"),
        ("undetermined", []),
    ),
    "a log that was pasted as a quotation": (
        "".join(f"> {line}\n" for line in (HEAD + "ValueError: odd batch").splitlines()),
        ("python-exception", []),
    ),
    "a line of another log that somebody quoted": (
        "epoch 0 step 10 loss 0.31\n> ValueError: odd batch\n" + 3 * "no idea\n",
        ("healthy", []),
    ),
    "an entry of torchrun whose pid was struck out": (
        ENTRY + "  exitcode  : -11\n  error_file: <N/A>\n",
        ("native-crash", [5]),
    ),
    "counters are all that is left of the watchdogs": (
        OWN.format(0, 20) + OWN.format(1, 22) + OWN.format(2, 22),
        ("hang", [0]),
    ),
}


def verdict_of(text: str, folder: Path, name: str = "train.log") -> dict[str, Any]:
    (folder / name).write_text(text)
    verdict: dict[str, Any] = analyze([str(folder)], Options()).document["verdict"]
    return verdict


@pytest.mark.parametrize("name", CASES)
def test_what_a_piece_of_a_log_says(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    verdict = verdict_of(text, tmp_path)
    said = verdict["category"] if verdict["outcome"] == "incident" else verdict["outcome"]
    assert (said, verdict["culprit"]["ranks"]) == expected


def test_a_word_of_a_torn_line_is_no_exception(tmp_path: Path) -> None:
    """Two ranks wrote at once: a piece of a path is no class,
    though an exception may be a dotted name and nothing more."""
    assert "utils.i" not in verdict_of(HEAD + "utils.i\n", tmp_path)["headline"]
    assert "raised Empty" in verdict_of(HEAD + "queue.Empty\n", tmp_path)["headline"]


def test_a_wait_that_nothing_came_after_is_told(tmp_path: Path) -> None:
    line = "[W606 10:40:47.404092890 socket.cpp:929] [c10d] The server socket on [::ffff:192.0.2.182]:42479 has timed out, will retry.\n"
    verdict = verdict_of(line, tmp_path)
    assert verdict["outcome"] == "undetermined" and "the job failed" not in verdict["headline"]


def test_where_no_side_is_larger_both_are_named(tmp_path: Path) -> None:
    """A fingerprint says who differs, not who is right;
    of two ranks that wait in different collectives nobody is among "the others"."""
    said = "[rank3]: RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running collective: CollectiveFingerPrint(OpType=BARRIER), but Rank 0 is running collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[9], TensorDtypes=Float).\n"
    verdict = verdict_of(said, tmp_path)
    assert verdict["culprit"]["ranks"] == [0, 3] and "anks 0 and 3 called different collectives" in verdict["headline"]
    verdict = verdict_of(WATCHDOG.format(0) + WATCHDOG.format(1).replace("ALLTOALL", "ALLREDUCE"), tmp_path)
    assert verdict["culprit"]["ranks"] == [0, 1] and "than the others" not in verdict["headline"]


def test_a_traceback_is_cut_only_where_the_log_ends() -> None:
    """More lines after it than are looked at: then the exception may stand somewhere among them."""
    assert "cut" in [e.kind for e in parsers.read_text(HEAD)]
    assert "cut" not in [e.kind for e in parsers.read_text(HEAD + "    and so on\n" * 9000)]


def test_a_kernel_log_of_weeks_holds_more_than_one_story(tmp_path: Path) -> None:
    """Within a day the first is the cause of the next; days apart the harder fact counts."""
    xid = "[Fri Aug  {} 03:54:13 2026] NVRM: Xid (PCI:0000:00:0{}): {}, pid=25, name=python, {}\n"
    fault = xid.format(
        3,
        7,
        31,
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000.",
    )
    verdict = verdict_of(fault + xid.format(7, 8, 94, "Contained: SM (0x1). RST: No, D-RST: No"), tmp_path, "dmesg.txt")
    assert (verdict["category"], verdict["culprit"]["gpus"]) == ("gpu-hardware", ["0000:00:08"])


def test_what_a_child_printed_tells_more_than_its_code(tmp_path: Path) -> None:
    """A task of luigi raises what its child printed, so the child's traceback stands inside of the message."""
    task = (
        "Traceback (most recent call last):\n"
        '  File "/work/pipe.py", line 14, in run\n    raise RuntimeError(f"step.py of rank {{r}} returned 1" + out)\n'
        "RuntimeError: step.py of rank {} returned 1\nrank {} chunk 20\n"
    )
    child = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/work/step.py", line 13, in <module>\n[rank2]:     emb(ids)\n'
        "[rank2]: RuntimeError: Expected tensor for argument #1 'indices' to have scalar type Long\n"
    )
    lost = (
        "[rank{0}]: Traceback (most recent call last):\n"
        '[rank{0}]:   File "/work/step.py", line 15, in <module>\n[rank{0}]:     loss.backward()\n'
        "[rank{0}]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:41221\n"
    )
    others = "".join(task.format(r, r) + lost.format(r) + "INFO: Done\n" for r in (0, 1))
    (tmp_path / "luigi.log").write_text(task.format(2, 2) + child + "INFO: Done\n" + others)
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert verdict["culprit"]["ranks"] == [2] and "Expected tensor" in verdict["headline"]
