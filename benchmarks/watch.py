"""Real hangs and real quiet runs under `postmortem watch`: how many are named or stay silent, and how fast.

    python benchmarks/watch.py                      the cases that the rules were made with
    python benchmarks/watch.py --unseen             the third that was held out
    python benchmarks/watch.py --only sigstop

Each case is two or three ranks of torchrun with gloo that train for a while. Needs torch and py-spy; root for
the lost host (two network namespaces).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOB = ROOT / "benchmarks" / "jobs" / "watched.py"


@dataclass(frozen=True)
class Case:
    name: str
    hangs: bool
    culprit: tuple[int, ...] = (1,)
    how: str = "files"  # files | console | run | logdir | hosts
    unseen: bool = False
    patience: float = 0.0


CASES = (
    Case("slow loader", True),
    Case("other collective", True, (0, 1), how="console"),
    Case("sigstop", True, how="run"),
    Case("lock", True),
    Case("blocked read", True, how="logdir"),
    Case("one collective more", True, (0, 1)),
    Case("no rank sends", True, ()),
    Case("loader worker stuck", True),
    Case("finished early", True),
    Case("file lock", True, how="console"),
    Case("empty queue", True),
    Case("child never ends", True, how="run"),
    Case("busy for ever", True),
    Case("lost host", True, (), how="hosts"),
    Case("data server silent", True, unseen=True, how="console"),
    Case("checkpoint into a full pipe", True, (0,), unseen=True),
    Case("evaluation on one rank", True, (0, 1), unseen=True, how="logdir"),
    Case("all stop", True, (0, 1), unseen=True),
    Case("GIL held", True, unseen=True, how="run"),
    Case("loader reports that it waits", True, unseen=True),
    Case("never joins", True, unseen=True),
    Case("evaluation computes", False),
    Case("evaluation unannounced", False, how="console"),
    Case("checkpoint grows", False),
    Case("compile in children", False),
    Case("slow first step", False, how="run"),
    Case("data pause", False),
    Case("bursty", False),
    Case("buffered output", False, how="console"),
    Case("announced download", False),
    Case("longer and longer", False),
    Case("slow steps", False),
    Case("one rank prints", False),
    Case("restart", False, how="logdir"),
    Case("rotated", False),
    Case("evaluation waits for a server", False, unseen=True),
    Case("one long call", False, unseen=True, how="console"),
    Case("progress bar", False, unseen=True),
    Case("heartbeat", False, unseen=True, how="run"),
    Case("checkpoint to a slow disk", False, unseen=True),
    Case("preprocessing on rank 0", False, unseen=True),
    Case("trickle", False, unseen=True),
)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def start(case: Case, folder: Path, patience: float) -> tuple[list[subprocess.Popen[bytes]], Path, list[str]]:
    """The job, what is to be watched, and namespaces to remove."""
    script, logs = folder / "train.py", folder / "logs"
    shutil.copy(JOB, script)
    logs.mkdir()
    if case.how == "hosts":
        return _two_hosts(script, logs, case, patience)
    run = f"bench{secrets.token_hex(4)}"
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
    ]
    launch += ["--nproc-per-node=2", f"--rdzv-id={run}", "--max-restarts=1" if case.name == "restart" else ""]
    if case.how in ("files", "logdir"):
        launch += ["--log-dir", str(logs), "--redirects=3"]
    words = [word for word in launch if word] + [str(script), case.name, str(patience)]
    if case.how == "run":
        words = [
            sys.executable,
            "-m",
            "postmortem",
            "run",
            "--folder",
            str(logs),
            "--no-analyze",
            "--",
            *words,
        ]
    with (Path(os.devnull) if case.how == "run" else logs / "agent.log").open("wb") as out:
        job = subprocess.Popen(words, stdout=out, stderr=out, cwd=folder, env=environment(), start_new_session=True)
    if case.how == "run":
        while not list(logs.glob("*/run.jsonl")):
            time.sleep(0.1)
        return [job], next(logs.glob("*/run.jsonl")).parent, []
    return [job], logs, []


def _two_hosts(
    script: Path, logs: Path, case: Case, patience: float
) -> tuple[list[subprocess.Popen[bytes]], Path, list[str]]:
    tag = secrets.token_hex(2)
    names = [f"pmw{tag}{side}" for side in "ab"]
    link = [f"v{tag}{side}" for side in "ab"]
    for name in names:
        ip("netns", "add", name)
    ip("link", "add", link[0], "netns", names[0], "type", "veth", "peer", "name", link[1], "netns", names[1])
    jobs = []
    for n, name in enumerate(names):
        ip("-n", name, "addr", "add", f"10.99.0.{n + 1}/24", "dev", link[n])
        ip("-n", name, "link", "set", link[n], "up")
        ip("-n", name, "link", "set", "lo", "up")
        env = environment() | {"RANK": str(n), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29400"}
        env |= {
            "MASTER_ADDR": "10.99.0.1",
            "GLOO_SOCKET_IFNAME": link[n],
            "TORCHELASTIC_RUN_ID": f"hosts{tag}",
        }
        words = ["ip", "netns", "exec", name, sys.executable, str(script), case.name, str(patience)]
        with (logs / f"rank{n}.log").open("wb") as out:
            jobs.append(
                subprocess.Popen(words, stdout=out, stderr=out, env=env, cwd=script.parent, start_new_session=True)
            )
    return jobs, logs, names


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def text_of(folder: Path) -> str:
    """All that is in its logs; torchrun removes folders meanwhile."""
    texts = []
    for top, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                texts.append(Path(top, name).read_text(errors="replace") if name.endswith(".log") else "")
    return "".join(texts)


def ranks_below(jobs: list[subprocess.Popen[bytes]]) -> dict[int, int]:
    sessions, found = {job.pid for job in jobs}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            pid, above = int(entry.name), set()
            env = dict(pair.split(b"=", 1) for pair in (entry / "environ").read_bytes().split(b"\0") if b"=" in pair)
            if b"train.py" not in (entry / "cmdline").read_bytes() or b"RANK" not in env:
                continue
            at = pid
            while at > 1:
                above.add(at)
                at = int((Path("/proc") / str(at) / "stat").read_text().rpartition(")")[2].split()[1])
            if above & sessions:
                found.setdefault(int(env[b"RANK"]), pid)
        except (OSError, ValueError):
            continue
    return found


def disturb(case: Case, jobs: list[subprocess.Popen[bytes]], logs: Path, names: list[str], stop: float) -> float:
    """What happens to the job from outside; when it hung."""
    while time.monotonic() < stop:
        text = text_of(logs)
        if case.name == "never joins" and "starting" in text:
            return time.monotonic()
        if case.name == "rotated" and "step 20" in text:
            for path in list(logs.rglob("stdout.log")):
                shutil.copy(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)
            return time.monotonic()
        if case.hangs and "step 29" in text:
            if case.name == "sigstop":
                os.kill(ranks_below(jobs)[1], signal.SIGSTOP)
            elif case.name == "lost host":
                dev = next(
                    line.split(":")[1].strip().split("@")[0]
                    for line in subprocess.run(
                        ["ip", "-n", names[0], "-o", "link"], capture_output=True, text=True
                    ).stdout.splitlines()
                    if ": v" in line
                )
                subprocess.run(["ip", "-n", names[0], "link", "set", dev, "down"], check=True)
            return time.monotonic()
        if any(job.poll() is not None for job in jobs):
            return time.monotonic()
        time.sleep(0.1)
    return time.monotonic()


def end(jobs: list[subprocess.Popen[bytes]], names: list[str]) -> None:
    for pid in ranks_below(jobs).values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for job in jobs:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    for name in names:
        subprocess.run(["ip", "netns", "del", name])


TOLD = ("took_s", "stacks_after_s", "quiet_s", "headline", "category", "ranks", "stacks")


def trial(case: Case, patience: float, limit: float) -> dict[str, object]:
    patience = case.patience or patience
    folder = Path(tempfile.mkdtemp(prefix="watch-"))
    jobs, logs, names = start(case, folder, patience)
    evidence = folder / "evidence"
    words = [sys.executable, "-m", "postmortem", "watch", str(logs), "--format", "json", "--interval", "2"]
    words += ["--patience", str(patience), "--folder", str(evidence)] + (["--exit-code"] if case.hangs else [])
    began = time.monotonic()
    with (folder / "watch.jsonl").open("wb") as out, (folder / "watch.err").open("wb") as err:
        watch = subprocess.Popen(words, stdout=out, stderr=err, env=environment(), cwd=folder)
    try:
        at = disturb(case, jobs, logs, names, began + limit)
        watch.wait(max(1.0, began + limit - time.monotonic()))
        named = time.monotonic()
    except subprocess.TimeoutExpired:
        watch.terminate()  # a background job may ignore SIGINT
        watch.wait(20)
        named = None
    finally:
        end(jobs, names)
    records = [json.loads(line) for line in (folder / "watch.jsonl").read_text().splitlines()]
    hang = next((r for r in records if r["event"] == "hang"), None)
    over = next((r for r in records if r["event"] == "end"), None)
    result = {"case": case.name, "named": hang is not None, "code": watch.returncode, "folder": str(folder)}
    if hang:
        result |= {
            "after_s": round(named - at, 1) if named else None,
            "took_s": hang["took_s"],
            "quiet_s": hang["quiet_s"],
            "headline": hang["headline"],
            "category": hang["category"],
            "ranks": hang["ranks"],
            "stacks": hang["stacks"],
            "right": sorted(hang["ranks"] or []) == sorted(case.culprit),
        }
    if over:
        result["end"] = over["outcome"]
    rounds = [r for r in records if r["event"] == "state"]
    result["longest_s"] = max((r["quiet_s"] for r in rounds), default=0)
    result["states"] = sorted({r["state"] for r in rounds})
    result["ranks_here"] = max((r["ranks_here"] for r in rounds), default=0)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", choices=["hangs", "healthy", "all"], default="all")
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--patience", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=240.0)
    args = parser.parse_args()
    chosen = [c for c in CASES if (args.only in c.name if args.only else c.unseen == args.unseen)]
    chosen = [c for c in chosen if args.kind == "all" or c.hangs == (args.kind == "hangs")]
    with ThreadPoolExecutor(args.parallel) as pool:
        for case, result in zip(chosen, pool.map(lambda c: trial(c, args.patience, args.limit), chosen), strict=True):
            good = result["named"] == case.hangs
            print("ok  " if good else "BAD ", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
