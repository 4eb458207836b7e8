"""The scan finds the same lines as slow and obvious code, however the bytes arrive, with either engine."""

from __future__ import annotations

import io
import pickle
import re
import sys
from dataclasses import replace
from unittest import mock

import numpy
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import table
from postmortem.library import Signature
from postmortem.model import Scanned, Source
from postmortem.scan import Engine, Limits, gate_of, hits, joined, lines, parts, reader, reads_from, scan, scan_part

SOURCE = Source("rank0.log", "console", 0)
KILLED = r"Killed process \d+ \((?P<comm>[^)]*)\)"
SIGNATURES = (
    Signature("killed", KILLED, KILLED, after=40, before=30),
    Signature("error", r"^(?P<type>\w+Error): .*", r"^(?P<type>\w+Error): .*", after=0, before=0),
    Signature("loss", r"(?i)LOSS\s*=\s*nan", r"(?i)LOSS\s*=\s*nan\b", after=10, before=80),
    Signature("loss", r"perte nulle é", r"perte nulle é", after=25, before=10),  # a second wording of the same
    Signature("ends", r"exit code: \d+$", r"exit code: (?P<exitcode>\d+)$", after=2048, before=2048),
    Signature("opener", r"Traceback \(most recent call last\)", None, after=60, before=0),
)
MANY = Limits(first=10_000)
ENGINES = {name: Engine.compile(SIGNATURES, prefer=name, cache=False) for name in ("hyperscan", "re2")}
FRAGMENTS = (
    b"\n", b"\n", b"\r\n", b"\r", b"\x0b", b"\x0c", b"\0", b"\0\0\0\0", b"\xff\xfe", b"\xc3", "é".encode(),
    b"\x85", "\u2028".encode(), b"\x1b[31m",
    b"\x1b[0m", b"\x1b]0;title\x07", b"\x1b", b" ", b"x" * 37, b"y" * 300, b"Killed process 12 (python)",
    b"Killed process 7 (a\r", b"b)", b"Killed \x1b[1mpro\0cess 99 (\x1b[0mtrain)", b"ValueError: bad \xe9",
    b"KeyError: 'x'", b"Loss =\x0bnan", b"LOSS\t= nan", "perte nulle é".encode(), b"exit code: 1",
    b"exit code: 12", b"Traceback (most recent call last):", b"100%|####| 5/5",
)  # fmt: skip


class Trickle:
    """A stream that returns less than it is asked for, as pipes and decompressors do."""

    def __init__(self, data: bytes, most: int) -> None:
        self.inner = io.BytesIO(data)
        self.most = most

    def read(self, n: int, /) -> bytes:
        return self.inner.read(min(n, self.most))


def run(
    data: bytes, engine: str = "hyperscan", chunk: int = 1 << 20, most: int = 1 << 30, limits: Limits = Limits()
) -> Scanned:
    return scan(SOURCE, Trickle(data, most), ENGINES[engine], limits=replace(limits, chunk=chunk))


def obvious(data: bytes) -> list[tuple[int, int, bytes, dict[str, dict[str, str]], tuple[str, ...]]]:
    """(line, offset, text, captures by pattern, openers) of each hit, by the plainest code there is."""
    rows = []
    offset = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        bare = re.sub(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\r\n]*\x07|\x00", b"", line)
        parts = [p for p in bare.split(b"\r") if p]
        matches: dict[str, dict[str, str]] = {}
        openers = []
        for signature in SIGNATURES:
            pattern = (signature.regex or signature.gate).encode()
            found = next((m for m in (regex.search(pattern, p) for p in parts) if m), None)
            if found and signature.regex is None:
                openers.append(signature.id)
            elif found and signature.id not in matches:
                matches[signature.id] = {k: v.decode("utf-8", "backslashreplace") for k, v in found.groupdict().items()}
        if matches or openers:
            rows.append((number, offset, line.removesuffix(b"\r"), matches, tuple(openers)))
        offset += len(line) + 1
    return rows


def whole_lines_before(data: bytes, offset: int, most: int) -> bytes:
    lines = b""
    for line in reversed(data[:offset].split(b"\n")[:-1]):
        if len(lines) + len(line) + 1 > most:
            break
        lines = line + b"\n" + lines
    return lines


