"""The targets: for each its samples, the call with an input, and checks of the result.

An exception that a target does not name is a find, and so is a broken promise (AssertionError).
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from packed import PACK, tar_of, zip_of

from fuzz.watch import ROOT, folder
from postmortem import blocks as parsers
from postmortem import documents, reading, report, scan
from postmortem.analyze import Options, analyze
from postmortem.blocks import counters, faults, progress, signs
from postmortem.documents import plain_pickle
from postmortem.errors import PostmortemError
from postmortem.formats import envelope, excerpt, frames, framing, records, style, times, unwrap
from postmortem.input import Container, archives, collect, names, open_sources, remote, sniff
from postmortem.input.streams import Incomplete, Limits
from postmortem.library import load
from postmortem.library.read import parse as read_pattern
from postmortem.model import Around, Event, Hit, Sample, Skip, Source
from postmortem.privacy import Redactor
from postmortem.replay import catalogue, pick, script, verify
from postmortem.replay import documents as reports

SAMPLES = ROOT / "sample_logs"
DUMPS = ROOT / "tests" / "data" / "flight_recorder"
REPORTS = ROOT / "tests" / "data" / "excerpts" / "reports.yaml"
WINDOW = 12  # lines of one sample
KINDS = (
    "console", "agent", "kernel", "error-file", "flight-recorder", "stack", "coredumpctl", "process-table",
    "cgroup", "scheduler", "ray", "json-lines", "slurm", "job-report", "unit-status", "kubernetes", "gpu-report", "ras", "debug-server", "inspector",
    "abrt", "core-head",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A reader. `share` is its weight among all."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], None]
    share: float


# ── samples ─────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _files() -> dict[str, list[bytes]]:
    """The samples' files by the kind of source that they are."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(SAMPLES.glob("*/logs/**/*")):
        if path.is_file() and path.stat().st_size < 1 << 20:
            data = path.read_bytes()
            kind, _ = sniff.kind(path.name, data[:65536])
            found.setdefault(kind, []).append(data)
    for case in yaml.safe_load(REPORTS.read_text()).values():
        for name, text in case["files"].items():
            found.setdefault(sniff.kind(name, text.encode())[0], []).append(text.encode())
    return found


@cache
def windows() -> list[bytes]:
    """Pieces of samples of all kinds, and the examples of all patterns."""
    rng = random.Random(1)
    out = [example.text.encode() for p in load().patterns.values() for example in (*p.matches, *p.no_matches)]
    for data in (d for kind in sorted(_files()) for d in _files()[kind] if kind != "binary"):
        lines = data.splitlines(True)
        for _ in range(6):
            at = rng.randrange(max(1, len(lines) - WINDOW))
            out.append(b"".join(lines[at : at + WINDOW])[:4000])
    return sorted(set(out))


@cache
def lines() -> list[bytes]:
    return sorted({line for window in windows() for line in window.split(b"\n") if line})


def wrapped() -> list[bytes]:
    """Logs in the records of collectors, around pieces of samples."""
    import envelopes

    rng = random.Random(2)
    out = []
    for wrap in envelopes.ENVELOPES.values():
        for window in rng.sample(windows(), 5):
            out.append(wrap(envelopes.arrived(_text(window).splitlines())).encode("utf-8", "replace"))
    texts = [w.decode("utf-8", "replace") for w in windows()[:500]]
    rows = [json.dumps({"log": text, "time": "2026-11-20T03:12:08Z"}).encode() for text in texts[:200]]
    streams = [{"stream": {"pod": "a"}, "values": [["1763521928000000000", text]]} for text in texts[400:450]]
    loki = [json.dumps({"streams": [stream]}).encode() for stream in streams]

    def each(form: bytes, windows: list[bytes]) -> list[bytes]:
        return [b"".join(form % line for line in w.split(b"\n")) for w in windows]

    pairs = each(b"level=info rank=1 msg='%s'\n", windows()[200:300])
    cri = each(b"2026-11-20T03:12:08.1Z stdout F %s\n", windows()[300:400])
    table = [b"timestamp,message\n" + rows for rows in each(b'2026-11-20T03:12:08Z,"%s"\n', windows()[450:500])]
    return [*out, *rows, *pairs, *cri, *loki, *table]


