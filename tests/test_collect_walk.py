"""Finding files: every regular file once, in one order, under readable labels; the rest with its reason. And the ledger:
every byte of every file once, scanned, or skipped with a reason."""

from __future__ import annotations

import gzip
import inspect
import os
import random
import socket
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import PACK, tar_of, zip_of

from postmortem.errors import PathMissing
from postmortem.input import Collection, Container, Incomplete, Ledger, Limits, build, collect, open_sources
from postmortem.model import Scanned, Skip, Source


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
    assert "./logs" in error.value.hint
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
    assert why["latest"] == why["loop"] == "link inside the given folder: its target is read under its own name"
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
    sizes = []
    for _, stream in open_sources(container):
        sizes.append(len(stream.read(1 << 20)))
        with pytest.raises(Incomplete, match="shrank while it was read: ends at 70000 of 100000") as error:
            stream.read(1)
        assert error.value.lost == 30_000
    assert sizes == [70_000]


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
    count = 0
    for source, stream in open_sources(container):
        count += 1
        data = stream.read(1 << 20)
        assert data.startswith(b"before\n\0") and data.endswith(b"\0after\n") and source.kind == "console"
        with pytest.raises(Incomplete, match="holes of a sparse file") as error:
            stream.read(1)
        assert error.value.lost + len(data) == (1 << 40) + 6
    assert count == 1


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
    assert len(containers := collect([str(tmp_path)]).containers) == 50
    for container in containers:
        for _, stream in open_sources(container):
            stream.read(1)
            assert descriptors() <= before + 1
    assert descriptors() == before


LIBRARY = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + bytes(range(200))


def scanned(source: Source, bytes_: int, skips: tuple[Skip, ...] = ()) -> Scanned:
    return Scanned(source, bytes_, 0, (), (), {}, None, skips)


def read(found: Collection, limits: Limits | None = None) -> list[Scanned]:
    """Read everything as the scan does."""
    out = []
    for container in found.containers:
        for source, stream in open_sources(container, limits):
            got, skips = 0, ()
            try:
                while chunk := stream.read(1 << 20):
                    got += len(chunk)
            except Incomplete as failure:
                skips = (failure.skip,)
            out.append(scanned(source, got, skips))
    return out


def account(root: Path, limits: Limits | None = None) -> Ledger:
    found = collect([str(root)])
    return build(found.containers, read(found, limits), found.skipped)


def rows(ledger: Ledger) -> dict[str, tuple[int, str]]:
    return {row.path: (row.bytes, row.reason) for row in ledger.skipped}


# ── the sum ─────────────────────────────────────────────────────────────────────────────────────────────────

NAME = st.sampled_from(["a", "b", "rank0.log", "dmesg.txt", "x.gz", ".git", "node-a"])
TEXT = st.binary(max_size=300) | st.just(b"step 1 loss 0.5\n" * 40) | st.just(LIBRARY)


