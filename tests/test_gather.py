"""`postmortem collect` on one host: real ranks, real tools, and their failures; and on many hosts: a real sshd, a real
Slurm, and a substitute for kubectl."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gathered import HANG, WAITS, collect, command, document, index, members, ranks, state, tool
from run_jobs import wait_for
from system.slurm import Slurm

from conftest import ROOT, Command, needs, python, table
from postmortem.live.collect import collection, here, readers, sent_program, subprocesses
from postmortem.live.collect import rank_search as search
from postmortem.live.collect.archive import Archive
from postmortem.live.collect.collection import Writer, execute
from postmortem.live.collect.here import Task
from postmortem.live.collect.hosts import Hosts, commands
from postmortem.live.collect.rank_search import Rank
from postmortem.model import collected as items

OWN = f"host={sent_program.hostname()}"


@pytest.fixture
def run() -> str:
    """The id of a run that no other job on this machine has."""
    return f"run{secrets.token_hex(6)}"


def rows(archive: Path) -> dict[str, dict]:
    """Return the index's rows, by file or, without one, by item."""
    return {(row["file"] or row["item"]).rpartition("/")[2]: row for row in index(archive)["items"]}


@pytest.mark.slow
@needs("torch", "py-spy")
def test_archives_of_a_hang_on_one_and_on_two_hosts_name_the_rank_elsewhere(tmp_path: Path, run: str) -> None:
    """Rank 0 waits in all_reduce, rank 1 in load_batch, and no line shows it. The job is killed afterwards."""
    archive, two = tmp_path / "hang.tar.zst", list[Path]()
    with ranks(tmp_path, HANG, run, WANDB_API_KEY="5f2b9c0d1e8a7f6b5c4d3e2f1a0b9c8d7e6f5a4b") as pids:
        done = collect("-o", archive, "--job", run)
        for number, host in enumerate(("node-a", "node-b")):  # as if each rank were on a host of its own
            two.append(tmp_path / f"postmortem-{host}-20261120T031208Z.tar.zst")
            fd = os.open(two[-1], os.O_RDWR | os.O_CREAT)
            with contextlib.closing(Archive(fd, "zst")) as open_:
                for row, data in here.collected(job=run):
                    if row["file"] and f".pid{pids[1 - number]}." not in row["file"] and "kernel" not in row["file"]:
                        open_.add(f"host={host}/{row['file']}", data, row["started"])
        assert list(map(state, pids)) == ["S", "S"], "neither signalled nor left stopped"
    assert done.returncode == 0, done.stderr
    found = document(archive)
    assert found["verdict"]["category"] == "hang"
    assert found["verdict"]["headline"].startswith("Rank 1 ") and "load_batch" in found["verdict"]["headline"]
    assert not [row for row in found["ledger"]["skipped"] if "postmortem collect" not in row["reason"]]
    kinds = {source["path"].rpartition("/")[2]: source["kind"] for source in found["sources"]}
    assert "console" not in kinds.values(), kinds
    assert kinds["ps.txt"] == "process-table" and kinds["cgroup.txt"] == "cgroup"
    assert {source["host"] for source in found["sources"]} == {sent_program.hostname(), None}
    # the environment: names of all variables, values only of known ones
    (text,) = [data.decode() for name, data in members(archive).items() if ".environment." in name and "rank0" in name]
    assert "WANDB_API_KEY=<not saved>" in text and "WORLD_SIZE=2" in text
    assert not any(b"5f2b9c0d1e8a7f6b" in data for data in members(archive).values())
    found = document(*two)
    assert found["verdict"]["headline"].startswith("Rank 1 on node-b was in load_batch")
    assert {source["host"] for source in found["sources"]} == {"node-a", "node-b"}