def whole_lines_after(data: bytes, start: int, most: int) -> bytes:
    lines = b""
    for line in re.findall(rb"[^\n]*\n|[^\n]+", data[start:]):
        if len(lines) + len(line) > most:
            break
        lines += line
    return lines


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(b"".join))
@settings(max_examples=120)
def test_it_finds_what_a_plain_reading_finds(data: bytes) -> None:
    got = run(data, limits=MANY)
    rows = [(h.line, h.offset, h.text, {m.pattern: dict(m.captures) for m in h.matches}, h.openers) for h in got.hits]
    assert rows == obvious(data)
    assert got.lines == data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert got.bytes == len(data)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=80).map(b"".join), st.integers(1, 700), st.integers(1, 300))
@settings(max_examples=120)
def test_neither_chunks_nor_the_engine_change_anything(data: bytes, chunk: int, most: int) -> None:
    """Tiny limits, so that caps, long lines, samples and surroundings all cross the cuts."""
    small = Limits(first=2, last=2, head=64, tail=64, stride=100, sample=50, line=250)
    whole = run(data, limits=small)
    assert run(data, chunk=chunk, most=most, limits=small) == whole
    assert run(data, engine="re2", chunk=most, limits=small) == whole


PIECES = st.lists(st.sampled_from(FRAGMENTS), min_size=5, max_size=60).map(b"".join)


@given(
    st.lists(PIECES, min_size=1, max_size=4), st.integers(0, 90_000), st.integers(9_000, 40_000), st.integers(1, 60_000)
)
@settings(max_examples=25)
def test_a_source_scanned_in_parts_is_the_same_source(pieces: list[bytes], giant: int, size: int, chunk: int) -> None:
    """Lines across the bounds, lines longer than parts, parts without a line of their own, caps that only the whole
    reaches; without trust, which each part begins anew (see `hits`)."""
    data = (b"z" * giant).join(piece * (30_000 // len(piece) + 1) for piece in pieces)
    limits = Limits(first=3, last=2, stride=size, chunk=chunk, line=250, head=600, tail=700, sample=50)
    engine = ENGINES["hyperscan"]
    with mock.patch.object(hits, "TRUST", 1 << 60):
        divided = [
            scan_part(SOURCE, io.BytesIO(data[reads_from(part, engine, limits) :]), engine, part, limits)
            for part in parts(len(data), size, size)
        ]
        whole = run(data, limits=limits)
    assert sum(one.bytes for one in divided) == len(data)
    assert joined(SOURCE, divided, limits) == whole


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=200).map(b"".join), st.integers(1, 700))
@settings(max_examples=120)
def test_a_flood_is_thinned_without_a_trace(data: bytes, chunk: int) -> None:
    found = []
    for flood in (1, sys.maxsize):
        with mock.patch.object(lines, "FLOOD", flood), mock.patch.object(hits, "TRUST", 3):
            found.append(run(data * 3, chunk=chunk, limits=Limits(first=2, last=2)))
    assert found[0] == found[1]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(b"".join), st.integers(1, 100))
@settings(max_examples=80)
def test_surroundings_are_whole_lines_and_as_many_as_fit(data: bytes, chunk: int) -> None:
    reach = {"killed": (30, 40), "error": (0, 0), "loss": (80, 25), "ends": (2048, 2048), "opener": (0, 60)}
    for hit in run(data, chunk=chunk, limits=MANY).hits:
        ids = [m.pattern for m in hit.matches] + list(hit.openers)
        end = data.find(b"\n", hit.offset) + 1 or len(data)
        assert hit.before == whole_lines_before(data, hit.offset, max(reach[i][0] for i in ids))
        assert hit.after == whole_lines_after(data, end, max(reach[i][1] for i in ids))


def test_the_first_and_the_last_hits_come_back_and_all_are_counted() -> None:
    data = b"".join(b"step %d\nexit code: %d\n" % (n, n) for n in range(5000))
    got = run(data, limits=Limits(first=3, last=2))
    assert [h.line for h in got.hits] == [2, 4, 6, 9998, 10000]
    assert [h.matches[0].captures["exitcode"] for h in got.hits] == ["0", "1", "2", "4998", "4999"]
    assert got.counts == {"ends": 5000}
    assert got.hits[-1].before.endswith(b"exit code: 4998\nstep 4999\n")


