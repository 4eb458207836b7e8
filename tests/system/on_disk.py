"""Runs a job in a folder that is a disk of this kind, and prints as JSON what others see of it."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

SIZES = {"full": "size=2m", "small": "size=20m", "without inodes": "size=64m,nr_inodes=40", "read-only": "size=1m"}
disk, folder, *words = sys.argv[1:]
if disk in SIZES:
    subprocess.run(["mount", "-t", "tmpfs", "-o", SIZES[disk], "none", folder], check=True)
work, fill = Path(folder, "work"), Path(folder, "fill")
for made in work, fill, Path(folder, "hook"):
    made.mkdir()
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
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # processes that the job leaves are our children
job = subprocess.Popen(words, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
out, err = (text.decode("latin1") for text in job.communicate(b"typed\nmore\n", timeout=90))
left = []
for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
    command = Path(f"/proc/{pid}/cmdline").read_text()
    if command and "\0postmortem\0run\0" not in command:  # ours copies output that may still come
        left.append(command)
        os.kill(int(pid), 9)
files = sorted(str(path.relative_to(work)) for path in work.rglob("*"))
print(json.dumps({"code": job.returncode, "out": out, "err": err, "files": files, "left": sorted(left)}))
