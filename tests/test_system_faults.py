"""Faults of the system: closed and full outputs, signals, an empty baseline, bare carriage returns, and texts that
would control a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import GOOD, ROOT, python
from postmortem import report
from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.cli.app import run
from postmortem.report import json as plain

OOM = ROOT / "sample_logs" / "host-oom-cache-of-rank-2" / "logs"
TRACE = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 31, in main\n    loss.backward()\n'
    "RuntimeError: CUDA error: an illegal memory access was encountered\n"
)


# ── outputs and signals ─────────────────────────────────────────────────────────────────────────────────────


def shell(line: str) -> subprocess.CompletedProcess[str]:
    command = line.format(python=sys.executable, logs=OOM)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", *(pytest.param(one, marks=pytest.mark.slow) for one in ("2>/dev/full", "2>&-", ">&-"))]
)
def test_a_closed_output_does_not_cost_the_report(closed: str, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    done = shell(f"{{python}} -m postmortem analyze {{logs}} --output {target} {closed}")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    page = target.read_text()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")


@pytest.mark.parametrize("lost", [">/dev/full", pytest.param(">&-", marks=pytest.mark.slow)])
def test_data_that_cannot_be_written_is_an_error_with_a_hint(lost: str) -> None:
    done = shell(f"{{python}} -m postmortem analyze {{logs}} --format json {lost}")
    assert done.returncode == 1 and "standard output" in done.stderr and "--output FILE" in done.stderr
    assert "internal error" not in done.stderr


CHILD = """
import os, sys, threading, time
from postmortem import reading
from postmortem.__main__ import main
real = reading._read
def slow(job):
    if job.container.label != "a.log":
        print("reading", flush=True)
        time.sleep(60)
    return real(job)
reading._read = slow
sys.argv = ["postmortem", "analyze", sys.argv[1], "--output", sys.argv[2]]
main()
"""


def signals(**codes: int) -> pytest.MarkDecorator:
    """Each signal with its exit code; the first in the fast suite too."""
    rows = [pytest.param(*row, marks=pytest.mark.slow if n else ()) for n, row in enumerate(codes.items())]
    return pytest.mark.parametrize(("name", "code"), rows)


@signals(SIGINT=130, SIGTERM=143, SIGHUP=129)
def test_a_signal_gives_the_partial_report(name: str, code: int, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "report.html"
    logs.mkdir()
    for file in ("a.log", "b.log"):
        (logs / file).write_text(GOOD)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(logs), str(target)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert child.stdout and child.stdout.readline() == "reading\n"
    child.send_signal(getattr(signal, name))
    _, errors = child.communicate(timeout=60)
    assert child.returncode == code and "interrupted; the report covers" in errors and "Traceback" not in errors
    assert "b.log: interrupted before it was read" in target.read_text()


STARTING = """
import os, signal, sys, threading, time
from multiprocessing import popen_fork, popen_spawn_posix
from postmortem.__main__ import main
def signaled(start):
    def launch(self, process):
        start(self, process)
        while "FIRST" in os.environ and not os.path.exists(os.environ["FIRST"]):
            time.sleep(0.01)
        signal.raise_signal(signal.{name})
    return launch
for of in popen_fork, popen_spawn_posix:
    of.Popen._launch = signaled(of.Popen._launch)
if {threads}:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
sys.argv = ["postmortem", "analyze", sys.argv[1], "--output", sys.argv[2], "--jobs", "2"]
main()
"""


@signals(SIGTERM=143, SIGINT=130)
@pytest.mark.parametrize("threads", [False, True], ids=["copies", "new interpreters"])
def test_a_signal_waits_until_the_workers_are_started(name: str, code: int, threads: bool, tmp_path: Path) -> None:
    """A child that the pool does not know of yet dies of a closed pipe, with a traceback."""
    for file in ("a.log", "b.log"):
        (tmp_path / file).write_text(GOOD * 40_000)
    done = python("-c", STARTING.format(name=name, threads=threads), tmp_path, tmp_path / "report.html")
    assert done.returncode == code and done.stderr == "postmortem: interrupted; nothing was written\n"


BUSY = """
import os, signal, sys, time
if "--multiprocessing-fork" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        os.mkdir(os.environ["FIRST"])
        time.sleep(2)
    except FileExistsError:
        time.sleep(0.5)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