def test_hits_side_by_side_share_a_piece_of_text_in_another_process_too() -> None:
    """A flood has some thousand lines with 4 KiB of surroundings each: twenty times the text. A lone hit holds its
    own surroundings."""
    flood = b"".join(b"step %d\nexit code: %d\n" % (n, n) for n in range(5000))
    alone = flood + b"quiet\n" * 50_000 + b"exit code: 1\n" + b"quiet\n" * 1000
    got = run(alone, limits=MANY)
    sent = pickle.loads(pickle.dumps(got))
    assert sent == got
    for found in (got.hits, sent.hits):
        pages = {id(hit.around.page): len(hit.around.page) for hit in found}
        assert sum(pages.values()) < 1.5 * len(flood) < sum(len(hit.before + hit.after) for hit in found) / 20
        assert max(pages.values()) <= 16 << 10 and len(found[-1].around.page) <= 4096 + len(b"exit code: 1\n")


def test_a_gate_that_is_too_wide_is_confirmed_line_by_line() -> None:
    engine = Engine.compile([Signature("x", "process", r"process \d+")], cache=False)
    data = b"process 1\nprocess x\n" * 3000
    assert scan(SOURCE, io.BytesIO(data), engine).counts == {"x": 3000}


def test_hits_near_every_cut_of_an_endless_line_are_found() -> None:
    """A line of 6 MiB is scanned in pieces of 1 MiB: needles are put across each cut, and where windows meet."""
    size = 6 << 20
    around = (-24600, -24576, -8200, -8192, -19, -15, -9, -1, 0, 1, 8180, 8190, 8192, 24570, 24576, 24580)
    # so that none lies on another
    places = [cut + d for n, cut in enumerate(range(1 << 20, size, 1 << 20)) for d in around[n::5]]
    signatures = [
        Signature(f"n{n}", f"needle-{n:04d}", rf"needle-{n:04d}-(?P<all>[a-z]+)!") for n in range(len(places))
    ]
    line = bytearray(b"." * size)
    for n, place in enumerate(places):
        line[place : place + 20] = b"needle-%04d-abcdef!." % n
    data = b"one\ntwo\n" + bytes(line) + b"\nKilled process\n"
    for name in ("hyperscan", "re2"):
        engine = Engine.compile(signatures, prefer=name, cache=False)
        (hit,) = scan(SOURCE, Trickle(data, 300_000), engine).hits
        assert {m.pattern: m.captures["all"] for m in hit.matches} == {s.id: "abcdef" for s in signatures}
        assert (hit.line, hit.offset, hit.before, hit.after) == (3, 8, b"one\ntwo\n", b"Killed process\n")
        assert len(hit.text) == 16384 and b"needle-0000-abcdef!" in hit.text


def test_numbers_stay_right_behind_an_endless_line_and_a_hole() -> None:
    """copytruncate leaves a hole of NULs before the first line after it."""
    data = (
        b"\0" * (9 << 20) + b"ValueError: after the hole\n" + b"x" * (5 << 20) + b"\nKeyError: 1\nIndexError: cut off"
    )
    got = run(data, chunk=700_001)
    assert [(h.line, [m.captures.get("type") for m in h.matches]) for h in got.hits] == [
        (1, ["ValueError"]),
        (3, ["KeyError"]),
        (4, ["IndexError"]),
    ]
    assert got.lines == 4
    assert got.hits[1].offset == data.index(b"KeyError")
    assert got == run(data, engine="re2")


def test_a_match_in_a_long_line_is_whole_and_its_text_is_around_it() -> None:
    digits = b"7" * 3000
    data = b"a" * 40_000 + b" exit code: " + digits + b"\n"
    engine = Engine.compile([Signature("x", r"exit code: \d+", r"exit code: (?P<exitcode>\d+)")], cache=False)
    (hit,) = scan(SOURCE, io.BytesIO(data), engine).hits
    assert hit.matches[0].captures["exitcode"] == digits.decode()
    assert len(hit.text) == 16384 and b" exit code: 777" in hit.text


GATES = table("scan")["gates"]


def test_gates_lose_names_greedy_ends_and_line_ends() -> None:
    for gate, expected in GATES:
        assert gate_of(Signature("x", gate, gate)).decode() == expected


def test_lines_are_counted_alike_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import costs a small job more than it saves; an engine counts the bytes of all its sources."""
    text = b"a line\nand one more\n\n" * 1000 + b"the last, cut of"
    asked = []
    monkeypatch.setattr(reader, "import_module", lambda name: asked.append(name) or numpy)
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setattr(reader, "NUMPY_PAYS", 3 * len(text))
    counter = reader.LineCounter()
    assert [counter.lines(text, 0) for _ in range(3)] == [3001] * 3 and not asked
    assert [counter.lines(text, 0) for _ in range(3)] == [3001] * 3 and asked == ["numpy"]
    assert reader.LineCounter().counted == 0
