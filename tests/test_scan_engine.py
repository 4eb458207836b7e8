"""What stands around the scan: the two engines, the cache of the compiled database,
broken streams, samples, memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postmortem.blocks import read_text
from postmortem.errors import PatternError
from postmortem.library import Signature, load
from postmortem.model import Pattern, Source
from postmortem.scan import Engine, Limits, scan
from postmortem.scan.cost import cost, healthy, slowness
from postmortem.scan.gates import is_exact
from postmortem.system import cache as kept

SOURCE = Source("rank0.log", "console", 0)
OOM = Signature("oom", r"CUDA out of memory", r"CUDA out of memory")
LIBRARY = load()
READ_BY_LINE = {s.id for s in LIBRARY.signatures()}


@pytest.fixture(scope="module", params=["hyperscan", "re2"])
def shipped(request: pytest.FixtureRequest) -> Engine:
    return Engine.compile(LIBRARY.signatures(), prefer=request.param, cache=False)


@pytest.mark.parametrize("pattern", [p for p in LIBRARY.patterns.values() if p.id in READ_BY_LINE], ids=lambda p: p.id)
def test_the_gates_of_shipped_patterns_let_their_examples_through(pattern: Pattern, shipped: Engine) -> None:
    """A gate narrower than its regex would hide events, and nobody would notice."""
    for example in pattern.matches:
        counts = scan(SOURCE, io.BytesIO(example.text.encode()), shipped).counts
        if any(v.on for v in pattern.variants) and not counts.get(pattern.id):  # a parser reads this wording
            counts = Counter(e.pattern for e in read_text(example.text, example.source, LIBRARY))
        assert example.incident or counts.get(pattern.id), example.text


def test_where_a_gate_says_all_that_its_regex_says_both_agree_on_every_line(shipped: Engine) -> None:
    """Such a regex is not asked before a line is counted.
    Examples, counterexamples, and each of them cut and spoilt somewhere."""
    rng = random.Random(5)
    texts = [e.text.encode() for p in LIBRARY.patterns.values() for e in (*p.matches, *p.no_matches)]
    lines = [line.replace(b"\r", b"") for text in texts for line in text.split(b"\n")]
    for line in lines[:]:
        at = rng.randrange(len(line) + 1)
        lines += [
            line[at:],
            line[:at],
            line[:at] + rng.choice((b" ", b"\x0b", b"\x85", b"\xa0", b"7", b"_")) + line[at + 1 :],
        ]
    asked = 0
    for line in lines:
        for number in {key & 0xFFFF for key in shipped.find(line)}:
            if shipped.exact[number]:
                asked += 1
                assert shipped.search(number, line), (shipped.signatures[number].id, line)
    assert asked > 1000 and 300 < sum(shipped.exact) < len(shipped.exact)


@pytest.mark.parametrize("gate", [r"code \d+$", r"(?i)NaN(?-i:Loss)", r"foo\Z", r"[[:alpha:]]oo", "(?:fou){e<=1}"])
def test_a_gate_that_says_less_than_its_regex_is_not_exact(gate: str) -> None:
    assert not is_exact(Signature("x", gate, gate))
    assert not is_exact(Signature("x", "code", r"code \d"))


def test_shipped_gates_are_silent_on_a_healthy_log(shipped: Engine) -> None:
    corpus = healthy(2 << 20)
    loud = {shipped.signatures[key & 0xFFFF].id for key in shipped.find(corpus)}
    assert not loud


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
@pytest.mark.parametrize(
    "gate",
    [r"(?=x)foo", r"(foo)\1", r"a*", r"foo\nbar", r"(foo", r"foo)", r"x++y", r"[é]tat", r"(?i)état", r"^"],
)
def test_a_gate_that_no_scanner_takes_is_refused_by_name(engine: str, gate: str) -> None:
    with pytest.raises(PatternError, match="pattern odd-one: "):
        Engine.compile([OOM, Signature("odd-one", gate, gate)], prefer=engine, cache=False)


def test_a_regex_that_takes_for_ever_is_left_out_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is linted; what users bring with --patterns is not."""
    monkeypatch.setattr("postmortem.scan.engine.PATIENCE", 0.05)
    engine = Engine.compile([Signature("bomb", "begin", "begin (a+)+(a+)+(a+)+!"), OOM], cache=False)
    got = scan(SOURCE, io.BytesIO((b"begin " + b"a" * 5000 + b"\n") * 20 + b"CUDA out of memory\n"), engine)
    assert got.counts == {"oom": 1}
    assert [s.reason.startswith("the regex of pattern bomb took too long") for s in got.skips] == [True]


