"""For the tests of `postmortem collect` and `watch`: jobs that hang, the commands, and the content of an archive."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import zstandard

from conftest import python
from postmortem.analyze import analyze
from postmortem.report import render_json

HANG = """\
import time, datetime, torch, torch.distributed as dist

def load_batch(step):
    while step == 3 and dist.get_rank() == 1:
        print("waiting", flush=True)
        time.sleep(600)
    return torch.ones(4)

dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
for step in range(100):
    batch = load_batch(step)
    print(f"step {step}", flush=True)
    dist.all_reduce(batch)
"""
WAITS = """\
import time

def wait_for_the_disk():
    print("waiting", flush=True)
    time.sleep(600)

wait_for_the_disk()
"""


@contextlib.contextmanager
def ranks(folder: Path, text: str, run: str, world: int = 2, **more: str) -> Iterator[list[int]]:
    """Start processes with a rank's environment that run `text` until the last of them waits; return their pids."""
    script = folder / "train.py"
    script.write_text(text)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    base = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    base |= {"MASTER_PORT": port, "TORCHELASTIC_RUN_ID": run, **more}
    logs = [folder / f"rank{n}.log" for n in range(world)]
    started = []
    for n, log in enumerate(logs):
        env = {**base, "RANK": str(n), "LOCAL_RANK": str(n)}
        with log.open("wb") as out:
            started.append(subprocess.Popen([sys.executable, script], stdout=out, stderr=out, env=env, cwd=folder))
    try:
        until = time.monotonic() + 120  # torch is imported, on a busy machine
        while "waiting" not in logs[-1].read_text() or (world > 1 and "step 3" not in logs[0].read_text()):
            assert time.monotonic() < until, [log.read_text() for log in logs]
            time.sleep(0.05)
        time.sleep(0.2)  # from the print to the wait
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.wait()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "postmortem", *map(str, words)]


def collect(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return python("-m", "postmortem", "collect", *arguments, env={**(env or {})})


def document(*paths: object) -> dict:
    """Return the document of `analyze`."""
    return json.loads(render_json(analyze([str(path) for path in paths])))


def members(archive: Path) -> dict[str, bytes]:
    """Return the files of an archive by name, as far as it reaches, by the standard readers."""
    packed = zstandard.ZstdDecompressor().stream_reader(archive.open("rb"), read_across_frames=True)
    found = {}
    with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(packed.read())) as tar:
        for member in tar:
            data = tar.extractfile(member)
            assert data
            found[member.name] = data.read()
    return found


def index(archive: Path) -> dict:
    return json.loads(members(archive)["index.json"])


def tool(folder: Path, name: str, text: str) -> Path:
    """Write a substitute for a command."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path
