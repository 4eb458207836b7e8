"""The parts around the scan: the two engines, the cache of the compiled database, broken streams, samples, memory."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import python
from postmortem.blocks import read_text
from postmortem.errors import PatternError
from postmortem.library import Signature, load
from postmortem.model import Source
from postmortem.scan import Engine, Limits, scan
from postmortem.scan.cost import cost, healthy
from postmortem.scan.gates import is_exact
from postmortem.system import cache as disk

SOURCE = Source("rank0.log", "console", 0)
OOM = Signature("oom", r"CUDA out of memory", r"CUDA out of memory")
LIBRARY = load()


@pytest.fixture(scope="module", params=["hyperscan", pytest.param("re2", marks=pytest.mark.slow)])
def shipped(request: pytest.FixtureRequest) -> Engine:
    return Engine.compile(LIBRARY.signatures(), prefer=request.param)


def test_the_gates_of_shipped_patterns_let_their_examples_through(shipped: Engine) -> None:
    """A gate narrower than its regex would hide events silently."""
    by_line = {s.id for s in LIBRARY.signatures()}
    assert (patterns := [p for p in LIBRARY.patterns.values() if p.id in by_line])
    for pattern in patterns:
        for example in pattern.matches:
            counts = scan(SOURCE, io.BytesIO(example.text.encode()), shipped).counts
            if any(v.on for v in pattern.variants) and not counts.get(pattern.id):  # a parser reads this wording
                counts = Counter(e.pattern for e in read_text(example.text, example.source, LIBRARY))
            assert example.incident or counts.get(pattern.id), (pattern.id, example.text)


def test_an_exact_gate_agrees_with_its_regex_on_every_line(shipped: Engine) -> None:
    """Such a regex is not searched before a line is counted. Examples, counterexamples, and damaged ones."""
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


def test_a_gate_that_is_weaker_than_its_regex_is_not_exact() -> None:
    for gate in (r"code \d+$", r"(?i)NaN(?-i:Loss)", r"foo\Z", r"[[:alpha:]]oo", "(?:fou){e<=1}"):
        assert not is_exact(Signature("x", gate, gate))
    assert not is_exact(Signature("x", "code", r"code \d"))


def test_shipped_gates_are_silent_on_a_healthy_log(shipped: Engine) -> None:
    corpus = healthy(2 << 20)
    loud = {shipped.signatures[key & 0xFFFF].id for key in shipped.find(corpus)}
    assert not loud


ODD_GATES = (r"(?=x)foo", r"(foo)\1", r"a*", r"foo\nbar", r"(foo", r"foo)", r"x++y", r"[é]tat", r"(?i)état", r"^")


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
def test_a_gate_that_no_scanner_takes_is_refused_by_name(engine: str) -> None:
    for gate in ODD_GATES:
        with pytest.raises(PatternError, match="pattern odd-one: "):
            Engine.compile([OOM, Signature("odd-one", gate, gate)], prefer=engine, cache=False)


def test_a_regex_that_does_not_end_is_left_out_with_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is linted; the patterns of users are not."""
    monkeypatch.setattr("postmortem.scan.engine.PATIENCE", 0.05)
    engine = Engine.compile([Signature("bomb", "begin", "begin (a+)+(a+)+(a+)+!"), OOM], cache=False)
    got = scan(SOURCE, io.BytesIO((b"begin " + b"a" * 5000 + b"\n") * 20 + b"CUDA out of memory\n"), engine)
    assert got.counts == {"oom": 1}
    assert [s.reason.startswith("the regex of pattern bomb took too long") for s in got.skips] == [True]


def test_an_invalid_regex_is_refused_by_name() -> None:
    engine = Engine.compile([Signature("odd-one", "foobar", "foobar(")], cache=False)
    with pytest.raises(PatternError, match="odd-one"):
        scan(SOURCE, io.BytesIO(b"foobar\n"), engine)


# ── the cache ───────────────────────────────────────────────────────────────────────────────────────────────


def cached(folder: Path) -> list[Path]:
    return list((folder / "postmortem").glob("*"))


