"""A signal at a random moment of a job under `postmortem run`, and which promises that breaks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from run_jobs import alive, begin, job, journal, kept, launcher, ranks_of, torchrun, until

from postmortem.analyze import analyze

NUMBERS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGKILL")
TARGETS = ("wrapper", "launcher", "rank")
PATIENCE_S = 240.0  # a job of 10 s, on a host that has much else to do
LONGEST = 6.0  # seconds; a short job is training by then


class Moment(NamedTuple):
    """One signal, to whom, and when."""

    name: str
    to: str
    after: float

    def __str__(self) -> str:
        return f"{self.name} to the {self.to} after {self.after:.2f} s"


def random_moments(number: int, seed: int) -> list[Moment]:
    """Each signal to each of them, in an order by lot, as often as that gives this number."""
    lot = random.Random(seed)
    pairs = [(name, to) for name in NUMBERS for to in TARGETS]
    lot.shuffle(pairs)
    return [Moment(name, to, lot.uniform(0, LONGEST)) for name, to in islice(cycle(pairs), number)]


def broken(folder: Path, moment: Moment) -> list[str]:
    """What did not hold: empty where all did."""
    running = begin(folder, job(folder, "healthy", ranks=2, steps=25, step=4))
    until(lambda: any(file.read_bytes().endswith(b"\n") for file in folder.glob("runs/*/run.jsonl")), PATIENCE_S)
    _send(_target(folder, running, moment.to), moment)
    faults = [] if _readable(folder) else ["what was there in that moment was not analyzed"]
    code = running.wait(PATIENCE_S)
    until(lambda: not torchrun(folder), PATIENCE_S)
    faults += [f"rank {r['pid']} lives on" for r in journal(folder) if r["event"] == "start" and alive(r["pid"])]
    faults += _of_the_end(folder, moment, code) + _of_the_folder(folder)
    return faults if _readable(folder) else [*faults, "the folder was not analyzed"]


def _target(folder: Path, running: subprocess.Popen[bytes], to: str) -> int:
    if to == "rank":
        return ranks_of(folder, 2, PATIENCE_S)[1]
    return running.pid if to == "wrapper" else int(until(lambda: launcher(folder), PATIENCE_S))


def _send(pid: int, moment: Moment) -> None:
    time.sleep(moment.after)
    try:
        os.kill(pid, signal.Signals[moment.name])
        if moment.name == "SIGSTOP":
            time.sleep(1)
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:  # it had finished before
        pass


def _readable(folder: Path) -> bool:
    """Whether the folder gives a verdict as it is, whoever still writes into it."""
    found = analyze([str(kept(folder))]).document["verdict"]["outcome"]
    return found in ("incident", "undetermined", "healthy")


def _of_the_end(folder: Path, moment: Moment, code: int) -> list[str]:
    """The code is the command's, and its end the journal's last line; a killed wrapper has none."""
    end = journal(folder)[-1]
    if moment[:2] == ("SIGKILL", "wrapper") and code == -signal.SIGKILL:
        return ["a killed wrapper wrote an end"] if end["event"] == "done" else []
    if end["event"] != "done":
        return ["the journal has no end"]
    own = -end["signal"] or end["code"]
    told = [] if code == own else [f"the wrapper ended with {code}, the command with {own}"]
    if moment[:2] == ("SIGKILL", "launcher") and own not in (-signal.SIGKILL, 0):
        told.append(f"a killed launcher ended with {own}")
    return told


def _of_the_folder(folder: Path) -> list[str]:
    """Both streams, a journal of whole lines, and of each rank that was seen to start its end."""
    missing = [f"no {name}" for name in ("stdout.log", "stderr.log") if not (kept(folder) / name).exists()]
    try:
        records = journal(folder)
    except json.JSONDecodeError:
        return [*missing, "a line of the journal is torn"]
    if records[-1]["event"] != "done":
        return missing
    ends = {r["pid"] for r in records if r["event"] == "end"}
    return missing + [f"no end of {r['pid']}" for r in records if r["event"] == "start" and r["pid"] not in ends]
