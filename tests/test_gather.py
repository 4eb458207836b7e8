"""`postmortem collect` on one host: real ranks, real tools, and what happens where they fail."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gathered import HANG, STANDS, collect, index, members, ranks, tool, verdict

from conftest import ROOT, needs
from postmortem.live.collect import child, command, here, readers, remote
from postmortem.live.collect.archive import Archive
from postmortem.live.collect.here import Task
from postmortem.model import collected as items


@pytest.fixture
def run() -> str:
    """The id of a run that no other job on this machine has."""
    return f"run{secrets.token_hex(6)}"


def rows(archive: Path) -> dict[str, dict]:
    """The index's rows, by file where one came, else by item."""
    return {(row["file"] or row["item"]).rpartition("/")[2]: row for row in index(archive)["items"]}


@needs("torch", "py-spy")
def test_the_archive_of_a_hang_alone_names_the_odd_rank(tmp_path: Path, run: str) -> None:
    """Rank 0 waits in all_reduce, rank 1 in load_batch; nothing printed says so. The job is killed
    afterwards, and the archive is all that is left."""
    archive = tmp_path / "hang.tar.zst"
    with ranks(tmp_path, HANG, run, WANDB_API_KEY="5f2b9c0d1e8a7f6b5c4d3e2f1a0b9c8d7e6f5a4b") as pids:
        done = collect("-o", archive, "--job", run)
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)  # nothing was signalled
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
        assert "T" not in states and "t" not in states  # nor left stopped
    assert done.returncode == 0, done.stderr
    told = verdict(archive)
    assert told["verdict"]["category"] == "hang"
    assert told["verdict"]["headline"].startswith("Rank 1 ") and "load_batch" in told["verdict"]["headline"]
    # all of it is known: what is no log says what it is, and nothing is a console of nobody
    assert not [row for row in told["ledger"]["skipped"] if "postmortem collect" not in row["reason"]]
    kinds = {source["path"].rpartition("/")[2]: source["kind"] for source in told["sources"]}
    assert "console" not in kinds.values()
    assert kinds["ps.txt"] == "process-table" and kinds["cgroup.txt"] == "cgroup"
    assert {source["host"] for source in told["sources"]} == {remote.hostname(), None}
    # the environment: names of all variables, values only of known ones
    (text,) = [data.decode() for name, data in members(archive).items() if ".environment." in name and "rank0" in name]
    assert "WANDB_API_KEY=<not saved>" in text and "WORLD_SIZE=2" in text
    assert not any(b"5f2b9c0d1e8a7f6b" in data for data in members(archive).values())


@needs("torch", "py-spy")
def test_archives_of_two_hosts_are_read_together(tmp_path: Path, run: str) -> None:
    """Each host was asked by itself, and its name is in its archive. The ranks are those of one job."""
    archives = []
    with ranks(tmp_path, HANG, run) as pids:
        for number, host in enumerate(("node-a", "node-b")):
            archive = tmp_path / f"postmortem-{host}-20261120T031208Z.tar.zst"
            fd = os.open(archive, os.O_RDWR | os.O_CREAT)
            with contextlib.closing(Archive(fd, "zst")) as open_:
                for row, data in here.collected(job=run):
                    # what the other host has of this machine's ranks is not on this one
                    if row["file"] and f".pid{pids[1 - number]}." not in row["file"] and "kernel" not in row["file"]:
                        open_.add(f"host={host}/{row['file']}", data, row["started"])
            archives.append(archive)
    told = verdict(*archives)
    assert told["verdict"]["headline"].startswith("Rank 1 on node-b was in load_batch")
    assert {source["host"] for source in told["sources"]} == {"node-a", "node-b"}


@needs("py-spy")
def test_every_item_says_how_it_was_made(tmp_path: Path, run: str) -> None:
    archive = tmp_path / "one.tar.zst"
    with ranks(tmp_path, STANDS, run, world=1) as (pid,):
        done = collect("-o", archive, "--job", run)
    told = rows(archive)
    stack = told[f"rank0.pid{pid}.stack.txt"]
    assert stack["command"] == ["py-spy", "dump", "--nonblocking", "--pid", str(pid)]
    assert stack["exit"] == 0 and 0 < stack["seconds"] < 10 and abs(stack["started"] - time.time()) < 60
    gone = told["dcgm.txt"]
    assert gone["file"] is None and gone["why"] == "dcgmi: not installed"
    # and the table says the same
    assert f"rank0.pid{pid}.stack.txt" in done.stderr and "dcgmi: not installed" in done.stderr
    assert f"next: postmortem analyze {archive}" in done.stderr
    # a text that is no log says it in itself
    limits = members(archive)[f"host={remote.hostname()}/limits.txt"].decode()
    assert limits.startswith("# postmortem collect: read:files /proc/self/limits")


