"""A signal at a random moment of a job under `postmortem run`, and the promises that it breaks."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from run_jobs import TORCHRUN, alive, begin, job, journal, ranks_of, run_folder, torchrun, wait_for

from postmortem.analyze import analyze

NUMBERS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGKILL")
TARGETS = ("wrapper", "launcher", "rank")
PATIENCE_S = 240.0  # for a job of 10 s, on a busy host
RANK = """import time
for step in range(25):
    print(f"step {step} loss 2.0", flush=True)
    time.sleep(0.2)
print("training finished", flush=True)
"""  # without torch it costs a quarter
LONGEST = 6.0  # seconds; a short job is training by then


class Moment(NamedTuple):
    """One signal, its target, and its time."""

    name: str
    to: str
    after: float

    def __str__(self) -> str:
        return f"{self.name} to the {self.to} after {self.after:.2f} s"


def random_moments(number: int, seed: int) -> list[Moment]:
    """Return each signal to each target in random order, repeated up to this number."""
    rng = random.Random(seed)
    pairs = [(name, to) for name in NUMBERS for to in TARGETS]
    rng.shuffle(pairs)
    return [Moment(name, to, rng.uniform(0, LONGEST)) for name, to in islice(cycle(pairs), number)]


def broken(folder: Path, moment: Moment, trains: bool = True) -> list[str]:
    """Return the broken promises of a job that trains, or only prints."""
    (folder / "rank.py").write_text(RANK)
    prints = [*TORCHRUN, "--nproc-per-node=2", "rank.py"]
    running = begin(folder, job(folder, "healthy", ranks=2, steps=25, step=4) if trains else prints)
    wait_for(lambda: any(file.read_bytes().endswith(b"\n") for file in folder.glob("runs/*/run.jsonl")), PATIENCE_S)
    if moment.to == "rank":
        pid = ranks_of(folder, 2, PATIENCE_S)[1]
    else:
        pid = running.pid if moment.to == "wrapper" else wait_for(lambda: torchrun(folder), PATIENCE_S)[0]
    time.sleep(moment.after)
    with suppress(ProcessLookupError):  # it had finished before
        os.kill(pid, signal.Signals[moment.name])
        if moment.name == "SIGSTOP":
            time.sleep(1)
            os.kill(pid, signal.SIGCONT)
    faults = [] if _readable(folder) else ["the folder at that moment was not analyzed"]
    code = running.wait(PATIENCE_S)
    wait_for(lambda: not torchrun(folder), PATIENCE_S)
    faults += [f"rank {r['pid']} lives on" for r in journal(folder) if r["event"] == "start" and alive(r["pid"])]
    faults += _of_the_end(folder, moment, code) + _of_the_folder(folder)
    return faults if _readable(folder) else [*faults, "the folder was not analyzed"]


def _readable(folder: Path) -> bool:
    found = analyze([str(run_folder(folder))]).document["verdict"]["outcome"]
    return found in ("incident", "undetermined", "healthy")


def _of_the_end(folder: Path, moment: Moment, code: int) -> list[str]:
    """The code is the command's, and its end the journal's last line; a killed wrapper writes none."""
    end = journal(folder)[-1]
    if moment[:2] == ("SIGKILL", "wrapper") and code == -signal.SIGKILL:
        return ["a killed wrapper wrote an end"] if end["event"] == "done" else []
    if end["event"] != "done":
        return ["the journal has no end"]
    own = -end["signal"] or end["code"]
    faults = [] if code == own else [f"the wrapper ended with {code}, the command with {own}"]
    if moment[:2] == ("SIGKILL", "launcher") and own not in (-signal.SIGKILL, 0):
        faults.append(f"a killed launcher ended with {own}")
    return faults


def _of_the_folder(folder: Path) -> list[str]:
    """Both streams, a journal of complete lines, and the end of each rank that was seen to start."""
    missing = [f"no {name}" for name in ("stdout.log", "stderr.log") if not (run_folder(folder) / name).exists()]
    try:
        records = journal(folder)
    except json.JSONDecodeError:
        return [*missing, "a line of the journal is incomplete"]
    if records[-1]["event"] != "done":
        return missing
    ends = {r["pid"] for r in records if r["event"] == "end"}
    return missing + [f"no end of {r['pid']}" for r in records if r["event"] == "start" and r["pid"] not in ends]