def of_kinds(*kinds: str) -> Callable[[], list[bytes]]:
    return lambda: [data[:8000] for kind in kinds for data in _files().get(kind, ())] or windows()


def dumps() -> list[bytes]:
    """Recorder dumps as torch pickles them, and as JSON."""
    real = [p.read_bytes() for p in sorted(DUMPS.rglob("*")) if p.is_file()]
    real += [data for data in _files().get("flight-recorder", ()) if len(data) < 1 << 16]
    entry = {
        "record_id": 1, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "is_p2p": False,
        "frames": [{"name": "f", "filename": "a.py", "line": 3}], "profiling_name": "nccl:all_reduce",
        "input_sizes": [[10]], "input_dtypes": ["Float"], "output_sizes": [[10]], "output_dtypes": ["Float"],
        "state": "scheduled", "retired": False, "timeout_ms": 600000, "time_created_ns": 1763521928000000000,
    }  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    status = {"0": {"last_enqueued_collective": 2}}
    small = {"version": "2.10", "pg_config": groups, "pg_status": status, "entries": [entry]}
    return [*real, json.dumps(small).encode(), *(pickle.dumps(small, protocol) for protocol in (2, 3, 4, 5))]


def packed() -> list[bytes]:
    """Archives and compressed streams, one in the other."""
    text = b"".join(windows()[:5])
    names = ("node-a/rank0.log", "../../evil", "/etc/passwd", "rank1.log", "d" * 150)
    archive = tar_of(dict.fromkeys(names, text[:300]))
    zipped = zip_of({"node-a/rank0.log": text[:2000], "../../evil": b"x\n", "in.tar": archive[:3000]})
    utf16 = text.decode("utf-8", "replace").encode("utf-16")
    packed = [pack(data) for pack in PACK.values() for data in (text, archive, zipped)]
    return [archive, zipped, utf16, *packed, PACK["gz"](text) * 3, text]


def patterns() -> list[bytes]:
    return [p.read_bytes() for p in sorted((ROOT / "patterns").glob("*/*.yaml"))[::7]]


@cache
def foreign() -> list[bytes]:
    """Reports of this program, and small documents of the same schema."""
    page = (ROOT / "reports" / "examples" / "oom-on-second-host.html").read_bytes()
    out = [page[page.rindex(b'<script type="application/json"') :][:30000]]
    for row in pick.SCENARIOS:
        arguments = {name: row.arguments.get(name, 3) for name in catalogue.taken(row)}
        replay = {"scenario": row.id, "arguments": {**arguments, "world_size": 8, "rank": 3}}
        verdict = {"pattern": row.pattern, "category": row.category, "culprit": {"ranks": [3]}}
        made = json.dumps({"schema": reports.SCHEMA, "verdict": verdict, "replay": replay}).encode()
        out += [made, b'<html><script type="application/json" id="postmortem-incident">%s</script></html>' % made]
    return out


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

CONSOLE = Source("rank1.log", "console", 0, rank=1)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def peel(data: bytes) -> None:
    texts = excerpt.split(data)
    learnt = style.learn(texts[:40])
    for text in texts[:8]:
        for env in (envelope.peel(text), envelope.peel(text, learnt)):
            assert env.rank is None or 0 <= env.rank < 1 << 63
            assert isinstance(env.body, str)


def small(data: bytes) -> None:
    """The readers of one line."""
    text = _text(data)
    times.find(text)
    times.boot(text)
    _, message = faults.library_of(text)
    faults.fields_of(faults.read(message))
    counters.form_of(text)
    frames.opens_box(text)
    list(signs.counts(text))
    for sign in (signs.step, signs.has_error, signs.troubled, signs.result, signs.completion, signs.last_word):
        sign(text)


def record(data: bytes) -> None:
    found = records.load(_text(data))
    if found is not None:
        records.facts(found)
        list(records.texts(found))
        records.measured(found)


