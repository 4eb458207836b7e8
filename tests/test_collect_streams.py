"""Compressed files and archives: all that can be decoded is delivered,
and what cannot is told with a number."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import tar_of

from postmortem.input import Container, Incomplete, Limits, collect, logs_in, open_sources
from postmortem.input.names import PASSED_BY
from postmortem.input.streams import utf16_order

LOG = b"".join(
    b"2026-11-20 21:03:%02d,%03d INFO [rank0] train: step %d loss %.4f\n" % (i // 50 % 60, i % 1000, i, 7 / (i + 1))
    for i in range(4000)
)
NOISE = random.Random(1)
# packs 3 times, in several blocks
LONG = b"".join(b"step %d loss %.9f grad %.9f\n" % (i, NOISE.random(), NOISE.random()) for i in range(25_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": partial(lzma.compress, preset=0),
    "bz2": bz2.compress,
    "zst": zstandard.compress,
}


def read(path: Path, limits: Limits | None = None, step: int = 1 << 20) -> dict[str, tuple[bytes, str]]:
    """Return what each source of one file delivers, and the reason why it is not all,
    as the scan would see it."""
    out: dict[str, tuple[bytes, str]] = {}
    (container,) = collect([str(path)]).containers
    for source, stream in open_sources(container, limits):
        data, reason = b"", ""
        try:
            while chunk := stream.read(step):
                assert len(chunk) <= step
                data += chunk
        except Incomplete as failure:
            assert failure.skip.path == source.path
            reason = failure.reason
        out[source.path] = (data, reason)
    return out


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize("name", ["rank0.log", "rank0.log.{form}"])
def test_compression_is_told_by_its_magic_whatever_the_name(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name.format(form=form)
    path.write_bytes(PACK[form](LOG))
    assert read(path) == {path.name: (LOG, "")}
    assert collect([str(path)]).containers[0].form == form


@pytest.mark.parametrize("form", PACK)
def test_a_log_rotated_by_appending_is_one_log(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(PACK[form](LOG) + PACK[form](b"") + PACK[form](b"second life\n") + bytes(512))
    assert read(path, step=1000) == {"x.log": (LOG + b"second life\n", "")}


def test_pzstd_writes_skippable_frames_first(tmp_path: Path) -> None:
    path = tmp_path / "x.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstandard.compress(LOG))
    assert read(path) == {"x.zst": (LOG, "")}


def test_a_gz_header_with_all_its_options(tmp_path: Path) -> None:
    body = gzip.compress(LOG)[10:]
    path = tmp_path / "x.gz"
    path.write_bytes(
        b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x05\x00extra" + b"rank0.log\0" + b"a comment\0" + b"\xab\xcd" + body
    )
    assert read(path) == {"x.gz": (LOG, "")}


def test_a_gz_cut_at_every_byte_gives_all_that_zlib_can_decode(tmp_path: Path) -> None:
    import zlib

    packed = gzip.compress(LOG[:2000])
    path = tmp_path / "x.gz"
    for cut in range(3, len(packed)):
        path.write_bytes(packed[:cut])
        data, reason = read(path)["x.gz"]
        whole = zlib.decompressobj(31).decompress(packed[:cut])
        # isal may hold the last symbol back
        assert whole.startswith(data) and len(whole) - len(data) <= 8, cut
        assert reason == f"gz ends early: truncated at offset {cut}, {len(data)} bytes decompressed"


@pytest.mark.parametrize(("form", "at_least"), [("gz", 0.49), ("xz", 0.49), ("zst", 0.4), ("bz2", 0.0)])
def test_half_a_file_gives_half_the_log_and_a_row(tmp_path: Path, form: str, at_least: float) -> None:
    packed = PACK[form](LONG)  # zstd and bzip2 give whole blocks only: 128 KiB, 900 kB
    path = tmp_path / "x.log"
    path.write_bytes(packed[: len(packed) // 2])
    data, reason = read(path)["x.log"]
    assert LONG.startswith(data) and len(data) >= at_least * len(LONG)
    assert f"ends early: truncated at offset {len(packed) // 2}, {len(data)} bytes" in reason


def test_a_wrong_checksum_costs_no_data(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LOG))
    packed[-6] ^= 1
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    data, reason = read(path)["x.gz"]
    assert data == LOG and "checksum differs" in reason


@pytest.mark.parametrize("form", PACK)
def test_what_follows_the_compressed_data_is_told(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(PACK[form](LOG) + b"not compressed")
    data, reason = read(path)["x.log"]
    assert data == LOG and "after the end" in reason
    (container,) = collect([str(path)]).containers
    with pytest.raises(Incomplete) as told:
        for _, stream in open_sources(container):
            while stream.read(1 << 20):
                pass
    assert told.value.lost == len(b"not compressed")


@pytest.mark.parametrize("form", ["gz", "xz", "zst"])
def test_a_bomb_is_stopped_soon_and_named(tmp_path: Path, form: str) -> None:
    path = tmp_path / "bomb.log"
    path.write_bytes(PACK[form](bytes(96 << 20)))
    start = time.process_time()
    got = 0
    limits = Limits(total=64 << 20)
    with pytest.raises(Incomplete, match="stopped at 67108864 decompressed bytes") as told:
        for _, stream in open_sources(collect([str(path)]).containers[0], limits):
            while chunk := stream.read(1 << 20):
                got += len(chunk)
    assert 63 << 20 <= got < 80 << 20
    assert time.process_time() - start < 10
    # in the other forms 96 MiB of zeros are so small that they are taken at once
    assert form != "gz" or told.value.lost > 0


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_a_log_that_packs_well_is_read_to_its_end(tmp_path: Path, form: str) -> None:
    """Repeated lines pack 2,000 times and more, and no line tells of them that they are no log."""
    log = b"2026-11-20 21:01:43,548 INFO [rank0] waiting for the data loader\n" * 1_500_000 + b"Killed\n"
    path = tmp_path / "rank0.log"
    path.write_bytes(PACK[form](log))
    assert read(path)["rank0.log"] == (log, "")


def test_a_slow_container_is_read_for_its_time(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("a", "b"):
            info = tarfile.TarInfo(name)
            info.size = len(LOG)
            tar.addfile(info, io.BytesIO(LOG))
    found = read(path, Limits(seconds=0.0))
    assert found == {"x.tar": (b"", "stopped after 0 seconds")}


def test_names_that_repeat_cost_what_they_are(tmp_path: Path) -> None:
    """Each copy of a name asked for a free number from 2 on: 8,000 empty members took ten seconds."""
    header = tarfile.TarInfo("rank0.log").tobuf()
    path = tmp_path / "x.tar"
    path.write_bytes(header * 30_000 + bytes(1024))
    start = time.process_time()
    names = list(read(path))
    assert names[:2] == ["x.tar!/rank0.log", "x.tar!/rank0.log~2"] and len(set(names)) == 30_000
    assert time.process_time() - start < 20


def test_a_flood_of_empty_members_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"", mtime=0) * 3000)
    assert read(path) == {"x.gz": (b"", "")}
    assert "more than 1000 members" in read(path, Limits(members=1000))["x.gz"][1]


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_read_as_utf8(tmp_path: Path, encoding: str) -> None:
    text = "RuntimeError: nöpe\r\n" * 9000
    path = tmp_path / "x.log"
    path.write_bytes(text.encode(encoding))
    assert read(path, step=1001) == {"x.log": (text.encode(), "")}


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_utf16_of_anything_gives_valid_utf8(data: bytes) -> None:
    from postmortem.input.streams import InMemory, Utf16

    stream = Utf16(InMemory(data), "le")
    stream.read(1 << 20).decode("utf-8")


def test_a_log_with_some_nuls_is_not_utf16() -> None:
    assert utf16_order(b"step 1\n\0\0\0\0step 2\n" * 30) is None
    assert utf16_order(bytes(4096)) is None


# ── archives ────────────────────────────────────────────────────────────────────────────────────────────────


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0\n"), min_size=1, max_size=60).filter(
    lambda n: n not in (".", "..", *PASSED_BY) and "." not in n  # `.h` and the like are programs, and passed by
)
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=4).map("/".join),
    st.binary(max_size=2000).map(lambda b: b"log: " + b.hex().encode()),
    max_size=6,
)


@given(
    files=FILES,
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    packed=st.sampled_from(["", *PACK]),
)
@settings(max_examples=60, deadline=None)
def test_our_tar_reader_reads_what_the_standard_library_writes(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], form: int, packed: str
) -> None:
    try:
        data = tar_of(files, format=form)
    except ValueError:  # a name that USTAR cannot hold
        return
    path = tmp_path_factory.mktemp("t") / "bundle.tar"
    path.write_bytes(PACK[packed](data) if packed else data)
    got = [data for data, reason in read(path).values() if not reason]
    assert got == list(files.values()) or not files


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_big_members(tmp_path: Path, form: int) -> None:
    long = "node-a/" + "d" * 150 + "/rank0.log"
    path = tmp_path / "b.tar"
    path.write_bytes(tar_of({long: LOG * 20, "b": b"after"}, format=form))
    assert read(path) == {f"b.tar!/{long}": (LOG * 20, ""), "b.tar!/b": (b"after", "")}


def test_a_tar_cut_anywhere_gives_what_is_there(tmp_path: Path) -> None:
    whole = tar_of({"a/rank0.log": LOG[:700], "a/rank1.log": LOG[:900]})
    path = tmp_path / "b.tar"
    for cut in range(512, len(whole), 97):
        path.write_bytes(whole[:cut])
        got = read(path)
        assert LOG[:700].startswith(got["b.tar!/a/rank0.log"][0])
        assert len(got["b.tar!/a/rank0.log"][0]) == min(700, cut - 512)
        if cut < 512 + 700:
            assert "truncated: the archive ends after" in got["b.tar!/a/rank0.log"][1]


def test_a_truncated_tar_gz_names_the_member_and_the_archive(tmp_path: Path) -> None:
    packed = gzip.compress(tar_of({"rank0.log": LOG, "rank1.log": LOG[::-1]}))
    path = tmp_path / "b.tar.gz"
    path.write_bytes(packed[: len(packed) // 2])
    got = read(path)
    assert got["b.tar.gz!/rank0.log"] == (LOG, "") or got["b.tar.gz!/rank0.log"][1].startswith("truncated")
    assert got["b.tar.gz"][1].startswith("gz ends early: truncated at offset ")


def test_a_damaged_tar_header_loses_only_what_follows(tmp_path: Path) -> None:
    whole = bytearray(tar_of({"a": b"x" * 512, "b": b"y" * 512}))
    whole[1024:1030] = b"??????"
    path = tmp_path / "b.tar"
    path.write_bytes(whole)
    got = read(path)
    assert got["b.tar!/a"] == (b"x" * 512, "")
    assert got["b.tar"][1] == "tar damaged: no header at offset 1024"


def test_hostile_members_are_labels_and_nothing_is_written(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in [
            ("../../evil", tarfile.REGTYPE),
            ("/abs/evil", tarfile.REGTYPE),
            ("link", tarfile.SYMTYPE),
            ("hard", tarfile.LNKTYPE),
            ("fifo", tarfile.FIFOTYPE),
            ("dev", tarfile.CHRTYPE),
            ("dup", tarfile.REGTYPE),
            ("dup", tarfile.REGTYPE),
            ("a\nb\x1b[31m", tarfile.REGTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            info.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"abc") if info.size else None)
    (inside / "b.tar").write_bytes(out.getvalue())
    before = sorted(tmp_path.rglob("*"))
    got = read(inside / "b.tar")
    assert sorted(tmp_path.rglob("*")) == before
    assert {path: reason for path, (data, reason) in got.items() if not data} == {
        "b.tar!/link": "symbolic link in an archive: not followed",
        "b.tar!/hard": "hard link in an archive: not followed",
        "b.tar!/fifo": "FIFO in an archive: not followed",
        "b.tar!/dev": "character device in an archive: not followed",
    }
    assert [path for path, (data, _) in got.items() if data] == [
        "b.tar!/../../evil",
        "b.tar!/abs/evil",
        "b.tar!/dup",
        "b.tar!/dup~2",
        "b.tar!/a\\nb\\x1b[31m",
    ]


def test_a_name_record_of_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    """The standard library would read a PAX record of 8 GiB into memory before it looks at it."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    path = tmp_path / "b.tar"
    with path.open("wb") as f:
        f.write(info.tobuf(tarfile.GNU_FORMAT))
        f.truncate(512 + (8 << 30))
        f.seek(0, os.SEEK_END)
        f.write(tar_of({"rank0.log": LOG}))
    assert read(path)["b.tar!/rank0.log"] == (LOG, "")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_is_read_by_its_directory(tmp_path: Path, method: int) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", method) as z:
        z.writestr("node-a/rank0.log", LOG)
        z.writestr("node-b/rank1.log", b"second\n")
    assert read(path) == {"b.zip!/node-a/rank0.log": (LOG, ""), "b.zip!/node-b/rank1.log": (b"second\n", "")}