@needs("py-spy")
def test_every_item_has_its_command_and_recorder_dumps_are_those_of_the_run(tmp_path: Path, run: str) -> None:
    """An old dump belongs to another run; a link leads elsewhere."""
    archive = tmp_path / "one.tar.zst"
    (tmp_path / "fr_7").write_bytes(b"old")
    os.utime(tmp_path / "fr_7", (1, 1))
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "fr_8").symlink_to(tmp_path / "secret")
    with ranks(tmp_path, WAITS, run, world=1, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/fr_") as (pid,):
        (tmp_path / "fr_0").write_bytes(b"\x80\x02dump")
        done = collect("-o", archive, "--job", run)
        others = collect("-o", tmp_path / "other.tar", "--job", "another")
    stack = rows(archive)[f"rank0.pid{pid}.stack.txt"]
    assert stack["command"] == ["py-spy", "dump", "--nonblocking", "--pid", str(pid)]
    assert stack["exit"] == 0 and 0 < stack["seconds"] < 10 and abs(stack["started"] - time.time()) < 60
    missing = rows(archive)["dcgm.txt"]
    assert missing["file"] is None and missing["why"] == "dcgmi: not installed"
    assert f"rank0.pid{pid}.stack.txt" in done.stderr and "dcgmi: not installed" in done.stderr
    assert f"next: postmortem analyze {archive}" in done.stderr and "stack.txt" not in others.stderr
    found = members(archive)
    assert found[f"{OWN}/limits.txt"].startswith(b"# postmortem collect: read:files /proc/self/limits")
    assert {name: data for name, data in found.items() if "recorder/" in name} == {
        f"{OWN}/recorder/fr_0": b"\x80\x02dump"
    }
    way = ("read:copy", str(tmp_path / "fr_0"), str(os.getuid() + 1))  # a dump of another user
    ((row, data),) = here.taken([Task(items.RECORDER, "recorder/fr_0", (way,))])
    assert not data and row["why"] == f"read:copy: exit code 1: {tmp_path}/fr_0: Operation not permitted"


def test_under_srun_the_rank_is_the_program_and_not_its_wrapper(tmp_path: Path, run: str) -> None:
    """`srun postmortem run -- python train.py`: both processes have the task's number."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_PROCID": "3", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": run}
    words = command("run", "--folder", tmp_path / "runs", "--", sys.executable, "-c", WAITS)
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as wrapper:
        try:
            assert wrapper.stdout and "waiting" in wrapper.stdout.readline()
            own = [r for r in search.chosen(list(search.candidates())) if run in r.ids]
            assert [(r.number, r.parent) for r in own] == [(3, wrapper.pid)] and not own[0].children
        finally:
            wrapper.terminate()


def test_workers_of_a_loader_are_children_and_not_ranks() -> None:
    """They inherit RANK. Under srun the agent has a task's number, and its ranks have their own."""

    def one(number: int, pid: int, parent: int, kind: str = "RANK") -> Rank:
        return Rank(number, pid, parent, 0, "S", 0.0, kind, "job")

    found = [one(0, 10, 5), one(0, 11, 10), one(0, 12, 10), one(1, 20, 5), one(0, 5, 1, "SLURM_PROCID")]
    assert [(r.number, r.pid, r.children) for r in search.chosen(found)] == [(0, 10, (11, 12)), (1, 20, ())]
    # another job on this host has ranks of torchrun, and this one of srun
    assert [r.pid for r in search.chosen([one(3, 6, 1, "SLURM_PROCID"), one(0, 10, 5)])] == [10, 6]


def test_counters_belong_to_the_job_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An OOM kill that a login session counted may be a week old."""
    monkeypatch.setattr(readers.os.path, "isdir", lambda path: "elsewhere" not in path)
    step = "/system.slice/slurmstepd.scope/job_77"
    for text, folders in {
        "0::/user.slice/user-0.slice/session-4.scope\n": [],
        f"0::{step}/step_0/user/task_1\n": [f"/sys/fs/cgroup{step}/step_0/user/task_1", f"/sys/fs/cgroup{step}"],
        "9:name=systemd:/\n4:memory:/elsewhere/a1\n2:cpu:/x\n": ["/sys/fs/cgroup/memory"],
        "0::/\n": ["/sys/fs/cgroup"],  # a container's own
    }.items():
        assert list(readers.groups(text)) == folders


def take(*ways: tuple[str, ...], limit: float = 0.5, **more: Any) -> tuple[dict, bytes]:
    """Return the result of one item."""
    item = items.Item("x.txt", "", ways, **({"limit": limit, "state": False} | more))
    ((row, data),) = here.taken([Task(item, item.name, item.ways)])
    return row, data


@pytest.mark.parametrize("fault", ["is missing", "hangs", "fails", "prints garbage"])
def test_with_broken_tools_there_is_an_archive_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    """nvidia-smi hangs where a GPU is lost. Its output until then remains; it, and its children, are ended."""
    bad = {
        "hangs": f"echo '==NVSMI LOG=='; sleep 600 & echo $! >>{tmp_path}/pids; sleep 600",
        "fails": "echo broken >&2; exit 7",
        "prints garbage": r"printf '\\033]0;x\\007\\377\\000\\n'; head -c 100000 /dev/urandom",
    }
    script = tool(tmp_path / "bin", "tool", f"#!/bin/sh\n{bad[fault]}\n") if fault in bad else None
    monkeypatch.setattr(subprocesses, "program", lambda _: script and str(script))
    monkeypatch.setattr(items, "HOST", tuple(dataclasses.replace(item, limit=0.5) for item in items.HOST))
    archive = tmp_path / "a.tar.zst"
    execute(archive, job="x")
    output = capsys.readouterr().err
    assert all(item.name in output for item in items.HOST) and "\033" not in output
    assert {f"{OWN}/ps.txt", f"{OWN}/clock.txt"} <= set(members(archive))
    row = rows(archive)["nvidia-smi.txt"]
    if fault == "hangs":
        assert row["why"] == "no end after 0.5 s: given up" and row["exit"] is None
        assert members(archive)[f"{OWN}/nvidia-smi.txt"] == b"==NVSMI LOG==\n"
        for pid in (tmp_path / "pids").read_text().split():
            stat = Path(f"/proc/{pid}/stat")
            wait_for(lambda stat=stat: not stat.exists() or state(int(stat.parent.name)) == "Z", 5)
    elif fault == "fails":
        assert row["why"] == "nvidia-smi: exit code 7: broken"


def test_neither_an_unkillable_tool_nor_a_holder_of_its_output_delays_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In state D a process does not end when it is killed."""
    script = tool(tmp_path / "bin", "leaves", "#!/bin/sh\necho done\nsleep 5 &\n")
    began = time.monotonic()
    row, data = take((str(script),), limit=20.0)
    assert data == b"done\n" and row["exit"] == 0
    monkeypatch.setattr(subprocesses.os, "killpg", lambda *_: None)
    row, _ = take(("sleep", "3"))
    assert row["why"].startswith("sleep: no end after 0.5 s") and time.monotonic() - began < 5


def test_the_next_way_is_tried_if_one_yields_nothing(tmp_path: Path) -> None:
    """The silence of some programs means that there was nothing: then older lines of the kernel are not taken."""
    silent = str(tool(tmp_path / "bin", "silent", "#!/bin/sh\necho 'not permitted' >&2\nexit 3\n"))
    row, data = take(("no-such-tool",), (silent,), ("echo", "here"), limit=10.0)
    assert data == b"here\n" and row["command"] == ["echo", "here"] and row["why"] == ""
    row, data = take(("no-such-tool",), (silent,), limit=10.0)
    assert not data and row["why"] == f"no-such-tool: not installed; {silent}: exit code 3: not permitted"
    dmesg = str(tool(tmp_path / "bin", "dmesg", "#!/bin/sh\n[ $# = 0 ] && echo 'old' || true\n"))
    ways = (("false",), (dmesg, "--since", "x"), (dmesg,))
    row, data = take(*ways, limit=10.0, silent=(dmesg,))
    assert row["file"] == "x.txt" and data == b"" and row["why"] == ""
    assert take(*ways, limit=10.0)[1] == b"old\n"


@needs("root")
def test_only_lines_since_the_start_are_read_from_the_ring_buffer() -> None:
    for since, some in ((0.0, True), (time.time() + 3600, False)):
        row, data = take(("read:kmsg", str(since)), limit=10)
        assert row["exit"] in (0, None) and bool(data) == some


@pytest.mark.parametrize("more", ["", "x\n" * (1 << 18)], ids=["short", "long"])
def test_secrets_are_removed_on_the_way_in(tmp_path: Path, more: str) -> None:
    """A command line in `ps`, a key that was printed; a long text is redacted line by line."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1c7q\nk3J5a0R7\n-----END RSA PRIVATE KEY-----\n"
    archive = tmp_path / "a.tar.zst"
    writer = Writer(Archive(os.open(archive, os.O_RDWR | os.O_CREAT), "zst"), redact=True)
    for name, data in (
        ("ps.txt", f"{more}11 python train.py --password hunter2secret\n"),
        ("key.txt", more + key),
        ("/recorder/fr_0", "password=hunter2secret"),
    ):
        writer.add({"file": name, "started": 0.0}, data.encode() + b"\xff\n")
    writer.archive.close()
    found = members(archive)
    assert b"hunter2secret" not in found["ps.txt"] and b"11 python train.py --password [RED" in found["ps.txt"]
    assert b"k3J5a0R7" not in found["key.txt"] and found["ps.txt"].endswith(b"\xff\n")
    assert found["/recorder/fr_0"] == b"password=hunter2secret\xff\n"  # a pickle, byte for byte


def test_long_output_is_cut_at_its_end_or_of_a_log_at_its_beginning() -> None:
    way = (sys.executable, "-c", "import sys; sys.stdout.write('a' * (20 << 20) + 'the end')")
    for end in (False, True):
        row, data = take(way, limit=60.0, end=end)
        assert row["cut"] and len(data) <= subprocesses.MOST_BYTES and data.endswith(b"the end") == end


@needs("root")
def test_an_ordinary_user_gets_the_own_part_and_reasons_for_the_rest(tmp_path: Path, run: str) -> None:
    """Without tools the readers are used: a slim container has neither ss nor dmesg."""
    tmp_path.chmod(0o777)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    archive = tmp_path / "user.tar.zst"
    # modules are imported first: this Python may be in a folder that only root may read
    code = f"""
import os
from pathlib import Path
import zstandard, postmortem.privacy.redact, tarfile, gzip, encodings.idna
from postmortem.live.collect import archive, collection, here, hosts, sent_program
os.setgroups([]); os.setgid(65534); os.setuid(65534)
collection.execute(Path({str(archive)!r}), job={run!r})
"""
    with ranks(tmp_path, WAITS, run, world=1):
        done = python("-c", code, env={"PATH": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    found = rows(archive)
    assert found["kernel.log"]["why"] and not found["kernel.log"]["bytes"] and "kernel.log" in done.stderr
    assert found["ps.txt"]["bytes"] and found["shm.txt"]["bytes"] and found["cgroup.txt"]["bytes"]
    assert found["sockets.txt"]["command"][0] == "read:files"
    assert archive.stat().st_uid == 65534 and archive.stat().st_mode & 0o077 == 0


@needs("root")
def test_a_full_disk_holds_what_fits_and_the_reasons_for_the_rest(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20k", "tmpfs", small], check=True)
    try:
        archive = small / "full.tar.zst"
        done = collect("-o", archive, "--job", "x")
        assert done.returncode == 8
        assert "No space left on device:" in done.stderr and f"items did not fit into {archive}" in done.stderr
        assert "did not fit: No space left on device" in done.stderr.partition("full.tar.zst")[0]  # in the table
        found = rows(archive).values()
        stored = {row["file"] for row in found if row["file"]}
        assert stored and [row for row in found if row["why"].startswith("did not fit")]
        assert stored == set(members(archive)) - {"index.json"}
        assert document(archive)["ledger"]["bytes"] == archive.stat().st_size
        assert os.listdir(small) == ["full.tar.zst"]  # noqa: PTH208
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGTERM])
@needs("py-spy")
def test_a_killed_collect_leaves_an_archive(tmp_path: Path, run: str, number: signal.Signals) -> None:
    tool(tmp_path / "bin", "nvidia-smi", "#!/bin/sh\nexec sleep 25\n")
    archive = tmp_path / "cut.tar.zst"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    with ranks(tmp_path, WAITS, run, world=1) as (pid,):
        words = command("collect", "-o", archive, "--job", run)
        collecting = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
        wait_for(lambda: archive.exists() and len(members(archive)) >= 8)
        collecting.send_signal(number)
        code = collecting.wait(10)
    assert code == (-9 if number == signal.SIGKILL else 143)
    names = set(members(archive))
    assert f"{OWN}/rank0.pid{pid}.stack.txt" in names
    assert ("index.json" in names) == (number == signal.SIGTERM)
    found = document(archive)
    assert [s for s in found["sources"] if s["kind"] == "stack"]
    assert not [row for row in found["ledger"]["skipped"] if row.get("lost")], "it ends behind a complete member"


def test_wrong_options_are_explained_and_no_file_is_replaced(tmp_path: Path, in_process: Command) -> None:
    old, link = tmp_path / "old.tar.zst", tmp_path / "link.tar.zst"
    old.write_bytes(b"evidence")
    link.symlink_to(tmp_path / "elsewhere")
    for arguments, message in table("collect_options")["wrong"]:
        done = in_process("collect", *arguments.format(tmp_path).split())
        assert done.returncode == 2 and message.format(tmp_path) in done.stderr, done.stderr
    assert old.read_bytes() == b"evidence"
    assert in_process("collect", "-o", tmp_path / "no" / "such.tar.zst").returncode == 1


def test_no_command_changes_anything_and_a_name_is_one_argument() -> None:
    """No reset, no signal, no memory image, no shell."""
    words = {word for item in items.ALL for way in item.ways for word in way}
    programs = {way[0] for item in items.ALL for way in item.ways if item is not items.CORE_STACK}
    assert not words & {"--gpu-reset", "-r", "-re", "--reset", "sysrq", "diag", "sh", "bash", "-c", "eval"}
    assert not programs & {"kill", "gcore", "gdb", "sh", "bash", "ssh", "env"}
    for way in items.STACK.ways:  # a tool that is killed while it holds a process would leave it stopped
        assert {"--nonblocking", "--no-block"} & set(way)
    assert items.filled(items.SACCT, JOB="1; rm -rf /")[:3] == ("sacct", "-j", "1; rm -rf /")
    assert any("app=x --all" in way for task in here.of_pods("app=x --all", ["pod-1"]) for way in task.ways)


def test_the_program_for_other_hosts_needs_only_an_old_python(tmp_path: Path) -> None:
    sent = {f"postmortem.{file[:-3].replace('/', '.')}" for file in sent_program.FILES if file.endswith(".py")}
    for name in sent:
        source = (ROOT / f"{name.replace('.', '/')}.py").read_text()
        for node in ast.walk(ast.parse(source, feature_version=(3, 8))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("postmortem"):
                assert node.module in sent or all(f"{node.module}.{a.name}" in sent for a in node.names)
    done = python("-I", "-S", "-", '{"job": "x"}', input=sent_program.program(), text=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        names = tar.getnames()
    assert names[-1] == "index.json" and f"{OWN}/ps.txt" in names


def test_the_list_has_reasons_and_commands_and_the_table_of_many_ranks_is_short(in_process: Command) -> None:
    """64 stacks are one line: how many there are, and why the others are missing."""
    listed = in_process("collect", "--list").stdout
    assert all(item.name in listed and item.why in listed for item in items.ALL)
    assert "py-spy dump --nonblocking --pid PID" in listed
    base = {"item": items.STACK.name, "bytes": 100, "cut": False}
    denied = {"file": None, "why": "py-spy: exit code 1: Permission denied"}
    many = [
        base | {"seconds": n / 10} | ({"file": f"host=a/rank{n}.pid{n}.stack.txt", "why": ""} if n % 4 else denied)
        for n in range(64)
    ]
    assert collection.of_items(many)[1:] == [
        "rankRANK.pidPID.stack.txt: 48 of 64  6.2 KiB  6.3 s  py-spy: exit code 1: Permission denied"
    ]
    assert len(collection.of_items(many[:4])) == 5


def test_no_descriptor_and_no_process_is_left() -> None:
    def held() -> tuple[set[str], set[str]]:
        tasks = Path("/proc/self/task").iterdir()
        return set(os.listdir("/proc/self/fd")), {pid for t in tasks for pid in (t / "children").read_text().split()}  # noqa: PTH208

    before = held()
    list(here.collected(job="x"))
    assert held() == before


def test_a_command_line_that_quotes_an_error_is_no_failure(tmp_path: Path) -> None:
    quoted = "import time; time.sleep(60)  # RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8 GiB total)"
    with subprocess.Popen([sys.executable, "-c", quoted]) as process:
        try:
            collect("-o", tmp_path / "host.tar.zst")
        finally:
            process.kill()
    found = document(tmp_path / "host.tar.zst")
    assert found["sources"] and not [f for f in found["findings"] if f["pattern"] == "cuda-out-of-memory"]


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert "the archive is empty" in done.stderr and "next: postmortem" not in done.stderr
    found = {host["asked"]: host["why"] for host in index(archive)["hosts"]}
    assert found["b"] == "bash: python3: command not found" and found["a"]
