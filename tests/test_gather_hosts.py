"""`postmortem collect` on many hosts: a real sshd, a real Slurm, and a substitute for kubectl."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gathered import WAITS, collect, document, index, members, ranks, tool
from run_jobs import wait_for
from system.slurm import Slurm

from conftest import ROOT, needs
from postmortem.live.collect.hosts import Hosts, commands


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a sshd; return a PATH on which `ssh` reaches node-a and node-b through it, and node-c never."""
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    with socket.socket() as s, socket.socket() as closed:
        s.bind(("127.0.0.1", 0))
        closed.bind(("127.0.0.1", 0))
        port, closed_port = s.getsockname()[1], closed.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"StrictModes no\nPidFile {folder}/pid\nUsePAM no\nPermitRootLogin yes\n"
    )
    (folder / "ssh_config").write_text(
        f"Host node-a node-b\n  Port {port}\nHost node-c\n  Port {closed_port}\n"
        f"Host *\n  HostName 127.0.0.1\n  IdentityFile {folder}/user\n  UserKnownHostsFile {folder}/known\n"
        "  StrictHostKeyChecking accept-new\n  HostKeyAlias here\n"
    )
    ssh = shutil.which("ssh")
    tool(folder / "bin", "ssh", f'#!/bin/sh\nexec {ssh} -F {folder}/ssh_config "$@"\n')
    daemon = subprocess.Popen(
        [shutil.which("sshd"), "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL
    )

    def listens() -> bool:
        with socket.socket() as s:
            return not s.connect_ex(("127.0.0.1", port))

    wait_for(listens)
    yield f"{folder / 'bin'}:{os.environ['PATH']}"
    daemon.terminate()
    daemon.wait()


@needs("root", "sshd", "ssh", "py-spy")
def test_two_hosts_answer_over_ssh_and_a_third_does_not(tmp_path: Path, sshd: str) -> None:
    """Two names of this machine get a folder each; the third host is down, and the archive has the reason."""
    archive = tmp_path / "hosts.tar.zst"
    with ranks(tmp_path, WAITS, "sshrun", world=1) as (pid,):
        done = collect(
            *("-o", archive, "--ssh", "node-a,node-b,node-c", "--job", "sshrun", "--python", sys.executable),
            env={"PATH": sshd},
        )
    assert done.returncode == 8
    assert "1 of 3 hosts did not answer in full: node-c" in done.stderr
    table = {row.split()[0]: row for row in done.stderr.splitlines() if row.startswith("node-")}
    assert "Connection refused" in table["node-c"]
    found = {host["asked"]: host for host in index(archive)["hosts"]}
    assert "Connection refused" in found["node-c"]["why"] and not found["node-a"]["why"]
    assert abs(found["node-a"]["clock_ahead_s"]) < 5
    names = {host["host"] for host in found.values()} - {""}
    assert len(names) == 2 and names & {"node-a", "node-b"}
    files = set(members(archive))
    for host in names:
        assert {f"host={host}/rank0.pid{pid}.stack.txt", f"host={host}/ps.txt"} <= files
    listed = {row["file"] for host in found.values() for row in host["items"] if row["file"]}
    assert listed == files - {"index.json"}
    # each host's files are distinguished
    assert {s["host"] for s in document(archive)["sources"]} == {*names, None}


@needs("root", "sshd", "ssh")
def test_a_hanging_host_leaves_what_it_had_sent(tmp_path: Path, sshd: str) -> None:
    tool(tmp_path / "tools", "nvidia-smi", "#!/bin/sh\nexec sleep 25\n")
    python = tool(tmp_path / "tools", "python", f'#!/bin/sh\nPATH={tmp_path}/tools:$PATH exec {sys.executable} "$@"\n')
    archive = tmp_path / "slow.tar.zst"
    began = time.monotonic()
    done = collect(
        *("-o", archive, "--ssh", "node-a", "--python", python, "--timeout", 5, "--job", "x"), env={"PATH": sshd}
    )
    assert time.monotonic() - began < 20
    assert done.returncode == 8 and "no end after 5 s" in done.stderr
    (host,) = index(archive)["hosts"]
    assert host["why"] == "no end after 5 s"
    assert [row for row in host["items"] if row["file"].endswith("/ps.txt")]
    assert [name for name in members(archive) if name.endswith("/ps.txt")]


def test_hosts_are_listed_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node-a  # rack 1\nme@node-b\n\nnode-a\n")
    found = commands(Hosts("ssh", f"@{tmp_path}/hosts"), '{"job": "a b"}')
    assert list(found) == ["node-a", "me@node-b"]
    # a shell splits this one: each word is quoted
    assert found["node-a"][-2:] == ("node-a", """python3 - '{"job": "a b"}'""")


def test_pods_answer_and_one_that_ended_has_its_previous_log(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "tests" / "system" / "kubectl", tmp_path / "bin")
    archive = tmp_path / "pods.tar.zst"
    done = collect(
        *("-o", archive, "--kubectl", "app=train", "-n", "ml", "--job", "x", "--python", "python3"),
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    )
    assert done.returncode == 8 and "did not answer in full: train-worker-2" in done.stderr
    found = {host["asked"]: host for host in index(archive)["hosts"]}
    assert "current phase is Failed" in found["train-worker-2"]["why"]
    assert found["train-worker-0"]["host"] == "train-worker-0"
    files = members(archive)
    assert {"host=train-worker-0/ps.txt", "host=train-worker-1/ps.txt", "describe.txt", "events.txt"} <= set(files)
    previous = files["host=train-worker-2/previous.log"].decode()
    assert "CUDA out of memory" in previous and "hf_a1B2" not in previous  # redacted on its way in
    asked = [json.loads(line) for line in (tmp_path / "bin" / "calls").read_text().splitlines()]
    assert all(words[words.index("--namespace") + 1] == "ml" for words in asked)
    kinds = {s["path"].partition("!/")[2]: (s["kind"], s["host"]) for s in document(archive)["sources"]}
    assert kinds["host=train-worker-2/previous.log"] == ("console", "train-worker-2")
    assert kinds["describe.txt"][0] == kinds["events.txt"][0] == "kubernetes"


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
    """While the job runs, in steps of its own beside it; the archive has its stacks and the controller's record."""
    script = tmp_path / "train.py"
    script.write_text(WAITS)
    batch = tmp_path / "job.sh"
    batch.write_text(f"#!/bin/bash\nsrun --ntasks=2 --overlap {sys.executable} {script}\n")
    job = slurm.submit("--ntasks=2", f"--output={tmp_path}/out", batch)
    slurm.until(
        lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text().count("waiting") == 2, 60, "it waits"
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


def test_a_hostile_host_chooses_no_path(tmp_path: Path) -> None:
    """A container may have names that lead elsewhere, and an invalid index."""
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
    archive = tmp_path / "hostile.tar.zst"
    done = collect("-o", archive, "--ssh", "a", env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert set(members(archive)) == {"host=a/good.txt", "index.json"}
    assert [row["file"] for row in index(archive)["hosts"][0]["items"]] == ["host=a/good.txt"]


def test_other_output_is_an_incomplete_answer(tmp_path: Path) -> None:
    """A login shell prints a banner; another host has no Python."""
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
    found = {host["asked"]: host["why"] for host in index(archive)["hosts"]}
    assert found["b"] == "bash: python3: command not found" and found["a"]