"""


@pytest.mark.slow
def test_a_worker_finds_its_channel_while_another_is_slow_to_end(tmp_path: Path) -> None:
    """On a busy host a worker that waits for the disk ends late after SIGTERM. Its neighbor, still starting, looked
    for the lock of a channel that was closed already: 1 in 11,000 tests."""
    for file in ("a.log", "b.log"):
        (tmp_path / file).write_text(GOOD * 40_000)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BUSY)
    slow = {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}", "FIRST": str(tmp_path / "first")}
    done = python("-c", STARTING.format(name="SIGTERM", threads=True), tmp_path, tmp_path / "report.html", env=slow)
    assert (tmp_path / "first").exists() and done.returncode == 143
    assert done.stderr == "postmortem: interrupted; nothing was written\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_children_are_silent_when_all_are_stopped(name: str, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all processes, some of which have only begun to start."""
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(GOOD * 20_000)
    for tenth in range(3, 12, 2):
        words = ["analyze", str(tmp_path), "--output", str(tmp_path / "r.html"), "--jobs", "2"]
        child = subprocess.Popen(
            [sys.executable, "-m", "postmortem", *words],
            stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        time.sleep(tenth / 10)
        if child.poll() is None:
            os.killpg(child.pid, getattr(signal, name))
        _, errors = child.communicate(timeout=60)
        assert "KeyboardInterrupt" not in errors and "Traceback" not in errors, errors


# ── a baseline ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_baseline_without_a_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data in (
        ("none", b""),
        ("x.log", Path(sys.executable).read_bytes()[:5000]),
        ("x.gz", b"\x1f\x8b\x08" + bytes(40)),
    ):
        base = tmp_path / f"base-{name}"
        base.mkdir()
        if data:
            (base / name).write_bytes(data)
        words = ["analyze", str(OOM), "--baseline", str(base), "--output", str(tmp_path / "r.html")]
        assert run(words) == 2 and f"--baseline {base}" in capsys.readouterr().err


# ── line ends ───────────────────────────────────────────────────────────────────────────────────────────────

BAR = " 12%|█▏        | 12/100 [00:01<00:08, 10.2it/s]"
RETURNED = {
    "bars before": f"\r{BAR}\r{BAR}\r{TRACE}",
    "a bar over the exception": TRACE.replace("encountered\n", f"encountered\r{BAR}\n"),
    "a word over the exception": TRACE.rstrip("\n") + "\rdone\n",
    "a bar in front of the exception": TRACE.replace("RuntimeError", f"{BAR}\rRuntimeError"),
    "a bar in front of a frame": TRACE.replace("  File", f"{BAR}\r  File"),
    "only returns": (GOOD + TRACE).replace("\n", "\r"),
    "only returns, and one end": (GOOD + TRACE).replace("\n", "\r") + "\n",
    "two returns": TRACE.replace("\n", "\r\r\n"),
}


def test_a_bare_return_hides_no_exception() -> None:
    for name, text in RETURNED.items():
        events = read_text(text)
        (found,) = [e for e in events if e.kind == "exception"]
        assert (found.fields["type"], found.fields["code"]) == ("RuntimeError", "train.py:31"), name
        assert any(e.pattern == "cuda-illegal-address" for e in events), name


def test_a_log_of_returns_has_lines(tmp_path: Path) -> None:
    working = GOOD.rpartition("2026")[0]
    (tmp_path / "rank0.log").write_text((working + TRACE).replace("\n", "\r"))
    document = analyze([str(tmp_path)]).document
    assert document["verdict"]["pattern"] == "cuda-illegal-address"
    assert document["verdict"]["evidence"][0]["line"] == 1, "the file has one line"


# ── texts that control a terminal ───────────────────────────────────────────────────────────────────────────

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@settings(max_examples=40)
@given(st.recursive(st.text() | st.none() | st.floats(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_value_of_a_json_text_controls_a_terminal(value: Any) -> None:
    """`jq -r` prints the content of a string, not its JSON form."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [t for item in value.items() for part in item for t in texts(part)]
        return [t for item in value for t in texts(item)] if isinstance(value, list) else [str(value)]

    for text in texts(json.loads(plain.harmless(plain.dump(value)))):
        assert not CONTROLS.search(text)


@given(st.text(st.characters(exclude_categories=["C"])))
def test_a_plain_text_comes_back_as_it_was(text: str) -> None:
    assert re.search("[\u00ad\u180e\u2028\u2029]", text) or json.loads(plain.harmless(plain.dump([text]))) == [text]


def test_a_log_with_control_sequences_is_harmless_in_json(tmp_path: Path) -> None:
    evil = "RuntimeError: \x1b]0;pwned\x07 \u202egnp.exe \x9b31m\n"
    (tmp_path / "rank0.log").write_text(GOOD.rpartition("2026")[0] + TRACE.replace("RuntimeError: ", evil))
    incident = analyze([str(tmp_path)])
    for text in (report.render_json(incident), report.render_ndjson(incident), report.render_brief(incident)):
        for line in text.splitlines():
            assert not CONTROLS.search(line) and "\\u001b" not in line


def test_errors_show_control_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["analyze", "\x1b[31mnowhere"], ["explain", "\x1b]0;pwned\x07"]):
        assert run(words) == 2
        assert not CONTROLS.search(capsys.readouterr().err.replace("\n", ""))
