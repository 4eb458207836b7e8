"""Standard input and named pipes are inputs like files: plain, packed, beside others, and gone afterwards."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from packed import tar_of

from conftest import SAMPLES
from postmortem import analyze
from postmortem.input import held

LOGS = SAMPLES / "oom-on-second-host" / "logs"
KERNEL = (LOGS / "node-b" / "kernel" / "dmesg.txt").read_bytes()


def piped(given: bytes, *arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "postmortem", "analyze", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=120, **how)


def verdict(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)["verdict"]
    return found


@pytest.mark.parametrize(("name", "pack"), [("-", gzip.compress), ("/dev/stdin", bytes)], ids=["gzip", "plain"])
def test_a_log_comes_through_standard_input(pack: Any, name: str, tmp_path: Path) -> None:
    """`kubectl logs … | postmortem analyze -`: cited as `stdin:85`, and nothing is left in the temporary folder."""
    there = analyze([str(LOGS / "node-b" / "kernel" / "dmesg.txt")]).document["verdict"]["evidence"][0]
    done = piped(pack(KERNEL), name, "--format", "json", env={**os.environ, "TMPDIR": str(tmp_path)})
    found = verdict(done)
    assert (found["pattern"], found["evidence"][0]["source"], found["evidence"][0]["line"]) == (
        "kernel-oom-killed-process",
        "stdin",
        there["line"],
    )
    assert list(tmp_path.iterdir()) == []


def test_an_archive_through_a_pipe_has_the_verdict_of_the_folder() -> None:
    whole = analyze([str(LOGS)]).document["verdict"]
    archive = tar_of({str(p.relative_to(LOGS)): p.read_bytes() for p in sorted(LOGS.rglob("*")) if p.is_file()})
    found = verdict(piped(gzip.compress(archive), "-", "--format", "json"))
    assert found["headline"] == whole["headline"]
    assert found["evidence"][0]["source"] == f"stdin!/{whole['evidence'][0]['source']}"


def test_a_pipe_and_a_folder_are_one_incident(tmp_path: Path) -> None:
    """The kernel log comes by ssh, the rest lies here: process substitution gives `/dev/fd/N`, mkfifo a name."""
    rest = tmp_path / "logs"
    for path in LOGS.rglob("*"):
        if path.is_file() and path.name != "dmesg.txt":
            copy = rest / path.relative_to(LOGS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    fifo = tmp_path / "dmesg.txt"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(KERNEL,))
    writer.start()
    found = analyze([str(fifo), str(rest)]).document["verdict"]
    writer.join()
    assert (found["pattern"], found["culprit"]["ranks"]) == ("kernel-oom-killed-process", [3])
    assert found["evidence"][0]["source"] == "dmesg.txt"


def test_nothing_on_standard_input_is_one_sentence_with_a_next_step() -> None:
    done = piped(b"", "-")
    assert done.returncode == 3 and done.stderr.startswith(b"postmortem: standard input: no readable log")
    closed = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m postmortem analyze - <&-"], capture_output=True, check=False
    )
    assert closed.returncode == 2 and b"standard input is closed" in closed.stderr


def test_no_room_for_the_input_is_an_error_with_a_hint(tmp_path: Path) -> None:
    fifo = tmp_path / "train.log"
    os.mkfifo(fifo)
    # a file may have 1 KiB here: the same error path as a full disk
    script = f"ulimit -f 1; timeout 60 yes step 1 > {fifo} & exec {sys.executable} -m postmortem analyze {fifo}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False, timeout=120)
    assert done.returncode == 1 and b"could not store the input from train.log" in done.stderr
    assert b"TMPDIR=" in done.stderr and b"Traceback" not in done.stderr


def test_a_terminal_gets_a_prompt() -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-m", "postmortem", "analyze", "-"], stdin=theirs, stderr=subprocess.PIPE)
    assert run.stderr is not None and run.stderr.readline() == b"reading standard input; Ctrl-D ends it\n"
    os.write(ours, b"\x04")
    assert run.wait(60) == 3
    run.stderr.close()
    os.close(ours)
    os.close(theirs)


def test_a_path_that_was_given_twice_is_read_once(tmp_path: Path) -> None:
    with held([str(tmp_path), str(tmp_path)]) as files:
        assert files == [str(tmp_path), str(tmp_path)]
