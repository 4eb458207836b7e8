"""`postmortem collect` on many hosts: by a real sshd, a real Slurm, and a kubectl that is a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gathered import STANDS, collect, index, members, ranks, tool, verdict
from system.slurm import Slurm

from conftest import needs

KUBECTL = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(words) + "\\n")
at = words.index("--namespace")
del words[at : at + 2]
pods = ["train-worker-0", "train-worker-1", "train-worker-2"]
if words[:2] == ["get", "pods"]:
    print(json.dumps({{"items": [{{"metadata": {{"name": pod}}}} for pod in pods]}}))
elif words[0] == "exec":
    pod, program = words[words.index("-i") + 1], words[words.index("--") + 1:]
    if pod == "train-worker-2":
        sys.exit('error: cannot exec into a container in a completed pod; current phase is Failed')
    code = "import socket, sys; socket.gethostname = lambda: {{0!r}}; exec(sys.stdin.read())".format(pod)
    os.execv(sys.executable, [sys.executable, "-c", code, *program[2:]])
elif words[0] == "logs" and words[1] == "train-worker-2" and "--previous" in words:
    print("2026-11-20T21:00:00Z token=hf_" + "a1B2" * 9 + " RuntimeError: CUDA out of memory")
elif words[0] == "logs":
    sys.exit("Error from server (BadRequest): previous terminated container not found")
elif words[0] == "describe":
    print("Name:         train-worker-2\\nNamespace:    default\\nStatus:       Failed")
else:
    print("LAST SEEN   TYPE      REASON      OBJECT               MESSAGE")
"""