def test_a_regex_that_is_none_is_refused_by_name() -> None:
    engine = Engine.compile([Signature("odd-one", "foobar", "foobar(")], cache=False)
    with pytest.raises(PatternError, match="odd-one"):
        scan(SOURCE, io.BytesIO(b"foobar\n"), engine)


# ── the cache ───────────────────────────────────────────────────────────────────────────────────────────────


def cached(folder: Path) -> list[Path]:
    return list((folder / "postmortem").glob("*"))


@pytest.mark.parametrize(
    "damage",
    [lambda b: b"", lambda b: b[:100], lambda b: b[:-9] + b"123456789", lambda b: os.urandom(len(b))],
)
def test_a_damaged_cache_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    """Hyperscan takes a damaged database without a word; what it then finds is anybody's guess."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Engine.compile([OOM], prefer="hyperscan")
    (path,) = cached(tmp_path)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert scan(SOURCE, io.BytesIO(b"CUDA out of memory\n"), Engine.compile([OOM], prefer="hyperscan")).counts == {
        "oom": 1
    }
    assert path.read_bytes() == good
    assert cached(tmp_path) == [path]


def test_a_database_under_the_name_of_another_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and good, but made of other patterns: its hits would be taken for those of the wrong ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    other = Signature("other", "harmless words", "harmless words")
    Engine.compile([OOM], prefer="hyperscan")
    (path,) = cached(tmp_path)
    good = path.read_bytes()
    Engine.compile([other], prefer="hyperscan")
    (stranger,) = set(cached(tmp_path)) - {path}
    shutil.copyfile(stranger, path)
    engine = Engine.compile([OOM], prefer="hyperscan")
    assert engine.find(b"CUDA out of memory") and not engine.find(b"harmless words")
    assert path.read_bytes() == good


def test_patterns_and_gates_under_the_name_of_others_count_as_missing(tmp_path: Path) -> None:
    mine, other = tmp_path / "a.gates.json", tmp_path / "b.gates.json"
    kept.store_rows(mine, ["one"])
    kept.store_rows(other, ["two"])
    assert (kept.fetch_rows(mine), kept.fetch_rows(other)) == (["one"], ["two"])
    good = mine.read_bytes()
    shutil.copyfile(other, mine)  # copied over
    mine.with_name("c.gates.json").write_bytes(good)  # renamed
    for path in (mine, mine.with_name("c.gates.json")):
        assert kept.fetch_rows(path) is None


def test_a_good_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Engine.compile([OOM], prefer="hyperscan")
    (path,) = cached(tmp_path)
    before = path.stat()
    engine = Engine.compile([OOM], prefer="hyperscan")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert engine.find(b"CUDA out of memory")


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Engine.compile([OOM], prefer="hyperscan").find(b"CUDA out of memory")


# ── streams that break, documents, samples ──────────────────────────────────────────────────────────────────


class Short:
    """Reads little at a time, as a decompressor should: what one read holds is lost when it fails."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def read(self, n: int, /) -> bytes:
        return bytes(self.stream.read(min(n, 4096)))


