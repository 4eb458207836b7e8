"""Runs a job in a folder that is a disk of this kind, and prints as JSON what others see of it.

`how` may have `signals`, which the job gets one after the other when it has printed `up` as often as `ups` says (`-TERM`:
its group too, as from a terminal); `pty`: its output is a terminal; `reads`: so many bytes of it are read. Its temporary
files are on the disk.
"""

import ctypes
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

SIZES = {"full": "size=2m", "small": "size=20m", "without inodes": "size=64m,nr_inodes=40", "read-only": "size=1m"}
SPACED_S = 0.4  # between two signals: the kernel keeps one of each number
LATEST_S = 100


def made(disk: str, folder: Path) -> Path:
    """Mount the disk with its content; return the job's working directory."""
    if disk in SIZES:
        subprocess.run(["mount", "-t", "tmpfs", "-o", SIZES[disk], "none", folder], check=True)
    work, fill = folder / "work", folder / "fill"
    for one in work, fill, folder / "hook", folder / "tmp":
        one.mkdir()
    try:
        number = 0
        while disk in ("full", "without inodes"):
            fill.joinpath(f"{number}").write_bytes(b"x" * 4096 * (disk == "full"))
            number += 1
    except OSError:
        for file in list(fill.iterdir())[:3]:  # what is left is the job's
            file.unlink()
    if disk == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    return work


def read(file: IO[bytes], kept: bytearray, most: int) -> None:
    try:
        while len(kept) < most and (piece := os.read(file.fileno(), min(1 << 16, most - len(kept)))):
            kept += piece
    except OSError:  # of a pty: nobody has it open any more
        pass
    file.close()


def run(words: list[str], work: Path, how: dict) -> tuple[int, list[str]]:
    """Run the job to its end; return its exit code and what it printed."""
    ends = [pty.openpty() if how.get("pty") else os.pipe() for _ in range(2)]
    streams = [(os.fdopen(end[0], "rb", buffering=0), bytearray()) for end in ends]
    job = subprocess.Popen(
        words, cwd=work, stdin=subprocess.PIPE, stdout=ends[0][1], stderr=ends[1][1], start_new_session=True
    )
    for end in ends:
        os.close(end[1])
    most = how.get("reads", sys.maxsize)
    readers = [threading.Thread(target=read, args=(*stream, most), daemon=True) for stream in streams]
    for reader in readers:
        reader.start()
    try:
        job.stdin.write(b"typed\nmore\n")
        job.stdin.close()
    except OSError:
        pass
    latest = time.monotonic() + LATEST_S
    for name in how.get("signals", ()):
        while streams[0][1].count(b"up") < how.get("ups", 1) and job.poll() is None and time.monotonic() < latest:
            time.sleep(0.02)
        time.sleep(SPACED_S)
        number = getattr(signal, f"SIG{name.lstrip('-')}")
        try:
            os.killpg(job.pid, number) if name[0] == "-" else os.kill(job.pid, number)
        except OSError:
            pass
    code = job.wait(LATEST_S)
    for reader in readers:
        reader.join(LATEST_S)
    return code, [bytes(kept).decode("latin1") for _, kept in streams]


def left() -> list[str]:
    """Return the commands of the processes that the job has left, and end them."""
    found = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        command = Path(f"/proc/{pid}/cmdline").read_text()
        if command and "\0postmortem\0run\0" not in command:  # ours copies output that may still come
            found.append(command)
            os.kill(int(pid), signal.SIGKILL)
    return sorted(found)


disk, folder, how, *words = sys.argv[1:]
work = made(disk, Path(folder))
os.environ["TMPDIR"] = f"{folder}/tmp"
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # processes that the job leaves are our children
code, (out, err) = run(words, work, json.loads(how))
files = sorted(str(path.relative_to(work)) for path in work.rglob("*"))
print(json.dumps({"code": code, "out": out, "err": err, "files": files, "left": left()}))
