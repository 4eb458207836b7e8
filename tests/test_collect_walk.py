"""Finding files: every regular file once, in one order, under readable labels; the rest with its reason."""

from __future__ import annotations

import inspect
import os
import random
import socket
import sys
from pathlib import Path

import pytest

from postmortem.errors import PathMissing
from postmortem.input import Collection, Incomplete, collect, open_sources


def labels(found: Collection) -> list[str]:
    return [container.label for container in found.containers]


def reasons(found: Collection) -> dict[str, str]:
    return {skip.path: skip.reason for skip in found.skipped}


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"this is {name}\n")


def test_labels_are_relative_to_the_given_folder_and_sorted(tmp_path: Path) -> None:
    names = ["node-b/rank1.log", "node-a/rank0.log", "agent.err", "node-a/kernel/dmesg.txt"]
    random.Random(0).shuffle(names)
    write(tmp_path, *names)
    assert labels(collect([str(tmp_path)])) == sorted(names)
    assert labels(collect([str(tmp_path / "agent.err")])) == ["agent.err"]


def test_several_paths_have_as_much_of_them_in_labels_as_makes_them_unique(tmp_path: Path) -> None:
    write(tmp_path, "x/node-a/rank0.log", "y/node-a/rank0.log", "z/dmesg.txt", "z/b/rank1.log")
    x, y, z = (str(tmp_path / name) for name in ("x/node-a", "y/node-a", "z"))
    zs = ["z/b/rank1.log", "z/dmesg.txt"]
    assert labels(collect([x, y, z])) == ["x/node-a/rank0.log", "y/node-a/rank0.log", *zs]
    assert labels(collect([x, z])) == ["node-a/rank0.log", *zs]
    overlapping = collect([z, f"{z}/b", f"{z}/dmesg.txt"])
    assert sorted(c.path.name for c in overlapping.containers) == ["dmesg.txt", "rank1.log"]
    assert overlapping.skipped == ()


def test_a_glob_that_the_shell_did_not_expand(tmp_path: Path) -> None:
    write(tmp_path, "0/stderr.log", "1/stderr.log", "2/other.txt")
    assert labels(collect([str(tmp_path / "*/stderr.log")])) == ["0/stderr.log", "1/stderr.log"]
    with pytest.raises(PathMissing, match="nothing matches") as error:
        collect([str(tmp_path / "*.nope")])
    assert "postmortem analyze ./logs" in error.value.hint
    with pytest.raises(PathMissing, match=r"no such file or folder: .*/lost\\n1") as error:
        collect([str(tmp_path / "lost\n1")])
    assert error.value.hint and error.value.exit_code == 2


def test_an_empty_folder_and_an_empty_file(tmp_path: Path) -> None:
    assert collect([str(tmp_path)]).containers == ()
    write(tmp_path, "x")
    (tmp_path / "x").write_bytes(b"")
    (container,) = collect([str(tmp_path)]).containers
    assert [(s.kind, stream.read(10)) for s, stream in open_sources(container)] == [("console", b"")]


def test_a_file_that_is_not_regular_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "sock"))
    assert reasons(collect([str(tmp_path)])) == {"pipe.log": "FIFO: not read", "sock": "socket: not read"}
    assert reasons(collect([str(tmp_path / "pipe.log")])) == {"pipe.log": "FIFO: not read"}
    assert reasons(collect(["/dev/zero"])) == {"zero": "character device: not read"}


def test_links_are_not_followed_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    write(root, "run_1/rank0.log")
    write(tmp_path, "secret.txt")
    (root / "latest").symlink_to("run_1")
    (root / "loop").symlink_to(".")
    (root / "out.log").symlink_to(tmp_path / "secret.txt")
    (root / "gone").symlink_to("nowhere")
    (root / "self").symlink_to("self")
    os.link(root / "run_1/rank0.log", root / "run_1/same.log")
    found = collect([str(root)])
    assert labels(found) == ["run_1/rank0.log"]
    why = reasons(found)
    assert why["latest"] == why["loop"] == "link inside the given folder: its target is read by its own name"
    assert why["out.log"].startswith("link out of the given folder")
    assert why["gone"] == why["self"] == "dangling link"
    assert why["run_1/same.log"] == "the same file as run_1/rank0.log"
    assert labels(collect([str(root / "latest")])) == ["rank0.log"], "a link named on the command line is meant"


def test_a_file_swapped_for_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "a.log", "secret")
    (container,) = collect([str(tmp_path / "a.log")]).containers
    (tmp_path / "a.log").unlink()
    (tmp_path / "a.log").symlink_to("secret")
    ((source, stream),) = open_sources(container)
    with pytest.raises(Incomplete, match="cannot be opened"):
        stream.read(1)
    assert source.path == "a.log"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_loss_of_its_size(tmp_path: Path) -> None:
    write(tmp_path, "a.log", "closed/b.log")
    (tmp_path / "a.log").chmod(0)
    (tmp_path / "closed").chmod(0)
    found = collect([str(tmp_path)])
    (tmp_path / "closed").chmod(0o700)
    why = {"a.log": "cannot be read: Permission denied", "closed/": "folder cannot be read: Permission denied"}
    assert reasons(found) == why
    assert [skip.bytes for skip in found.skipped] == [len("this is a.log\n"), 0]