def test_a_good_cache_is_used_and_a_damaged_one_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hyperscan loads a damaged database silently, and then finds anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Engine.compile([OOM], prefer="hyperscan")
    (path,) = cached(tmp_path)
    good, before = path.read_bytes(), path.stat()
    assert Engine.compile([OOM], prefer="hyperscan").find(b"CUDA out of memory")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    for damaged in (b"", good[:100], good[:-9] + b"123456789", os.urandom(len(good))):
        path.write_bytes(damaged)
        assert Engine.compile([OOM], prefer="hyperscan").find(b"CUDA out of memory")
        assert path.read_bytes() == good and cached(tmp_path) == [path]


def test_files_of_the_cache_under_the_name_of_others_count_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and good, but of other patterns: its hits would be those of the wrong ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Engine.compile([OOM], prefer="hyperscan")
    (path,) = cached(tmp_path)
    good = path.read_bytes()
    Engine.compile([Signature("other", "harmless words", "harmless words")], prefer="hyperscan")
    (stranger,) = set(cached(tmp_path)) - {path}
    shutil.copyfile(stranger, path)
    engine = Engine.compile([OOM], prefer="hyperscan")
    assert engine.find(b"CUDA out of memory") and not engine.find(b"harmless words")
    assert path.read_bytes() == good
    mine, renamed = tmp_path / "a.gates.json", tmp_path / "c.gates.json"
    disk.store_rows(mine, ["one"])
    assert disk.fetch_rows(mine) == ["one"]
    mine.rename(renamed)
    assert disk.fetch_rows(renamed) is None


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


def test_a_truncated_file_gives_the_lines_before_the_cut() -> None:
    """A job that dies while it writes a .gz leaves it without an end."""
    whole = b"".join(b"%d CUDA out of memory %s\n" % (n, os.urandom(20).hex().encode()) for n in range(8000))
    packed = gzip.compress(whole)
    cut = Short(gzip.GzipFile(fileobj=io.BytesIO(packed[: len(packed) * 3 // 4])))
    got = scan(SOURCE, cut, Engine.compile([OOM], cache=False))
    assert 0 < got.bytes < len(whole)
    assert got.counts["oom"] == whole[: got.bytes].count(b"memory")
    (skip,) = got.skips
    assert skip.path == "rank0.log" and skip.bytes == 0 and f"at decompressed offset {got.bytes}" in skip.reason


def test_a_document_comes_back_whole_or_with_a_reason() -> None:
    engine = Engine.compile([OOM], cache=False)
    data = b'{"message": "CUDA out of memory"}' * 1000
    assert scan(SOURCE, Short(io.BytesIO(data)), engine, want_content=True).content == data
    too_large = scan(SOURCE, Short(io.BytesIO(data)), engine, want_content=True, limits=Limits(content=len(data) - 1))
    assert (too_large.content, too_large.counts) == (None, {"oom": 1})
    assert "not read as a document" in too_large.skips[0].reason
    assert scan(SOURCE, io.BytesIO(data), engine).content is None


def test_samples_of_a_short_source_cover_each_line_once() -> None:
    engine, log = Engine.compile([OOM], cache=False), healthy(1 << 18)
    for size in (0, 10, 60_000, 100_000, 128 << 10):
        samples = scan(SOURCE, io.BytesIO(log[:size]), engine, limits=Limits(chunk=5000)).samples
        assert b"".join(s.text for s in samples) == log[:size]


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


@pytest.mark.parametrize(("what", "mib", "read", "hits"), [
    pytest.param("each line matches", 24, "(LINE * (n // len(LINE) + 1))[:n]", 64, marks=pytest.mark.slow),
    ("one line without end", 64, "b'x' * n", 0), ("no letter but line ends", 16, "b'\\n' * n", 0),
])  # fmt: skip
def test_memory_stays_bounded(what: str, mib: int, read: str, hits: int) -> None:
    out = python("-c", SPAM % (mib, read), check=True).stdout
    size, kept, peak = map(int, out.split())
    assert size == mib << 20
    assert kept >= hits
    assert peak < 120, what


def test_the_cost_of_a_bad_gate_shows() -> None:
    corpus = healthy(1 << 20)
    assert cost(Engine.compile([OOM], cache=False), corpus) == 0
    assert cost(Engine.compile([Signature("x", "loss")], cache=False), corpus) > 500
