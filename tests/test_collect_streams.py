"""Compressed files and archives: everything that can be decoded is delivered, the rest is counted."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import PACK, tar_of, zip_of

from postmortem.input import Container, Incomplete, Limits, collect, logs_in, open_sources
from postmortem.input.names import PASSED_BY
from postmortem.input.streams import InMemory, Utf16, utf16_order

LOG = b"".join(
    b"2026-11-20 21:03:%02d,%03d INFO [rank0] train: step %d loss %.4f\n" % (i // 50 % 60, i % 1000, i, 7 / (i + 1))
    for i in range(4000)
)
NOISE = random.Random(1)
# packs 3 times, in several blocks
LONG = b"".join(b"step %d loss %.9f grad %.9f\n" % (i, NOISE.random(), NOISE.random()) for i in range(25_000))


def read(path: Path, limits: Limits | None = None, step: int = 1 << 20) -> dict[str, tuple[bytes, str]]:
    """Return the data of each source of one file, and the reason why it is incomplete."""
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


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", PACK)
def test_compression_is_found_by_its_magic_and_rotated_parts_are_one_log(tmp_path: Path, form: str) -> None:
    pack = PACK[form]
    for name in ("rank0.log", f"rank0.log.{form}"):
        path = written(tmp_path / name, pack(LOG))
        assert read(path) == {path.name: (LOG, "")}
        assert collect([str(path)]).containers[0].form == form
    path = written(tmp_path / "x.log", pack(LOG) + pack(b"") + pack(b"second part\n") + bytes(512))
    assert read(path, step=1000) == {"x.log": (LOG + b"second part\n", "")}
    path.write_bytes(pack(LOG) + b"not compressed")
    data, reason = read(path)["x.log"]
    assert data == LOG and "after the end" in reason
    with pytest.raises(Incomplete) as failure:
        for _, stream in open_sources(collect([str(path)]).containers[0]):
            while stream.read(1 << 20):
                pass
    assert failure.value.lost == len(b"not compressed")


def test_optional_headers_and_a_wrong_checksum_cost_no_data(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"  # pzstd writes such frames first
    assert read(written(tmp_path / "x.zst", skippable + zstandard.compress(LOG))) == {"x.zst": (LOG, "")}
    packed = gzip.compress(LOG)
    options = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x05\x00extra" + b"rank0.log\0" + b"a comment\0" + b"\xab\xcd"
    assert read(written(tmp_path / "x.gz", options + packed[10:])) == {"x.gz": (LOG, "")}
    data, reason = read(written(tmp_path / "x.gz", packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]))["x.gz"]
    assert data == LOG and "checksum differs" in reason


def test_a_gz_cut_at_every_byte_gives_all_that_zlib_can_decode(tmp_path: Path) -> None:
    packed = gzip.compress(LOG[:1000])
    path = tmp_path / "x.gz"
    for cut in range(3, len(packed), 2):
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


@pytest.mark.parametrize("form", ["gz", "xz", "zst"])
def test_a_bomb_is_stopped_soon_and_named(tmp_path: Path, form: str) -> None:
    path = tmp_path / "bomb.log"
    path.write_bytes(PACK[form](bytes(72 << 20)))
    start = time.process_time()
    got = 0
    limits = Limits(total=64 << 20)
    with pytest.raises(Incomplete, match="stopped at 67108864 decompressed bytes") as failure:
        for _, stream in open_sources(collect([str(path)]).containers[0], limits):
            while chunk := stream.read(1 << 20):
                got += len(chunk)
    assert 63 << 20 <= got < 80 << 20
    assert time.process_time() - start < 10
    # in the other forms the zeros are so small that they are taken at once
    assert form != "gz" or failure.value.lost > 0


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_a_log_that_packs_well_is_read_to_its_end(tmp_path: Path, form: str) -> None:
    """Repeated lines pack 1,000 times and more."""
    log = b"2026-11-20 21:01:43,548 INFO [rank0] waiting for the data loader\n" * 300_000 + b"Killed\n"
    assert read(written(tmp_path / "rank0.log", PACK[form](log)))["rank0.log"] == (log, "")


def test_an_archive_is_read_for_its_time(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tar", tar_of({"a": LOG, "b": LOG}))
    assert read(path, Limits(seconds=0.0)) == {"x.tar": (b"", "stopped after 0 seconds")}


def test_names_that_repeat_take_linear_time(tmp_path: Path) -> None:
    """Each copy of a name once searched for a free number from 2 on: 8,000 empty members took ten seconds."""
    header = tarfile.TarInfo("rank0.log").tobuf()
    start = time.process_time()
    names = list(read(written(tmp_path / "x.tar", header * 10_000 + bytes(1024))))
    assert names[:2] == ["x.tar!/rank0.log", "x.tar!/rank0.log~2"] and len(set(names)) == 10_000
    assert time.process_time() - start < 8


def test_a_flood_of_empty_members_ends(tmp_path: Path) -> None:
    path = written(tmp_path / "x.gz", gzip.compress(b"", mtime=0) * 3000)
    assert read(path) == {"x.gz": (b"", "")}
    assert "more than 1000 members" in read(path, Limits(members=1000))["x.gz"][1]


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_utf16_is_read_as_utf8(tmp_path: Path) -> None:
    text = "RuntimeError: nöpe\r\n" * 9000
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        assert read(written(tmp_path / "x.log", text.encode(encoding)), step=1001) == {"x.log": (text.encode(), "")}
    assert utf16_order(b"step 1\n\0\0\0\0step 2\n" * 30) is None
    assert utf16_order(bytes(4096)) is None


@given(st.binary(max_size=400))
@settings(max_examples=80)
def test_utf16_of_anything_gives_valid_utf8(data: bytes) -> None:
    stream = Utf16(InMemory(data), "le")
    stream.read(1 << 20).decode("utf-8")


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
@settings(max_examples=40)
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


def test_long_names_and_big_members(tmp_path: Path) -> None:
    long = "node-a/" + "d" * 150 + "/rank0.log"
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = written(tmp_path / "b.tar", tar_of({long: LOG * 20, "b": b"after"}, format=form))
        assert read(path) == {f"b.tar!/{long}": (LOG * 20, ""), "b.tar!/b": (b"after", "")}


def test_a_tar_that_is_cut_or_damaged_gives_the_rest(tmp_path: Path) -> None:
    whole = tar_of({"a/rank0.log": LOG[:700], "a/rank1.log": LOG[:900]})
    for cut in range(512, len(whole), 397):
        data, reason = read(written(tmp_path / "b.tar", whole[:cut]))["b.tar!/a/rank0.log"]
        assert LOG[:700].startswith(data) and len(data) == min(700, cut - 512)
        assert cut >= 512 + 700 or "truncated: the archive ends after" in reason
    packed = gzip.compress(tar_of({"rank0.log": LOG, "rank1.log": LOG[::-1]}))
    got = read(written(tmp_path / "b.tar.gz", packed[: len(packed) // 2]))
    assert got["b.tar.gz!/rank0.log"] == (LOG, "") or got["b.tar.gz!/rank0.log"][1].startswith("truncated")
    assert got["b.tar.gz"][1].startswith("gz ends early: truncated at offset ")
    damaged = bytearray(tar_of({"a": b"x" * 512, "b": b"y" * 512}))
    damaged[1024:1030] = b"??????"
    got = read(written(tmp_path / "b.tar", damaged))
    assert got["b.tar!/a"] == (b"x" * 512, "")
    assert got["b.tar"][1] == "tar damaged: no header at offset 1024"


def test_hostile_members_are_labels_and_nothing_is_written(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for kind, names in {
            tarfile.REGTYPE: ("../../evil", "/abs/evil", "dup", "dup", "a\nb\x1b[31m"),
            tarfile.SYMTYPE: ("link",),
            tarfile.LNKTYPE: ("hard",),
            tarfile.FIFOTYPE: ("fifo",),
            tarfile.CHRTYPE: ("dev",),
        }.items():
            for name in names:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "/etc/passwd"
                info.size = 3 if kind == tarfile.REGTYPE else 0
                tar.addfile(info, io.BytesIO(b"abc") if info.size else None)
    (inside / "b.tar").write_bytes(out.getvalue())
    before = sorted(tmp_path.rglob("*"))
    got = read(inside / "b.tar")
    assert sorted(tmp_path.rglob("*")) == before
    kinds = {"link": "symbolic link", "hard": "hard link", "fifo": "FIFO", "dev": "character device"}
    assert {path: reason for path, (data, reason) in got.items() if not data} == {
        f"b.tar!/{name}": f"{kind} in an archive: not followed" for name, kind in kinds.items()
    }
    members = ("../../evil", "abs/evil", "dup", "dup~2", "a\\nb\\x1b[31m")
    assert [path for path, (data, _) in got.items() if data] == [f"b.tar!/{name}" for name in members]


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


def test_a_zip_is_read_by_its_directory(tmp_path: Path) -> None:
    files = {"node-a/rank0.log": LOG, "node-b/rank1.log": b"second\n"}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        path = written(tmp_path / "b.zip", zip_of(files, method))
        assert read(path) == {f"b.zip!/{name}": (data, "") for name, data in files.items()}


def test_zip_members_that_overlap_lie_or_are_locked_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name in ("a.log", "b.log", "c.log"):
            z.writestr(name, LOG)
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
    data = zip_of({"rank0.log": LOG, "x": b"second\n"}, zipfile.ZIP_STORED)
    header, at = data.rindex(b"PK\x01\x02"), data.rindex(b"x", 0, data.rindex(b"PK\x05\x06"))
    data = data[: header + 28] + b"\0\0" + data[header + 30 : at] + data[at + 1 :]  # its name in the directory
    size = len(data) - 22
    end = data.rindex(b"PK\x05\x06")
    begin = int.from_bytes(data[end + 16 : end + 20], "little")
    got = read(written(tmp_path / "b.zip", data[: end + 12] + (size - begin).to_bytes(4, "little") + data[end + 16 :]))
    assert got["b.zip!/rank0.log"] == (LOG, "") and got["b.zip!/?"] == (b"second\n", "")


def test_compressed_logs_in_archives_and_archives_one_level_deep(tmp_path: Path) -> None:
    files = {
        "rank0.log.gz": gzip.compress(LOG),
        "in.tar.zst": zstandard.compress(tar_of({"rank1.log": LOG})),
        "in.zip": zip_of({"rank2.log": LOG}),
        "deep.tar": tar_of({"too.tar": tar_of({"deep.log": LOG})}),
    }
    got = read(written(tmp_path / "b.tgz", gzip.compress(tar_of(files))))
    whole = {p for p, (data, reason) in got.items() if data == LOG and not reason}
    assert whole == {"b.tgz!/rank0.log.gz", "b.tgz!/in.tar.zst!/rank1.log", "b.tgz!/in.zip!/rank2.log"}
    assert got["b.tgz!/deep.tar!/too.tar"] == (b"", "tar inside 2 archives: read no deeper")


def test_a_member_may_be_left_unread(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(gzip.compress(tar_of({"a": LOG, "b": LOG, "c": LOG})))
    (container,) = collect([str(path)]).containers
    seen = [(source.path, stream.read(3)) for source, stream in open_sources(container)]
    assert seen == [(f"b.tar.gz!/{name}", LOG[:3]) for name in "abc"]


# ── how many logs there are, before they are read ───────────────────────────────────────────────────────────


def archived(path: Path, count: int, size: int) -> Container:
    data = tar_of({f"rank{i}.log": LOG[:size].ljust(size, b".") for i in range(count)})
    (container,) = collect([str(written(path, gzip.compress(data) if path.suffix == ".gz" else data))]).containers
    return container


def test_the_logs_of_an_archive_are_counted_in_its_first_part(tmp_path: Path) -> None:
    assert logs_in(archived(tmp_path / "a.tar", 40, 1000)) == 40
    assert logs_in(archived(tmp_path / "a.tar.gz", 700, 1000)) == 700
    few = archived(tmp_path / "few.tar", 9, 4 << 20)
    assert 4 <= logs_in(few) <= 9, "large logs may precede many small ones: the counted ones"
    many = archived(tmp_path / "many.tar", 2000, 16 << 10)
    assert 1900 <= logs_in(many) <= 2100, "and of many small ones, as many more as their part of it"


def test_a_plain_or_broken_file_is_one_log(tmp_path: Path) -> None:
    written(tmp_path / "rank0.log", LOG)
    written(tmp_path / "rank1.log.gz", gzip.compress(LOG))
    written(tmp_path / "cut.tar.gz", gzip.compress(tar_of({"rank2.log": LOG}))[:200])
    written(tmp_path / "a.zip", zip_of({f"rank{i}.log": LOG[:100] for i in range(30)}))
    found = {c.label: logs_in(c) for c in collect([str(tmp_path)]).containers}
    assert found == {"rank0.log": 1, "rank1.log.gz": 1, "cut.tar.gz": 1, "a.zip": 30}