# ── ssh ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real sshd of this test's own; a PATH on which `ssh` reaches node-a and node-b through it, and node-c never."""
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    with socket.socket() as s, socket.socket() as closed:
        s.bind(("127.0.0.1", 0))
        closed.bind(("127.0.0.1", 0))
        port, nobody = s.getsockname()[1], closed.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"StrictModes no\nPidFile {folder}/pid\nUsePAM no\nPermitRootLogin yes\n"
    )
    (folder / "ssh_config").write_text(
        f"Host node-a node-b\n  Port {port}\nHost node-c\n  Port {nobody}\n"
        f"Host *\n  HostName 127.0.0.1\n  IdentityFile {folder}/user\n  UserKnownHostsFile {folder}/known\n"
        "  StrictHostKeyChecking accept-new\n  HostKeyAlias here\n"
    )
    ssh = shutil.which("ssh")
    tool(folder / "bin", "ssh", f'#!/bin/sh\nexec {ssh} -F {folder}/ssh_config "$@"\n')
    daemon = subprocess.Popen(
        [shutil.which("sshd"), "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert daemon.poll() is None and time.monotonic() < until
            time.sleep(0.05)
    yield f"{folder / 'bin'}:{os.environ['PATH']}"
    daemon.terminate()
    daemon.wait()


@needs("root", "sshd", "ssh", "py-spy")
def test_hosts_answer_over_ssh_and_one_does_not(tmp_path: Path, sshd: str) -> None:
    """Two names of this machine, so each keeps its own folder; the third host is down, and the archive says so."""
    archive = tmp_path / "hosts.tar.zst"
    with ranks(tmp_path, STANDS, "sshrun", world=1) as (pid,):
        done = collect(
            *("-o", archive, "--ssh", "node-a,node-b,node-c", "--job", "sshrun", "--python", sys.executable),
            env={"PATH": sshd},
        )
    assert done.returncode == 8
    assert "1 of 3 hosts did not answer in full: node-c" in done.stderr
    table = {row.split()[0]: row for row in done.stderr.splitlines() if row.startswith("node-")}
    assert "Connection refused" in table["node-c"]
    told = {host["asked"]: host for host in index(archive)["hosts"]}
    assert "Connection refused" in told["node-c"]["why"] and not told["node-a"]["why"]
    assert abs(told["node-a"]["clock_ahead_s"]) < 5
    names = {host["host"] for host in told.values()} - {""}
    assert len(names) == 2 and names & {"node-a", "node-b"}
    files = set(members(archive))
    for host in names:
        assert {f"host={host}/rank0.pid{pid}.stack.txt", f"host={host}/ps.txt"} <= files
    listed = {row["file"] for host in told.values() for row in host["items"] if row["file"]}
    assert listed == files - {"index.json"}
    # each host's files are told apart
    assert {s["host"] for s in verdict(archive)["sources"]} == {*names, None}


@needs("root", "sshd", "ssh")
def test_a_host_that_hangs_keeps_what_it_had_sent(tmp_path: Path, sshd: str) -> None:
    """Its nvidia-smi hangs longer than a host may take."""
    tool(tmp_path / "tools", "nvidia-smi", "#!/bin/sh\nexec sleep 25\n")
    python = tool(tmp_path / "tools", "python", f'#!/bin/sh\nPATH={tmp_path}/tools:$PATH exec {sys.executable} "$@"\n')
    archive = tmp_path / "slow.tar.zst"
    begun = time.monotonic()
    done = collect(
        *("-o", archive, "--ssh", "node-a", "--python", python, "--timeout", 5, "--job", "x"),
        env={"PATH": sshd},
    )
    assert time.monotonic() - begun < 20
    assert done.returncode == 8 and "no end after 5 s" in done.stderr
    (host,) = index(archive)["hosts"]
    assert host["why"] == "no end after 5 s"
    assert [row for row in host["items"] if row["file"].endswith("/ps.txt")]
    assert [name for name in members(archive) if name.endswith("/ps.txt")]


def test_hosts_are_listed_in_a_file(tmp_path: Path) -> None:
    from postmortem.live.collect.hosts import Hosts, commands

    (tmp_path / "hosts").write_text("node-a  # rack 1\nme@node-b\n\nnode-a\n")
    found = commands(Hosts("ssh", f"@{tmp_path}/hosts"), '{"job": "a b"}')
    assert list(found) == ["node-a", "me@node-b"]
    # a shell splits this one: each word is quoted
    assert found["node-a"][-2:] == ("node-a", """python3 - '{"job": "a b"}'""")


# ── kubectl ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_pods_answer_and_of_one_that_ended_the_previous_log_comes(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    tool(tmp_path / "bin", "kubectl", KUBECTL.format(python=sys.executable, calls=str(calls)))
    archive = tmp_path / "pods.tar.zst"
    done = collect(
        *("-o", archive, "--kubectl", "app=train", "-n", "ml", "--job", "x", "--python", "python3"),
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )
    assert done.returncode == 8 and "did not answer in full: train-worker-2" in done.stderr
    told = {host["asked"]: host for host in index(archive)["hosts"]}
    assert "current phase is Failed" in told["train-worker-2"]["why"]
    assert told["train-worker-0"]["host"] == "train-worker-0"
    found = members(archive)
    assert {"host=train-worker-0/ps.txt", "host=train-worker-1/ps.txt", "describe.txt", "events.txt"} <= set(found)
    previous = found["host=train-worker-2/previous.log"].decode()
    assert "CUDA out of memory" in previous and "hf_a1B2" not in previous  # redacted on its way in
    asked = [json.loads(line) for line in calls.read_text().splitlines()]
    assert all(words[words.index("--namespace") + 1] == "ml" for words in asked)
    kinds = {s["path"].partition("!/")[2]: (s["kind"], s["host"]) for s in verdict(archive)["sources"]}
    assert kinds["host=train-worker-2/previous.log"] == ("console", "train-worker-2")
    assert kinds["describe.txt"][0] == kinds["events.txt"][0] == "kubernetes"


# ── srun ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    cluster = Slurm()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@needs("slurm", "root", "py-spy")
def test_all_hosts_of_a_slurm_job(tmp_path: Path, slurm: Slurm) -> None:
    """While the job runs, in steps of its own beside it; then its archive has its ranks' stacks and the controller's
    words on it."""
    script = tmp_path / "train.py"
    script.write_text(STANDS)
    batch = tmp_path / "job.sh"
    batch.write_text(f"#!/bin/bash\nsrun --ntasks=2 --overlap {sys.executable} {script}\n")
    job = slurm.submit("--ntasks=2", f"--output={tmp_path}/out", batch)
    slurm.until(
        lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text().count("waiting") == 2,
        60,
        "it waits",
    )
    archive = tmp_path / "job.tar.zst"
    done = collect("-o", archive, "--srun", job, env=slurm.env)
    assert done.returncode == 0, done.stderr
    (host,) = index(archive)["hosts"]
    assert host["host"] == socket.gethostname() and not host["why"]
    stacks = [name for name in members(archive) if name.endswith(".stack.txt")]
    assert sorted(name.rpartition("/")[2].partition(".")[0] for name in stacks) == ["rank0", "rank1"]
    assert b"wait_for_the_disk" in members(archive)[stacks[0]]
    assert f"JobId={job} ".encode() in members(archive)["scontrol.txt"]
    slurm.run("scancel", job)
    done = collect("-o", tmp_path / "late.tar.zst", "--srun", "999999", env=slurm.env)
    assert done.returncode == 2 and "the job must still run" in done.stderr


# ── a host that lies ────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_that_lies_writes_no_file_of_its_choice(tmp_path: Path) -> None:
    """It is a container that somebody else filled: names that lead elsewhere, and an index of nonsense."""
    import io
    import tarfile

    answer = tmp_path / "answer.tar.gz"
    with tarfile.open(answer, "w:gz") as tar:
        for name, data in (
            ("../../etc/cron.d/x", b"1"),
            ("host=a/../../x", b"2"),
            ("/etc/passwd", b"3"),
            ("host=a/good.txt", b"4"),
            ("index.json", b'{"items": [1, 2], "now": "x"}'),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    tool(tmp_path / "bin", "ssh", f"#!/bin/sh\ncat >/dev/null\ncat {answer}\n")
    archive = tmp_path / "liar.tar.zst"
    done = collect("-o", archive, "--ssh", "a", env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert set(members(archive)) == {"host=a/good.txt", "index.json"}
    assert [row["file"] for row in index(archive)["hosts"][0]["items"]] == ["host=a/good.txt"]


def test_noise_is_an_answer_that_is_not_whole(tmp_path: Path) -> None:
    """A login shell prints a banner; a host without Python says so."""
    bin_ = tmp_path / "bin"
    tool(
        bin_,
        "ssh",
        "#!/bin/sh\nfor last; do host=$prev; prev=$last; done\ncat >/dev/null\n"
        'case $host in a) echo "Welcome to a";; *) echo "bash: python3: command not found" >&2; exit 127;; esac\n',
    )
    archive = tmp_path / "noise.tar.zst"
    done = collect("-o", archive, "--ssh", "a,b", env={"PATH": f"{bin_}:{os.environ['PATH']}"})
    assert done.returncode == 8 and "2 of 2 hosts did not answer in full: a, b" in done.stderr
    told = {host["asked"]: host["why"] for host in index(archive)["hosts"]}
    assert told["b"] == "bash: python3: command not found" and told["a"]