@pytest.mark.parametrize(
    ("lines", "pack", "unpack"),
    [
        (8_000, gzip.compress, gzip.open),
        (30_000, bz2.compress, bz2.open),
        (8_000, lzma.compress, lzma.open),
    ],  # a block of bz2 is 900 kB
    ids=["gz", "bz2", "xz"],
)
def test_a_truncated_archive_keeps_what_was_read(
    lines: int, pack: Callable[[bytes], bytes], unpack: Callable[..., Any]
) -> None:
    """A job that dies while it writes a .gz leaves it without an end."""
    whole = b"".join(b"%d CUDA out of memory %s\n" % (n, os.urandom(20).hex().encode()) for n in range(lines))
    packed = pack(whole)
    got = scan(SOURCE, Short(unpack(io.BytesIO(packed[: len(packed) * 3 // 4]))), Engine.compile([OOM], cache=False))
    assert 0 < got.bytes < len(whole)
    assert got.counts["oom"] == whole[: got.bytes].count(b"memory")
    (skip,) = got.skips
    assert skip.path == "rank0.log" and skip.bytes == 0 and f"at decompressed offset {got.bytes}" in skip.reason


def test_a_document_comes_back_whole_or_with_a_reason() -> None:
    engine = Engine.compile([OOM], cache=False)
    data = b'{"message": "CUDA out of memory"}' * 1000
    assert scan(SOURCE, Short(io.BytesIO(data)), engine, want_content=True).content == data
    too_large = scan(SOURCE, Short(io.BytesIO(data)), engine, want_content=True, limits=Limits(content=len(data) - 1))
    assert (
        too_large.content is None
        and too_large.counts == {"oom": 1}
        and "not read as a document" in too_large.skips[0].reason
    )
    assert scan(SOURCE, io.BytesIO(data), engine).content is None


@pytest.mark.parametrize("size", [0, 10, 60_000, 100_000, 128 << 10])
def test_samples_of_a_short_source_cover_each_line_once(size: int) -> None:
    data = healthy(1 << 18)[:size]
    samples = scan(SOURCE, io.BytesIO(data), Engine.compile([OOM], cache=False), limits=Limits(chunk=5000)).samples
    assert b"".join(s.text for s in samples) == data


def test_samples_of_a_long_source_are_its_head_a_line_of_each_mebibyte_and_its_tail() -> None:
    data = healthy(5 << 20).rstrip(b"\n")
    got = scan(SOURCE, io.BytesIO(data), Engine.compile([OOM], cache=False), limits=Limits(chunk=300_000))
    head, *middle, tail = got.samples
    assert head.line == 1 and (1 << 16) - len(head.text) < 4096
    assert data.endswith(tail.text) and (1 << 16) - len(tail.text) < 4096
    for sample in got.samples:
        assert data[sample.offset :].startswith(sample.text)
        assert sample.line == data.count(b"\n", 0, sample.offset) + 1
        assert sample.offset == 0 or data[sample.offset - 1] == 10
    assert [s.offset >> 20 for s in middle] == [1, 2, 3, 4]
    assert all(s.text.count(b"\n") == 1 for s in middle)


# ── cost ────────────────────────────────────────────────────────────────────────────────────────────────────

SPAM = r"""
from postmortem.model import Source
from postmortem.library import Signature, load
from postmortem.system import cache as kept
from postmortem.scan import Engine, scan
LINE = b"[rank3]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity\n"
class Stream:
    left = %d << 20
    def read(self, n):
        n = min(n, self.left)
        self.left -= n
        return %s
gates = ("memory. Tried to a", "memory. Tried to al", "memory. Tried to all")
regexes = ["memory. Tried to (?P<what>[a-z]+)", *[None] * (len(gates) - 1)]
signatures = [Signature(f"oom-{n}", *both) for n, both in enumerate(zip(gates, regexes))]
got = scan(Source("x", "console", 0), Stream(), Engine.compile(signatures, cache=False))
# ru_maxrss would be that of our parent
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(got.bytes, len(got.hits), int(peak.split()[1]) // 1024)
"""


@pytest.mark.parametrize(
    ("what", "mib", "read", "hits"),
    [
        ("each line matches", 24, "(LINE * (n // len(LINE) + 1))[:n]", 64),
        ("one line without end", 96, "b'x' * n", 0),
        ("no letter but line ends", 32, "b'\\n' * n", 0),
    ],
)
def test_memory_stays_bounded(what: str, mib: int, read: str, hits: int) -> None:
    out = subprocess.run([sys.executable, "-c", SPAM % (mib, read)], capture_output=True, text=True, check=True).stdout
    size, kept, peak = map(int, out.split())
    assert size == mib << 20
    assert kept >= hits
    assert peak < 120, what


def test_the_cost_of_a_bad_gate_shows() -> None:
    corpus = healthy(1 << 20)
    assert cost(Engine.compile([OOM], cache=False), corpus) == 0
    assert cost(Engine.compile([Signature("x", "loss")], cache=False), corpus) > 500
    assert slowness(Signature("x", "(?i).loss.{0,80}nan"), corpus) > 1.2 * slowness(OOM, corpus)
