"""The ledger: every byte of every file once, scanned, or skipped with a reason."""

from __future__ import annotations

import gzip
import os
import tempfile
import zipfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from packed import PACK, tar_of, zip_of

from postmortem.input import Collection, Container, Incomplete, Ledger, Limits, build, collect, open_sources
from postmortem.model import Scanned, Skip, Source

CORE = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00" + bytes(range(200))


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
TEXT = st.binary(max_size=300) | st.just(b"step 1 loss 0.5\n" * 40) | st.just(CORE)


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
@settings(max_examples=100, deadline=None)
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
        "core.7": CORE,
        "noise.bin": os.urandom(5000),
        "rank1.log.gz": packed,
        "rank2.log.gz": packed[:-20],
        "rank3.log.gz": packed + b"garbage",
        "b.tar": tar_of({"rank4.log": log, "core.8": CORE}),
        "b.zip": zip_of({"rank5.log": log, "core.9": CORE}),
    }.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latest").symlink_to("rank0.log")
    ledger = account(tmp_path)
    with zipfile.ZipFile(tmp_path / "b.zip") as z:
        deflated = z.getinfo("core.9").compress_size
    found = rows(ledger)
    assert {path: bytes_ for path, (bytes_, _) in found.items()} == {
        "core.7": len(CORE),
        "noise.bin": 5000,
        "rank2.log.gz": 0,  # everything on disk was read; the missing rest takes no room
        "rank3.log.gz": len(b"garbage"),
        "b.tar!/core.8": len(CORE),
        "b.zip!/core.9": deflated,
        "pipe": 0,
        "latest": 0,
    }
    assert found["core.7"][1] == found["b.tar!/core.8"][1] == found["b.zip!/core.9"][1] == "binary (ELF core)"
    assert found["rank2.log.gz"][1].startswith("gz ends early")
    files = [p for p in tmp_path.iterdir() if p.is_file() and not p.is_symlink()]
    assert len(files) == 8 and ledger.bytes == sum(p.stat().st_size for p in files)


def test_members_of_a_compressed_archive_share_its_bytes_on_disk(tmp_path: Path) -> None:
    core = CORE[:18] + os.urandom(60_000)
    (tmp_path / "b.tar.gz").write_bytes(
        gzip.compress(tar_of({"core.1": core, "rank0.log": os.urandom(30_000).hex().encode()}))
    )
    ledger = account(tmp_path)
    size = (tmp_path / "b.tar.gz").stat().st_size
    (bytes_, reason) = rows(ledger)["b.tar.gz!/core.1"]
    assert reason == "binary (ELF core)"
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