def test_ranks_of_other_jobs_are_left_out(tmp_path: Path, run: str) -> None:
    archive = tmp_path / "other.tar.zst"
    with ranks(tmp_path, STANDS, run, world=1):
        collect("-o", archive, "--job", "another")
    assert not [name for name in members(archive) if "/rank" in name]


def test_under_srun_the_rank_is_the_program_and_not_what_wraps_it(tmp_path: Path, run: str) -> None:
    """`srun postmortem run -- python train.py`: both processes have the task's number."""
    from postmortem.live.collect import ranks as found

    env = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_PROCID": "3", "SLURM_STEP_ID": "0"}
    env["SLURM_JOB_ID"] = run
    program = "import time; print('up', flush=True); time.sleep(60)"
    command = [sys.executable, "-m", "postmortem", "run", "--folder", str(tmp_path / "kept"), "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", program], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    ) as wrapper:
        try:
            assert wrapper.stdout and "up" in wrapper.stdout.readline()
            mine = [r for r in found.chosen(list(found.candidates())) if run in r.ids]
            assert [(r.number, r.parent) for r in mine] == [(3, wrapper.pid)] and not mine[0].children
        finally:
            wrapper.terminate()


def test_workers_of_a_loader_are_children_and_not_ranks() -> None:
    """They inherit RANK. Under srun the agent has a task's number, and its ranks have their own."""
    from postmortem.live.collect.ranks import Rank, chosen

    def one(number: int, pid: int, parent: int, kind: str = "RANK") -> Rank:
        return Rank(number, pid, parent, 0, "S", 0.0, kind, "job")

    found = [one(0, 10, 5), one(0, 11, 10), one(0, 12, 10), one(1, 20, 5), one(0, 5, 1, "SLURM_PROCID")]
    assert [(r.number, r.pid, r.children) for r in chosen(found)] == [(0, 10, (11, 12)), (1, 20, ())]
    # another job on this host has ranks of torchrun, and this one of srun
    assert [r.pid for r in chosen([one(3, 6, 1, "SLURM_PROCID"), one(0, 10, 5)])] == [10, 6]


def test_counters_are_of_the_job_and_of_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """An OOM kill that a login session counted may be last week's."""
    monkeypatch.setattr(readers.os.path, "isdir", lambda path: "elsewhere" not in path)
    assert list(readers.groups("0::/user.slice/user-0.slice/session-4.scope\n")) == []
    step = "/system.slice/slurmstepd.scope/job_77"
    assert list(readers.groups(f"0::{step}/step_0/user/task_1\n")) == [
        f"/sys/fs/cgroup{step}/step_0/user/task_1",
        f"/sys/fs/cgroup{step}",
    ]
    assert list(readers.groups("9:name=systemd:/\n4:memory:/elsewhere/a1\n2:cpu:/x\n")) == ["/sys/fs/cgroup/memory"]
    assert list(readers.groups("0::/\n")) == ["/sys/fs/cgroup"]  # a container's own


# ── what fails ──────────────────────────────────────────────────────────────────────────────────────────────


def quick(item: items.Item, **changes: object) -> Task:
    """An item with a short limit."""
    item = dataclasses.replace(item, **{"limit": 0.5, **changes})
    return Task(item, item.name, item.ways)