def test_caches_are_skipped_with_their_size(tmp_path: Path) -> None:
    write(tmp_path, "rank0.log", ".git/objects/aa/bb", ".git/HEAD", "lib/site-packages/torch/x.py", ".hidden/rank1.log")
    found = collect([str(tmp_path)])
    assert labels(found) == [".hidden/rank1.log", "rank0.log"]
    sizes = [(f.relative_to(tmp_path), f.stat().st_size) for f in tmp_path.rglob("*") if f.is_file()]
    size = {folder: sum(n for f, n in sizes if str(f).startswith(folder)) for folder in (".git/", "lib/site-packages/")}
    assert {s.path: s.bytes for s in found.skipped} == size


def test_programs_and_notes_are_no_logs_unless_the_user_names_them(tmp_path: Path) -> None:
    write(tmp_path, "rank0.log", "train.py", "job/README.md", "conf.d/events.yaml", "launch.SH")
    found = collect([str(tmp_path)])
    assert labels(found) == ["conf.d/events.yaml", "rank0.log"]
    left_out = ["job/README.md", "launch.SH", "train.py"]
    assert [path for path, reason in reasons(found).items() if "name the file itself" in reason] == left_out
    assert sum(skip.bytes for skip in found.skipped) == sum((tmp_path / p).stat().st_size for p in left_out)
    assert labels(collect([str(tmp_path / "job/README.md"), str(tmp_path / "rank0.log")])) == ["README.md", "rank0.log"]


def test_odd_names_are_escaped_and_stay_different(tmp_path: Path) -> None:
    odd = {
        b"a\nb.log": "a\\nb.log",
        b"a\\nb.log": "a\\nb.log~2",
        b"\xff\xfe.log": "\\xff\\xfe.log",
        b"-rf": "-rf",
        b"\x1b[31mred": "\\x1b[31mred",
        "e\u202egol.txt".encode(): "e\\u202egol.txt",
        "größe.log".encode(): "größe.log",
    }
    for name in odd:
        (tmp_path / os.fsdecode(name)).write_text("x")
    assert set(labels(collect([str(tmp_path)]))) == set(odd.values())
    assert all(label.isprintable() for label in odd.values())


BINARIES = (
    (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00", "ELF core"),
    (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00", "ELF library or program"),
    (b"PAR1\x15\x04", "parquet"),
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\x40\0\0\0\0\0\0\0" + b'{"__metadata__":{}}', "safetensors"),
    (b"PK\x03\x04" + bytes(22) + b"\x10\0\0\0archive/data.pkl", "PyTorch checkpoint"),
    (b"LPKSHHRH", "systemd journal: export it with `journalctl --file FILE -o short-iso-precise`"),
)


def test_binary_files_are_skipped_whatever_their_name(tmp_path: Path) -> None:
    for n, (head, _) in enumerate(BINARIES):
        (tmp_path / f"rank{n}.log").write_bytes(head + bytes(range(256)))
    found = collect([str(tmp_path)])
    assert found.containers == ()
    assert [(s.bytes, s.reason) for s in found.skipped] == [
        (len(head) + 256, f"binary ({kind})") for head, kind in BINARIES
    ]


def test_a_file_that_grows_or_shrinks_while_it_is_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 100_000)
    (container,) = collect([str(log)]).containers
    with log.open("ab") as f:
        f.write(b"later\n")
    assert b"".join(stream.read(1 << 20) for _, stream in open_sources(container)) == b"x" * 100_000
    os.truncate(log, 70_000)
    for _, stream in open_sources(container):
        assert len(stream.read(1 << 20)) == 70_000
        with pytest.raises(Incomplete, match="shrank while it was read: ends at 70000 of 100000") as error:
            stream.read(1)
        assert error.value.lost == 30_000


def test_a_stream_after_its_turn_does_not_read_another_file(tmp_path: Path) -> None:
    write(tmp_path, "a.log", "b.log")
    (tmp_path / "a.log").write_bytes(b"a" * 200_000)
    (tmp_path / "b.log").write_bytes(b"b" * 200_000)
    ((_, stream),) = open_sources(collect([str(tmp_path / "a.log")]).containers[0])
    with (tmp_path / "b.log").open("rb"):  # gets the number of the descriptor that was closed
        assert set(stream.read(200_000)) <= {ord("a")}
        with pytest.raises(Incomplete, match="Bad file descriptor"):
            stream.read(1)


def test_a_sparse_terabyte_is_read_in_no_time(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("wb") as f:
        f.write(b"before\n")
        f.truncate(1 << 40)
        f.seek(1 << 40)
        f.write(b"after\n")
    (container,) = collect([str(log)]).containers
    for source, stream in open_sources(container):
        data = stream.read(1 << 20)
        assert data.startswith(b"before\n\0") and data.endswith(b"\0after\n") and source.kind == "console"
        with pytest.raises(Incomplete, match="holes of a sparse file") as error:
            stream.read(1)
        assert error.value.lost + len(data) == (1 << 40) + 6


def test_a_deep_tree_needs_no_recursion(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "rank0.log").write_text("x")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        assert len(labels(collect([str(tmp_path)]))) == 1
    finally:
        sys.setrecursionlimit(limit)


def test_descriptors_stay_few(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    write(tmp_path, *(f"rank{n}.log" for n in range(50)))
    before = descriptors()
    for container in collect([str(tmp_path)]).containers:
        for _, stream in open_sources(container):
            stream.read(1)
            assert descriptors() <= before + 1
    assert descriptors() == before
