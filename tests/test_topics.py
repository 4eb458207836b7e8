"""What an error is about of which only the words are known; and what a warning, a fallback and a bar say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze
from postmortem.diagnose import topics


def verdict(tmp_path: Path, text: str, name: str = "train.log") -> Any:
    (tmp_path / name).write_text(text)
    return analyze([str(tmp_path)]).document["verdict"]


WORDS = {  # of public logs and format strings; no pattern names them
    "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)": "environment",
    "[node-a:12255] PMIX ERROR: NOT-FOUND in file server/pmix_server.c at line 229": "environment",
    "MPID_Init(441).......:  MPIR_pmi_init(110)...: PMI_Init returned 1": "rendezvous",
    "NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument": "network",
    "ze error at zeCommandQueueExecuteCommandLists, code: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY": "gpu-oom",
    "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)": "gpu-fault",  # torch-xpu-ops issue 2990
    "synStatus=20 [Device already acquired] Device acquire failed.": "environment",  # tgi-gaudi issue 93
    "line 27: cd: /home/user/state: No such file or directory": "storage",
    "the worker caught a segmentation fault": "native-crash",
    "label 91 is outside of [0, 10)": "",
}


@pytest.mark.parametrize("line", WORDS)
def test_shared_words_tell_the_kind(line: str) -> None:
    assert topics.of(line) == WORDS[line]


RAISED = 'Traceback (most recent call last):\n  File "train.py", line 264, in <module>\n    x = x.cuda()\n'


def test_an_exception_takes_its_kind_from_its_words(tmp_path: Path) -> None:
    own = verdict(tmp_path, RAISED + "RuntimeError: the extension was not compiled with AVX support\n")
    assert (own["category"], own["pattern"]) == ("environment", "python-exception")


def test_also_where_the_message_stands_below(tmp_path: Path) -> None:
    below = RAISED + "AssertionError: \nThe accelerator driver on your system is too old (found 10010).\n"
    assert verdict(tmp_path, below)["category"] == "environment"


def test_and_not_from_what_stands_above(tmp_path: Path) -> None:
    above = "2026-11-22 10:00:00 WARNING option x is not supported on this device\n" + RAISED
    assert verdict(tmp_path, above + "ValueError: label 91 is outside of [0, 10)\n")["category"] == "python-exception"


LOOKUP = "[W socket.cpp:601] [c10d] The IPv6 network addresses of (master-0, 37340) cannot be retrieved (gai error: -2 - Name or service not known).\n"
LATE = "[rank1]: torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (master-0, 37340).\n"


def test_a_lookup_that_is_tried_again_accuses_only_where_something_failed(tmp_path: Path) -> None:
    assert verdict(tmp_path, LOOKUP * 6)["outcome"] == "undetermined"
    found = verdict(tmp_path, LOOKUP * 6 + LATE)
    assert (found["outcome"], found["pattern"]) == ("incident", "dns-unresolvable")


FAILED = "2025-04-14T15:52:02.6Z ERROR server: server.rs:1672: Failed to import tokenizer ModuleNotFoundError: No module named 'transformers'\n"


def test_what_is_done_instead_is_no_failure(tmp_path: Path) -> None:
    instead = (
        "2025-04-14T15:52:02.6Z  WARN server: server.rs:1440: Odd tokenizer, falling back on legacy tokenization\n"
    )
    up = "2025-04-14T15:52:03.7Z  INFO text_generation_router::server: router/src/server.rs:2266: Connected\n"
    assert verdict(tmp_path, FAILED + instead + up)["outcome"] == "healthy"
    assert verdict(tmp_path, FAILED)["category"] == "python-exception"


BAR = "  1%|          | 2/187 [00:09<14:50,  4.82s/it]\n"


def test_a_bar_right_below_a_traceback_is_drawn_by_who_leaves(tmp_path: Path) -> None:
    """tqdm draws its bar once more in `close()`; what goes on draws it further."""
    raised = RAISED.replace("<module>", "evaluate") + "AssertionError: Torch not compiled with CUDA enabled\n"
    assert verdict(tmp_path, raised + BAR)["outcome"] == "incident"
    on = "".join(f"step {n} loss 2.{n}\n" for n in range(10, 40))
    assert verdict(tmp_path, raised + BAR + on)["outcome"] == "healthy"


def test_unknown_lines_of_the_kernel_are_no_proof_of_health(tmp_path: Path) -> None:
    line = "[22340.220490] somegpu: sq_intr: error, detail 0x00000000, type 1, sh 1, priv 1, wave_id 4\n"
    assert verdict(tmp_path, line * 5, "dmesg.txt")["outcome"] == "undetermined"