def test_a_tool_that_hangs_is_given_up_and_the_rest_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi does so where a GPU is lost. What it had printed stays; it, and what it started, end."""
    started = tmp_path / "pids"
    text = f"#!/bin/sh\necho '==============NVSMI LOG=============='\nsleep 600 &\necho $$ $! >{started}\nsleep 600\n"
    tool(tmp_path / "bin", "nvidia-smi", text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    smi = next(item for item in items.HOST if item.name == "nvidia-smi.txt")
    clock = next(item for item in items.HOST if item.name == "clock.txt")
    begun = time.monotonic()
    came = {row["item"]: (row, data) for row, data in here.taken([quick(smi), quick(clock)])}
    assert time.monotonic() - begun < 5
    row, data = came["nvidia-smi.txt"]
    assert row["why"] == "no end after 0.5 s: given up" and row["exit"] is None
    assert data.startswith(b"==============NVSMI LOG")
    assert b"realtime" in came["clock.txt"][1]
    for pid in started.read_text().split():
        assert _ends(int(pid))


def _ends(pid: int) -> bool:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


TOOLS = sorted({way[0] for item in items.HOST for way in item.ways if ":" not in way[0]})


@pytest.mark.parametrize("broken", ["is not there", "hangs", "fails", "prints what it likes"])
@pytest.mark.parametrize("name", TOOLS)
def test_whatever_a_tool_does_there_is_an_archive_and_a_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    broken: str,
) -> None:
    found = child.program
    bad = {
        "hangs": "exec sleep 600",
        "fails": "echo broken >&2; exit 7",
        "prints what it likes": r"printf '\\033]0;x\\007\\377\\000\\n'; head -c 100000 /dev/urandom",
    }
    script = tool(tmp_path / "bin", name, f"#!/bin/sh\n{bad[broken]}\n") if broken in bad else None
    monkeypatch.setattr(child, "program", lambda n: (script and str(script)) if n == name else found(n))
    monkeypatch.setattr(items, "HOST", tuple(dataclasses.replace(item, limit=0.5) for item in items.HOST))
    archive = tmp_path / "a.tar.zst"
    command.execute(command.Options(archive, job="nobody's"))
    told = index(archive)["items"]
    assert {row["item"] for row in told} >= {item.name for item in items.HOST}
    table = capsys.readouterr().err
    assert all(item.name in table for item in items.HOST) and "\033" not in table
    assert {"ps.txt", "clock.txt"} <= {name.rpartition("/")[2] for name in members(archive)}


def test_a_tool_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """In state D a process does not end when it is killed: it is not waited for."""
    monkeypatch.setattr(child.os, "killpg", lambda *_: None)
    stuck = items.Item("stuck.txt", "", (("sleep", "3"),))
    begun = time.monotonic()
    ((row, _),) = here.taken([quick(stuck)])
    assert time.monotonic() - begun < 2
    assert row["why"].startswith("sleep: no end after 0.5 s")


def test_who_lets_go_of_its_output_late_does_not_hold_us(tmp_path: Path) -> None:
    """A command ends, and a process that it left behind holds its output open."""
    script = tool(tmp_path / "bin", "leaves", "#!/bin/sh\necho done\nsleep 5 &\n")
    begun = time.monotonic()
    ((row, data),) = here.taken([quick(items.Item("x", "", ((str(script),),), state=False), limit=20.0)])
    assert data == b"done\n" and row["exit"] == 0
    assert time.monotonic() - begun < 4


def test_the_next_way_is_gone_where_one_yields_nothing(tmp_path: Path) -> None:
    silent = tool(tmp_path / "bin", "silent", "#!/bin/sh\necho 'not permitted' >&2\nexit 3\n")
    item = items.Item("x.txt", "", (("no-such-tool",), (str(silent),), ("echo", "here")), state=False)
    ((row, data),) = here.taken([quick(item, limit=10.0)])
    assert data == b"here\n" and row["command"] == ["echo", "here"] and row["why"] == ""
    ((row, data),) = here.taken([quick(dataclasses.replace(item, ways=item.ways[:2]), limit=10.0)])
    assert not data and row["why"] == f"no-such-tool: not installed; {silent}: exit code 3: not permitted"


def test_a_kernel_that_said_nothing_since_the_start_is_an_answer(tmp_path: Path) -> None:
    """Then older lines are not taken in its place: an OOM kill of this morning is no cause of a hang of now.
    The empty file says that the log was looked at, and nobody is asked for it."""
    bin_ = tmp_path / "bin"
    silent = tool(bin_, "dmesg", "#!/bin/sh\n[ $# = 0 ] && echo 'old' || true\n")
    ways = (("false",), (str(silent), "--since", "x"), (str(silent),))
    item = items.Item("kernel.log", "", ways, state=False, silent=(str(silent),))
    ((row, data),) = here.taken([quick(item, limit=10.0)])
    assert row["file"] == "kernel.log" and data == b"" and row["why"] == ""
    ((row, data),) = here.taken([quick(dataclasses.replace(item, silent=()), limit=10.0)])
    assert data == b"old\n"


@needs("root")
def test_only_lines_since_the_start_are_read_from_the_ring_buffer() -> None:
    for since, some in ((0.0, True), (time.time() + 3600, False)):
        ((row, data),) = here.taken([Task(items.Item("k", "", (), state=False), "k", (("read:kmsg", str(since)),))])
        assert row["exit"] in (0, None) and bool(data) == some


@pytest.mark.parametrize("more", ["", "x\n" * (1 << 18)], ids=["short", "long"])
def test_secrets_are_taken_out_on_the_way_in(tmp_path: Path, more: str) -> None:
    """A command line in `ps`, a key that somebody printed: of a long text too, which is redacted line by
    line."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1c7q\nk3J5a0R7\n-----END RSA PRIVATE KEY-----\n"
    text = f"{more}11 python train.py --password hunter2secret\n"
    archive = tmp_path / "a.tar.zst"
    writer = command.Writer(Archive(os.open(archive, os.O_RDWR | os.O_CREAT), "zst"), redact=True)
    for name, data in (
        ("ps.txt", text),
        ("key.txt", more + key),
        ("/recorder/fr_0", "password=hunter2secret"),
    ):
        writer.add({"file": name, "started": 0.0}, data.encode() + b"\xff\n")
    writer.archive.close()
    found = members(archive)
    assert b"hunter2secret" not in found["ps.txt"] and b"11 python train.py --password [RED" in found["ps.txt"]
    assert b"k3J5a0R7" not in found["key.txt"]
    assert found["ps.txt"].endswith(b"\xff\n")  # odd bytes are kept
    assert found["/recorder/fr_0"] == b"password=hunter2secret\xff\n"  # a pickle, byte for byte