def test_zip_members_that_overlap_lie_or_are_locked_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.log", LOG)
        z.writestr("b.log", LOG)
        z.writestr("c.log", LOG)
        z.infolist()[1].header_offset = z.infolist()[0].header_offset  # both claim the same bytes
        z.infolist()[2].flag_bits |= 1
    got = read(path)
    assert got["b.zip!/a.log"] == (LOG, "")
    assert got["b.zip!/b.log"][1] == "overlaps another member of the zip"
    assert got["b.zip!/c.log"][1] == "encrypted"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 60])
    assert "without a readable directory" in read(path)["b.zip"][1]


def test_a_zip_member_without_a_name_is_read_as_others_are(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("rank0.log", LOG)
        z.writestr("x", b"second\n")
    data = path.read_bytes()
    header, at = data.rindex(b"PK\x01\x02"), data.rindex(b"x", 0, data.rindex(b"PK\x05\x06"))
    data = data[: header + 28] + b"\0\0" + data[header + 30 : at] + data[at + 1 :]  # its name in the directory
    size = len(data) - 22
    end = data.rindex(b"PK\x05\x06")
    begin = int.from_bytes(data[end + 16 : end + 20], "little")
    path.write_bytes(data[: end + 12] + (size - begin).to_bytes(4, "little") + data[end + 16 :])
    got = read(path)
    assert got["b.zip!/rank0.log"] == (LOG, "") and got["b.zip!/?"] == (b"second\n", "")


def test_compressed_logs_in_archives_and_archives_one_level_deep(tmp_path: Path) -> None:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("rank2.log", LOG)
    deep = tar_of({"too.tar": tar_of({"deep.log": LOG})})
    path = tmp_path / "b.tgz"
    path.write_bytes(
        gzip.compress(
            tar_of(
                {
                    "rank0.log.gz": gzip.compress(LOG),
                    "in.tar.zst": zstandard.compress(tar_of({"rank1.log": LOG})),
                    "in.zip": zipped.getvalue(),
                    "deep.tar": deep,
                }
            )
        )
    )
    got = read(path)
    assert {p for p, (data, reason) in got.items() if data == LOG and not reason} == {
        "b.tgz!/rank0.log.gz",
        "b.tgz!/in.tar.zst!/rank1.log",
        "b.tgz!/in.zip!/rank2.log",
    }
    assert got["b.tgz!/deep.tar!/too.tar"] == (b"", "tar inside 2 archives: read no deeper")


def test_a_member_may_be_left_unread(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(gzip.compress(tar_of({"a": LOG, "b": LOG, "c": LOG})))
    (container,) = collect([str(path)]).containers
    seen = [(source.path, stream.read(3)) for source, stream in open_sources(container)]
    assert seen == [(f"b.tar.gz!/{name}", LOG[:3]) for name in "abc"]


@given(
    st.binary(max_size=3000),
    st.sampled_from(["", "tar", "zip", "gz", "zst", "xz", "bz2"]),
    st.integers(0, 3000),
    st.integers(1, 255),
)
@settings(max_examples=150, deadline=None)
def test_no_damage_makes_it_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, form: str, at: int, flip: int
) -> None:
    if form == "tar":
        data = tar_of({"a": data, "b": data})
    elif form == "zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("a", data)
            z.writestr("b", data)
        data = out.getvalue()
    elif form:
        data = PACK[form](data)
    bad = bytearray(data)
    if at < len(bad):
        bad[at] ^= flip
    path = tmp_path_factory.mktemp("d") / "x"
    path.write_bytes(bad)
    for source, stream in open_sources(Container(path, "x", len(bad), "plain")):
        assert source.path.startswith("x")
        try:
            while stream.read(500):
                pass
        except Incomplete as failure:
            assert 0 <= failure.lost <= len(bad)


# ── how many logs there are, before they are read ───────────────────────────────────────────────────────────


def archived(path: Path, mode: str, count: int, size: int) -> Container:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for i in range(count):
            info = tarfile.TarInfo(f"rank{i}.log")
            info.size = size
            tar.addfile(info, io.BytesIO(LOG[:size].ljust(size, b".")))
    (container,) = collect([str(path)]).containers
    return container


def test_the_logs_of_an_archive_are_counted_in_its_first_part(tmp_path: Path) -> None:
    assert logs_in(archived(tmp_path / "a.tar", "w", 40, 1000)) == 40
    assert logs_in(archived(tmp_path / "a.tar.gz", "w:gz", 700, 1000)) == 700
    few = archived(tmp_path / "few.tar", "w", 9, 4 << 20)
    assert 4 <= logs_in(few) <= 9, "large ones may stand before many small ones: what was seen"
    many = archived(tmp_path / "many.tar", "w", 2000, 16 << 10)
    assert 1900 <= logs_in(many) <= 2100, "and of many small ones, as many more as their part of it"


def test_what_is_no_archive_is_one_log(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_bytes(LOG)
    (tmp_path / "rank1.log.gz").write_bytes(gzip.compress(LOG))
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(tar_of({"rank2.log": LOG}))[:200])
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for i in range(30):
            packed.writestr(f"rank{i}.log", LOG[:100])
    found = {c.label: logs_in(c) for c in collect([str(tmp_path)]).containers}
    assert found == {"rank0.log": 1, "rank1.log.gz": 1, "cut.tar.gz": 1, "a.zip": 30}