@st.composite
def contents(draw: st.DrawFn, depth: int = 2) -> bytes:
    kinds = ["plain", "packed", "cut"] + (["tar", "zip"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "plain":
        return draw(TEXT)
    if kind in ("tar", "zip"):
        files = draw(st.dictionaries(NAME, contents(depth=depth - 1), max_size=3))
        data = (tar_of if kind == "tar" else zip_of)(files)
    else:
        data = PACK[draw(st.sampled_from(sorted(PACK)))](draw(contents(depth=0) if depth else TEXT))
    if kind == "cut" or draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    if data and draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    return PACK["gz"](data) if draw(st.integers(0, 4)) == 0 else data


TREE = st.recursive(
    contents() | st.sampled_from(["fifo", "link out", "link in", "hard link"]),
    lambda below: st.dictionaries(NAME, below, max_size=4),
    max_leaves=8,
)


def plant(root: Path, tree: object) -> int:
    """Make the tree on disk. Return the bytes of its regular files, each inode once."""
    if isinstance(tree, bytes):
        root.write_bytes(tree)
        return len(tree)
    if isinstance(tree, dict):
        root.mkdir()
        return sum(plant(root / name, below) for name, below in tree.items())
    if tree == "fifo":
        os.mkfifo(root)
    elif tree == "link out":
        root.symlink_to("/etc/passwd")
    elif tree == "link in":
        root.symlink_to("..")
    elif other := next((p for p in sorted(root.parent.iterdir()) if p.is_file() and not p.is_symlink()), None):
        os.link(other, root)
    return 0


@given(TREE)
@settings(max_examples=100)
def test_every_byte_is_accounted_for_exactly_once(tree: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "logs"
        there = plant(root, tree if isinstance(tree, (dict, bytes)) else {"x": tree})
        found = collect([str(root)])
        ledger = build(found.containers, read(found), found.skipped)
    labels = [c.label for c in found.containers]
    assert len(set(labels)) == len(labels)
    assert ledger.bytes == there
    assert ledger.scanned + sum(row.bytes for row in ledger.skipped) == there
    assert ledger.scanned >= 0 and all(row.bytes >= 0 and row.reason for row in ledger.skipped)
    for row in ledger.skipped:  # a file's rows never take more than the file
        mine = [c for c in found.containers if row.path == c.label or row.path.startswith(c.label + "!/")]
        assert not mine or row.bytes <= mine[0].size


# ── single bytes: the sum could hold by mere subtraction ────────────────────────────────────────────────────


def test_a_folder_of_everything(tmp_path: Path) -> None:
    log = b"step 1 loss 0.5\n" * 100
    packed = gzip.compress(log)
    for name, data in {
        "rank0.log": log,
        "a.so": LIBRARY,
        "noise.bin": os.urandom(5000),
        "rank1.log.gz": packed,
        "rank2.log.gz": packed[:-20],
        "rank3.log.gz": packed + b"garbage",
        "b.tar": tar_of({"rank4.log": log, "b.so": LIBRARY}),
        "b.zip": zip_of({"rank5.log": log, "c.so": LIBRARY}),
    }.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latest").symlink_to("rank0.log")
    ledger = account(tmp_path)
    with zipfile.ZipFile(tmp_path / "b.zip") as z:
        deflated = z.getinfo("c.so").compress_size
    found = rows(ledger)
    assert {path: bytes_ for path, (bytes_, _) in found.items()} == {
        "a.so": len(LIBRARY),
        "noise.bin": 5000,
        "rank2.log.gz": 0,  # everything on disk was read; the missing rest takes no room
        "rank3.log.gz": len(b"garbage"),
        "b.tar!/b.so": len(LIBRARY),
        "b.zip!/c.so": deflated,
        "pipe": 0,
        "latest": 0,
    }
    assert found["a.so"][1] == found["b.tar!/b.so"][1] == found["b.zip!/c.so"][1] == "binary (ELF library or program)"
    assert found["rank2.log.gz"][1].startswith("gz ends early")
    files = [p for p in tmp_path.iterdir() if p.is_file() and not p.is_symlink()]
    assert len(files) == 8 and ledger.bytes == sum(p.stat().st_size for p in files)


def test_members_of_a_compressed_archive_share_its_bytes_on_disk(tmp_path: Path) -> None:
    core = LIBRARY[:18] + os.urandom(60_000)
    (tmp_path / "b.tar.gz").write_bytes(
        gzip.compress(tar_of({"d.so": core, "rank0.log": os.urandom(30_000).hex().encode()}))
    )
    ledger = account(tmp_path)
    size = (tmp_path / "b.tar.gz").stat().st_size
    (bytes_, reason) = rows(ledger)["b.tar.gz!/d.so"]
    assert reason == "binary (ELF library or program)"
    assert abs(bytes_ / size - 0.5) < 0.01, "60 kB of 120 kB, as the members are counted"


def test_an_unread_file_is_not_counted_as_scanned() -> None:
    """A worker that dies returns nothing, not even a reason."""
    container = Container(Path("/x"), "rank0.log", 100, "plain")
    assert build([container], [], []) == Ledger(100, 0, (Skip("rank0.log", 100, "not scanned"),))
    lost = Skip("rank0.log", 100, "the worker died")
    assert build([container], [], [lost]) == Ledger(100, 0, (lost,))


def test_rows_never_take_more_than_their_file() -> None:
    container = Container(Path("/x"), "a!/b.log", 100, "plain")
    source = Source("a!/b.log", "console", 100)
    ledger = build([container], [scanned(source, 40, (Skip("a!/b.log", 70, "one"), Skip("a!/b.log", 70, "two")))], [])
    assert [(row.reason, row.bytes) for row in ledger.skipped] == [("one", 70), ("two", 30)]


def test_the_order_of_work_does_not_show(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        (tmp_path / name).write_bytes(gzip.compress(name.encode() * 100)[:-3])
    found = collect([str(tmp_path)])
    ledger = build(found.containers, read(found)[::-1], found.skipped)
    assert ledger == build(found.containers, read(found), found.skipped)
    assert [row.path for row in ledger.skipped] == ["a", "b", "c"]
    assert ledger.to_json()["skipped"] == [
        {"path": name, "bytes": 0, "reason": rows(ledger)[name][1], "lost": True} for name in ("a", "b", "c")
    ]
    assert list(ledger.to_json()) == ["bytes", "scanned", "skipped"]