def export(data: bytes) -> None:
    text = _text(data)
    if framing.is_export(text):
        count = text.count("\n") + 1
        for group in framing.exported(text):
            assert all(1 <= row[0] <= count for row in group)


def unwrapped(data: bytes) -> None:
    for kind in ("console", "json-lines"):
        stream = unwrap.of(Source("x.log", kind, len(data)), io.BytesIO(data))
        total = 0
        while piece := stream.read(1 << 16):
            total += len(piece)
            assert total < 200 * len(data) + 1_000_000, "the unwrapped text grows without end"
        if isinstance(stream, unwrap.Unwrapped):
            assert stream.bytes == len(data)


def _check(events: Iterable[Event], data: bytes) -> None:
    count = data.count(b"\n") + data.count(b"\r") + 1
    for event in events:
        assert event.where.line is None or 1 <= event.where.line <= 200 * count + 1000
        assert len(event.text) <= 8000


def blocks(data: bytes) -> None:
    """Every parser of blocks on any line, with its opener or not."""
    whole = data.split(b"\n")
    learnt = style.learn(excerpt.split(data)[:40])
    for at in {0, len(whole) // 2, min(1, len(whole) - 1)}:
        before, after = b"\n".join(whole[:at]) + b"\n", b"\n" + b"\n".join(whole[at + 1 :])
        around = Around.of(before, after)
        one = excerpt.Excerpt(CONSOLE, Hit(at + 1, 0, whole[at], around, (), ()), learnt)
        for parser in parsers._BY_OPENER.values():
            _check(parser(one), data)


def worked(data: bytes) -> None:
    learnt = style.learn(excerpt.split(data)[:40])
    _check(progress.parse(CONSOLE, (Sample(1, 0, data),), learnt), data)


def document_of(kind: str) -> Callable[[bytes], None]:
    parser = documents.READERS[kind]

    def run(data: bytes) -> None:
        for event in parser(Source("nccl_trace_rank_3", kind, len(data)), data):
            json.dumps(event.fields, default=str)

    return run


def parts_of(kind: str) -> Callable[[bytes], None]:
    """A binary document on disk: as it is found, read and accounted for."""

    def run(data: bytes) -> None:
        source, path = Source(kind, kind, len(data)), _file(data, kind)
        with path.open("rb") as file:
            parts = documents.Parts(OnDisk(file.fileno()))
            for event in documents.IN_PARTS[kind](source, parts, ""):
                json.dumps(event.fields, default=str)

    return run


class OnDisk:
    def __init__(self, number: int) -> None:
        self.number = number

    def read(self, n: int) -> bytes:
        return b""

    def read_at(self, at: int, n: int) -> bytes | None:
        return os.pread(self.number, n, at) if at < 1 << 62 else b""

    def pass_over(self, n: int) -> int:
        return 0


def cores() -> list[bytes]:
    """Cores of the samples, and their beginnings."""
    found = [gzip.decompress(path.read_bytes()) for path in sorted(SAMPLES.glob("*/logs/core.*.gz"))]
    return [*found, *(data[:4000] for data in found)]


def snapshots() -> list[bytes]:
    frames = [{"filename": "/opt/train/attention.py", "line": 88, "name": "scores"}]
    block = {"size": 1 << 30, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "total_size": 2 << 30, "allocated_size": 1 << 30, "blocks": [block]}
    trace = [{"action": "oom", "size": 2 << 30, "device_free": 22 << 20, "time_us": 1795208014000000}]
    document = {"segments": [segment], "device_traces": [trace]}
    return [pickle.dumps(document, protocol) for protocol in (2, 3, 4, 5)]


def placed(data: bytes) -> None:
    for kind, reader in documents.PLACED.items():
        _check(reader(Source("x.txt", kind, len(data)), data, ()), data)


def pickled(data: bytes) -> None:
    try:
        value = plain_pickle.loads(data)
    except plain_pickle.PlainPickleError:
        return
    repr(value)
    pickle.dumps(value)


@cache
def engine() -> scan.Engine:
    return parsers.engine(load())


def parsed(kind: str) -> Callable[[bytes], None]:
    """The scan and all parsers of a source, without a handler of exceptions."""

    def run(data: bytes) -> None:
        source = Source("rank1.log", kind, len(data), rank=1)
        stream = unwrap.of(source, io.BytesIO(data))
        scanned = scan.scan(source, stream, engine(), want_content=kind in documents.KINDS)
        _check(parsers.parse(scanned, load()), data)

    return run


def named(data: bytes) -> None:
    label, _, head = data.partition(b"\n")
    shown = names.printable(label[:3000])
    assert shown.isprintable() or not shown
    kind, _ = sniff.kind(shown, head)
    source = names.source(shown, kind, len(head), Path("x") / "y", head)
    assert source.rank is None or source.rank >= 0


_FOLDER: list[Path] = []


def own() -> Path:
    """The folder of this run."""
    if not _FOLDER:
        _FOLDER.append(folder())
    return _FOLDER[0]


def gone() -> None:
    while _FOLDER:
        shutil.rmtree(_FOLDER.pop(), ignore_errors=True)


def _file(data: bytes, name: str) -> Path:
    path = own() / name
    path.write_bytes(data)
    return path


def opened(data: bytes) -> None:
    """Archives and streams: bounded, each byte once, and nothing written."""
    path = _file(data, "x")
    total = 0
    seen = set()
    for source, stream in open_sources(Container(path, "x", len(data), "plain"), Limits(total=64 << 20, members=500)):
        assert source.path.startswith("x") and source.path.isprintable() and source.path not in seen
        if source.path != "x":
            seen.add(source.path)
        try:
            while piece := stream.read(1 << 16):
                total += len(piece)
        except Incomplete as failure:
            assert 0 <= failure.lost <= max(len(data), 1 << 62)
    assert total <= 80 << 20
    assert list(own().iterdir()) == [path]
    assert archives.is_tar(data[:512]) in (True, False)


def read_one(data: bytes) -> None:
    """The whole reading of one source: it does not raise, and the ledger has no internal error."""
    path = _file(data, "rank1.log")
    found = collect([str(path)])
    for container in found.containers:
        read = reading.read(container)
        for skip in (*found.skipped, *read.skips, *(s for one in read.scanned for s in one.skips)):
            assert "internal error" not in skip.reason and "Error" not in skip.reason.split(":")[0], skip
    path.unlink()


def analysed(data: bytes) -> None:
    """All of it: three files out of one input, a verdict, every report."""
    logs = own() / "logs"
    logs.mkdir()
    try:
        third = len(data) // 3
        for number, name in enumerate(("rank0.log", "dmesg.txt", "rank1.err")):
            (logs / name).write_bytes(data[number * third : (number + 1) * third if number < 2 else None])
        try:
            incident = analyze([str(logs)], Options(workers=1))
        except PostmortemError as error:
            assert error.message and error.exit_code in (2, 3)
            return
        ledger, verdict = incident.document["ledger"], incident.document["verdict"]
        assert ledger["bytes"] == ledger["scanned"] + sum(row["bytes"] for row in ledger["skipped"])
        lost = [row for row in ledger["skipped"] if row.get("lost")]
        assert not any("nternal error" in row["reason"] or "line " in row["reason"][:5] for row in lost), lost
        assert not lost or verdict["outcome"] != "healthy"
        json.loads(report.render_json(incident))
        for form in ("html", "markdown", "ndjson", "junit", "trace", "github"):
            assert "an internal error in" not in getattr(report, f"render_{form}")(incident)
        report.render_terminal(incident, width=80, color=False)
    finally:
        for path in logs.iterdir():
            path.unlink()
        logs.rmdir()


class _Store:
    """A server with the answers of the input."""

    def __init__(self, data: bytes) -> None:
        self.rng = random.Random(data)
        self.rows = [line for line in _text(data).split("\n")[:20] if line]

    def find(self, _path: str, detail: bool = True) -> dict[str, Any]:
        sizes = [None, 0, 7, 512, 1 << 20, 1 << 62]
        kinds = ["file", "file", "directory", "other"]
        return {row: {"size": self.rng.choice(sizes), "type": self.rng.choice(kinds)} for row in self.rows}

    def isfile(self, _path: str) -> bool:
        return False

    def info(self, _name: str) -> dict[str, Any]:
        return self.rng.choice([{}, {"size": 5}, {"size": None}])

    def unstrip_protocol(self, name: str) -> str:
        return f"fuzz://{name}"

    def cat_file(self, name: str, start: int = 0, end: int = 0) -> bytes:
        if self.rng.random() < 0.2:
            raise ValueError(name)
        most = max(0, min(end - start, 1 << 16))
        return self.rng.randbytes(self.rng.choice([0, most, most, min(most, 5), most + 3]))


def listed(data: bytes) -> None:
    """Wrong names, sizes and contents of a store."""
    store = _Store(data)
    real = remote._system
    remote._system = lambda url: (store, url.removeprefix("fuzz://"))  # type: ignore[assignment]
    try:
        for row in remote.find("fuzz://bucket/run"):
            if isinstance(row, Skip):
                continue
            for source, stream in open_sources(row, Limits(total=1 << 20, members=50)):
                assert source.path
                try:
                    for _ in range(40):
                        if not stream.read(1 << 16):
                            break
                except Incomplete as failure:
                    assert failure.lost >= 0
    except PostmortemError as error:
        assert error.message
    finally:
        remote._system = real


def pattern(data: bytes) -> None:
    try:
        found = read_pattern(data, Path("team/mine.yaml"))
    except PostmortemError as error:
        assert "team/mine.yaml" in error.message
        return
    assert found.id and found.variants is not None


def replayed(data: bytes) -> None:
    """A document by others: a scenario with values in range, or one sentence; the script is Python."""
    path = _file(data, "incident.json")
    try:
        document = reports.read(path)
        order = pick.order(document)
    except PostmortemError as error:
        assert error.message and error.exit_code in (2, 3, 7, 1)
        return
    for name, value in order.arguments.items():
        assert type(value) in (int, float, str), name
    plan = verify.written(order)
    text = script.write(plan, "again.py")
    compile(text, "again.py", "exec")
    script.launch(plan, "again.py")


def redacted(data: bytes) -> None:
    assert Redactor().text(_text(data)) is not None


def _targets() -> Iterator[Target]:
    yield Target("peel", lines, peel, 18)
    yield Target("small", lines, small, 14)
    yield Target("record", wrapped, record, 6)
    yield Target("export", wrapped, export, 5)
    yield Target("unwrapped", wrapped, unwrapped, 4)
    yield Target("blocks", windows, blocks, 3)
    yield Target("worked", windows, worked, 2)
    yield Target("pickled", dumps, pickled, 18)
    for kind in documents.READERS:
        yield Target(kind, dumps if kind == "flight-recorder" else of_kinds(kind), document_of(kind), 4)
    yield Target("core", cores, parts_of("core"), 2)
    yield Target("memory-snapshot", snapshots, parts_of("memory-snapshot"), 2)
    yield Target("minidump", lambda: [import_module("test_crash_texts").minidump()], parts_of("minidump"), 2)
    yield Target("apport", of_kinds("apport"), parts_of("apport"), 2)
    yield Target("kubernetes", of_kinds("kubernetes"), placed, 3)
    yield Target("named", lines, named, 4)
    yield Target("opened", packed, opened, 2)
    yield Target("listed", lines, listed, 1)
    yield Target("pattern", patterns, pattern, 0.15)
    yield Target("replayed", foreign, replayed, 1)
    yield Target("redacted", lines, redacted, 2)
    for kind in KINDS:
        seeds = {"console": windows, "flight-recorder": dumps}.get(kind, of_kinds(kind))
        yield Target(f"parsed-{kind}", seeds, parsed(kind), 0.4)
    yield Target("read", lambda: [*windows(), *packed()], read_one, 0.4)
    yield Target("analysed", windows, analysed, 0.05)


TARGETS = {target.name: target for target in _targets()}
