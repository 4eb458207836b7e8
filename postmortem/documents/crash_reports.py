"""What a system keeps of a crash: systemd-coredump's lists, and apport's reports.

           PID: 20075 (python3)                                    coredumpctl info
        Signal: 11 (SEGV)
     Timestamp: Fri 2026-11-20 20:59:37 UTC (2min ago)
  Command Line: /opt/venv/bin/python3 -u train.py
      Hostname: gpu-3
                #0  0x00007fe3e635f4be gather_row (libkernels.so + 0x24be)

TIME                          PID  UID GID SIG     COREFILE EXE                     SIZE      coredumpctl list
Fri 2026-11-20 20:59:37 UTC 20075 1000 100 SIGSEGV present  /usr/bin/python3.11     11.2M

ProblemType: Crash                                                 apport: /var/crash/*.crash
ProcEnviron:
 RANK=3
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.documents import crash, debugger
from postmortem.formats import times
from postmortem.formats.excerpt import decode, timed
from postmortem.formats.frames import Frames
from postmortem.model import Event, Source
from postmortem.model.digits import number, whole
from postmortem.privacy import cut
from postmortem.system import forms

_FORMS = forms.regexes("documents/crashes")
KEYS = 64  # characters of a key
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def coredumpctl(source: Source, content: bytes) -> Iterator[Event]:
    """A crash for each process of `coredumpctl info` or `coredumpctl list`."""
    lines = [decode(line) for line in content[: 8 << 20].split(b"\n")]
    starts = [i for i, line in enumerate(lines) if _FORMS["coredump-pid"].match(line)]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        yield from _info(source, lines, at, end)
    for i, line in enumerate(lines):
        if m := _FORMS["coredump-row"].match(line):
            one = crash.event(source, lines, i, crash.signal_of(m["signal"]), [], "coredumpctl", whole(m["pid"]))
            yield timed(_of(one, m["exe"]), times.find(m["time"]))


def _info(source: Source, lines: list[str], at: int, end: int) -> Iterator[Event]:
    pairs = [(i, key.strip(), value.strip()) for i in range(at, end) for key, _, value in [lines[i].partition(": ")]]
    values = {key: (i, value) for i, key, value in reversed(pairs) if len(key) < KEYS}
    if "Signal" not in values:
        return
    frames: Frames = []
    for i in range(at, end):
        if m := _FORMS["coredump-frame"].match(lines[i]):
            if m["n"] == "0" and frames:
                break  # the next thread: the first is the one that crashed
            frames.append((m["lib"] or "?", 0, m["func"].replace("n/a", "??")))
    pid = whole(lines[at].split()[1])
    row, signal = values["Signal"]
    host = values.get("Hostname", (0, ""))[1] or source.host
    one = crash.event(source, lines, row, crash.signal_of(signal), frames, "coredumpctl", pid, host=host)
    yield timed(_of(one, values.get("Executable", (0, ""))[1]), times.find(values.get("Timestamp", (0, ""))[1]))


def _of(event: Event, program: str) -> Event:
    """The crash with the name of the program, which decides whether it may be a rank."""
    return event._replace(fields={**event.fields, "comm": program.rpartition("/")[2]}) if program else event


def apport(source: Source, content: bytes) -> Iterator[Event]:
    """The crash of an apport report. `CoreDump` is left out: the report has its registers and stacks as text."""
    text = content.split(b"\nCoreDump: base64", 1)[0][: 8 << 20]
    lines = [decode(line) for line in text.split(b"\n")]
    places = {key: i for i, line in enumerate(lines) if line[:1].isalpha() for key in [line.partition(":")[0]]}
    values = {key: lines[i].partition(":")[2].strip() for key, i in places.items()}
    signal = values.get("SignalName") or values.get("Signal")
    if not signal:
        return
    environment = dict(line.strip().partition("=")[::2] for line in _block(lines, places, "ProcEnviron"))
    rank = next((n for key in RANKS if (n := number(environment.get(key, ""))) is not None), source.rank)
    status = (line.split() for line in _block(lines, places, "ProcStatus"))
    pid = next((number(words[1]) for words in status if len(words) == 2 and words[0] == "Pid:"), None)
    thread = max(debugger.threads_of(_block(lines, places, "Stacktrace")), key=lambda t: len(t.frames), default=None)
    frames, arguments = (thread.frames, thread.arguments) if thread else ([], [])
    at = places.get("SignalName", places.get("Signal", 0))
    name = crash.signal_of(signal) if not signal.isdecimal() else crash.signal_number(whole(signal))
    one = crash.event(source, lines, at, name, frames, "apport", pid, arguments=arguments, rank=rank)
    one = _of(one, cut(values.get("ExecutablePath", ""), 300))
    yield timed(one, times.find(values.get("Date", "")))


def _block(lines: list[str], places: dict[str, int], key: str) -> list[str]:
    """The lines below a key, without the space before each."""
    start = places.get(key, len(lines)) + 1
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return [line[1:] for line in lines[start:end]]