def test_what_is_too_long_is_cut_and_says_so() -> None:
    """Of a log the end is kept."""
    way = (sys.executable, "-c", "import sys; sys.stdout.write('a' * (20 << 20) + 'the end')")
    for end in (False, True):
        ((row, data),) = here.taken([quick(items.Item("x", "", (way,), state=False, end=end), limit=60.0)])
        assert row["cut"] and len(data) <= child.MOST
        assert data.endswith(b"the end") == end


def test_without_tools_our_own_readers_come(tmp_path: Path) -> None:
    """A slim container has neither ss nor dmesg."""
    archive = tmp_path / "slim.tar.zst"
    done = collect("-o", archive, "--job", "nobody's", env={"PATH": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    told = rows(archive)
    assert told["sockets.txt"]["command"][0] == "read:files"
    assert told["ps.txt"]["bytes"] and told["cgroup.txt"]["bytes"]
    if os.geteuid() == 0:
        assert told["kernel.log"]["command"][0] == "read:kmsg"
        kernel = members(archive)[f"host={remote.hostname()}/kernel.log"]
        assert kernel[:2] in (b"20", b"")  # dated as dmesg does it


@needs("root")
def test_nobody_gets_what_nobody_may_see(tmp_path: Path, run: str) -> None:
    """The stack of an own rank, no kernel log, and a row that says why."""
    tmp_path.chmod(0o777)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    archive = tmp_path / "nobody.tar.zst"
    # modules are imported first: this Python may lie where nobody may read
    code = f"""
import os, subprocess, sys, time
from pathlib import Path
import zstandard
from postmortem.live.collect import command, hosts, here, remote, table, archive
import postmortem.privacy.redact, tarfile, gzip, encodings.idna
os.setgroups([]); os.setgid(65534); os.setuid(65534)
command.execute(command.Options(Path({str(archive)!r}), job={run!r}))
"""
    command = [sys.executable, "-c", code]
    with ranks(tmp_path, STANDS, run, world=1):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    told = rows(archive)
    assert "kernel.log" not in told or told["kernel.log"]["bytes"] == 0
    assert told["kernel.log"]["why"] and "kernel.log" in done.stderr
    assert told["ps.txt"]["bytes"] and told["shm.txt"]["bytes"]
    assert archive.stat().st_uid == 65534 and archive.stat().st_mode & 0o077 == 0


@needs("root")
def test_a_full_disk_keeps_what_fits_and_says_the_rest(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20k", "tmpfs", small], check=True)
    try:
        archive = small / "full.tar.zst"
        done = collect("-o", archive, "--job", "nobody's")
        assert done.returncode == 8
        assert "No space left on device:" in done.stderr and f"items did not fit into {archive}" in done.stderr
        assert done.stderr.count("did not fit: No space left on device") >= 1  # rows of the table
        told = rows(archive)
        lost = [row for row in told.values() if row["why"].startswith("did not fit")]
        kept = [row for row in told.values() if row["file"]]
        assert lost and kept
        assert {row["file"] for row in kept} == {name for name in members(archive) if name != "index.json"}
        assert verdict(archive)["ledger"]["bytes"] == archive.stat().st_size
        assert os.listdir(small) == ["full.tar.zst"]  # noqa: PTH208
    finally:
        subprocess.run(["umount", small], check=True)


# ── who is killed, and what may not happen ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
@needs("py-spy")
def test_who_is_killed_in_the_middle_leaves_an_archive(tmp_path: Path, run: str, number: signal.Signals) -> None:
    """nvidia-smi hangs, and somebody loses patience."""
    tool(tmp_path / "bin", "nvidia-smi", "#!/bin/sh\nexec sleep 25\n")
    archive = tmp_path / "cut.tar.zst"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "postmortem", "collect", "-o", str(archive), "--job", run]
    with ranks(tmp_path, STANDS, run, world=1) as (pid,):
        collecting = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not archive.exists() or len(members(archive)) < 8:
            assert time.monotonic() < until and collecting.poll() is None
            time.sleep(0.1)
        collecting.send_signal(number)
        code = collecting.wait(10)
    assert code == (-9 if number == signal.SIGKILL else 143)
    names = set(members(archive))
    assert f"host={remote.hostname()}/rank0.pid{pid}.stack.txt" in names
    assert ("index.json" in names) == (number == signal.SIGTERM)
    told = verdict(archive)
    assert [s for s in told["sources"] if s["kind"] == "stack"]
    lost = [row for row in told["ledger"]["skipped"] if row.get("lost")]
    assert not lost  # the archive ends behind a whole member


def test_an_archive_is_never_written_over(tmp_path: Path) -> None:
    old = tmp_path / "old.tar.zst"
    old.write_bytes(b"evidence")
    done = collect("-o", old)
    assert done.returncode == 2 and f"{old} exists" in done.stderr
    assert old.read_bytes() == b"evidence"
    (tmp_path / "link.tar.zst").symlink_to(tmp_path / "elsewhere")
    assert collect("-o", tmp_path / "link.tar.zst").returncode == 2
    assert collect("-o", tmp_path / "archive.zip").returncode == 2
    assert collect("-o", tmp_path / "no" / "such.tar.zst").returncode == 1


def test_recorder_dumps_of_this_run_come_and_nothing_else(tmp_path: Path, run: str) -> None:
    """The rank's environment says where they are. An old dump is another run's; a link leads elsewhere."""
    prefix = tmp_path / "fr_"
    (tmp_path / "fr_7").write_bytes(b"old")
    os.utime(tmp_path / "fr_7", (1, 1))
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "fr_8").symlink_to(tmp_path / "secret")
    archive = tmp_path / "fr.tar.zst"
    with ranks(tmp_path, STANDS, run, world=1, TORCH_FR_DUMP_TEMP_FILE=str(prefix)):
        (tmp_path / "fr_0").write_bytes(b"\x80\x02dump")
        collect("-o", archive, "--job", run)
    dumps = {name.partition("recorder/")[2]: data for name, data in members(archive).items() if "recorder/" in name}
    assert dumps == {"fr_0": b"\x80\x02dump"}


def test_a_dump_that_is_another_users_is_not_copied(tmp_path: Path) -> None:
    """Root reads what a rank's environment names only where it is that rank's."""
    path = tmp_path / "fr_0"
    path.write_bytes(b"mine")
    way = ("read:copy", str(path), str(os.getuid() + 1))
    ((row, data),) = here.taken([Task(items.RECORDER, "recorder/fr_0", (way,))])
    assert not data and row["why"] == f"read:copy: exit code 1: {path}: Operation not permitted"


def test_no_command_changes_anything() -> None:
    """No reset, no signal, no memory image, no shell."""
    words = {word for item in items.ALL for way in item.ways for word in way}
    programs = {way[0] for item in items.ALL for way in item.ways}
    assert not words & {"--gpu-reset", "-r", "-re", "--reset", "sysrq", "diag", "sh", "bash", "-c", "eval"}
    assert not programs & {"kill", "gcore", "gdb", "sh", "bash", "ssh", "env"}
    for way in items.STACK.ways:  # a tool that is killed while it holds a process would leave it stopped
        assert {"--nonblocking", "--no-block"} & set(way)


def test_a_log_gives_no_command_an_argument_of_its_own() -> None:
    """A name is one argument, whatever it holds."""
    way = items.filled(items.SACCT, JOB="1; rm -rf /")
    assert way[:3] == ("sacct", "-j", "1; rm -rf /")
    tasks = list(here.of_pods("app=x --all", ["pod-1"]))
    assert any("app=x --all" in way for task in tasks for way in task.ways)


def test_the_program_sent_to_a_host_runs_on_an_old_python() -> None:
    """Hosts and containers have their own Python, and not this package."""
    sent = {f"postmortem.{file[:-3].replace('/', '.')}" for file in remote.FILES if file.endswith(".py")}
    for name in sent:
        source = (ROOT / f"{name.replace('.', '/')}.py").read_text()
        for node in ast.walk(ast.parse(source, feature_version=(3, 8))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("postmortem"):
                assert node.module in sent or all(f"{node.module}.{a.name}" in sent for a in node.names)


def test_a_host_needs_nothing_but_python(tmp_path: Path) -> None:
    """The program on standard input of an isolated Python; its answer is a tar with an index."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", json.dumps({"job": "nobody's"})],
        input=remote.program(),
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "answer.tar.gz").write_bytes(done.stdout)
    import tarfile

    with tarfile.open(tmp_path / "answer.tar.gz") as tar:
        names = tar.getnames()
    assert names[-1] == "index.json" and f"host={remote.hostname()}/ps.txt" in names


def test_the_list_says_of_each_item_why_and_how() -> None:
    done = collect("--list")
    for item in items.ALL:
        assert item.name in done.stdout and item.why in done.stdout
    assert "py-spy dump --nonblocking --pid PID" in done.stdout


def test_the_table_of_many_ranks_is_short() -> None:
    """A host with 64 ranks has 64 stacks, and one line that says how many came and why the others did not."""
    from postmortem.live.collect import table

    def one(n: int, why: str) -> dict:
        file = None if why else f"host=a/rank{n}.pid{n}.stack.txt"
        return {
            "item": items.STACK.name,
            "file": file,
            "bytes": 100,
            "seconds": n / 10,
            "why": why,
            "cut": False,
        }

    told = table.of_items([one(n, "" if n % 4 else "py-spy: exit code 1: Permission denied") for n in range(64)])
    assert told.splitlines()[1:] == [
        "rankRANK.pidPID.stack.txt: 48 of 64  6.2 KiB  6.3 s  py-spy: exit code 1: Permission denied"
    ]
    assert len(table.of_items([one(n, "") for n in range(4)]).splitlines()) == 5


def test_a_mistake_is_a_sentence() -> None:
    for arguments, said in (
        (("--srun", "1", "--ssh", "a"), "--srun and --ssh are two launchers"),
        (("--namespace", "x"), "--namespace and --container are for --kubectl"),
        (("--timeout", "5"), "--python, --timeout and --parallel are for many hosts"),
        (("--ssh", "-oProxyCommand=x"), "is not the name of a host"),
        (("--srun", "1;reboot"), "is not the number of a job"),
        (("--since", "yesterday"), "--since yesterday is not a time"),
    ):
        done = collect(*arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_no_file_or_process_is_left(tmp_path: Path) -> None:
    def held() -> tuple[set[str], set[str]]:
        """Files and children; those of other tests are not ours."""
        children = {
            pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
        }
        return set(os.listdir("/proc/self/fd")), children  # noqa: PTH208

    before = held()
    list(here.collected(job="nobody's"))
    assert held() == before
