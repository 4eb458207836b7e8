"""Work and memory are limited in one process as in workers: a hostile source costs its own row only."""

from __future__ import annotations

import gzip
import json
import resource
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from packed import tar_of

from conftest import GOOD, losses, python
from postmortem import input as collect
from postmortem import reading
from postmortem.analyze import Options, analyze
from postmortem.documents import error_file, flight_recorder
from postmortem.formats import framing, plain_json
from postmortem.system import pool, process

CHILD = """
import resource, sys
from postmortem import blocks as parsers
from postmortem.system import pool
from postmortem.system import process
from postmortem.cli.app import run
process.MEMORY = 1 << 30
pool.DEADLINE = {deadline}
real = parsers.progress.parse
def odd(source, *rest):
    if source.path == "rank1.log":
        {what}
    return real(source, *rest)
parsers.progress.parse = odd
print(run(["analyze", sys.argv[1], "--format", "json", "--output", sys.argv[2], "--exit-code", "--jobs", "1"]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, resource.getrlimit(resource.RLIMIT_AS)[0])
"""
HANG = {"a loop": "while True: pass", "a regex": "__import__('regex').search(r'(?:a|a)*$', 'a' * 999 + 'b')"}


def command(folder: Path, what: str, deadline: float) -> tuple[list[str], dict[str, Any]]:
    for rank in range(3):
        (folder / f"rank{rank}.log").write_text(GOOD.replace("rank0", f"rank{rank}"))
    target = folder.with_suffix(".json")
    done = python("-c", CHILD.format(what=what, deadline=deadline), folder, target)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split(), json.loads(target.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("what", HANG)
def test_a_source_that_does_not_end_costs_itself(what: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (code, *_), document = command(tmp_path / "logs", HANG[what], deadline=2.0)
    assert code == "11" and losses(document) == {"rank1.log": "the worker that read it took too long"}
    assert {s["path"] for s in document["sources"]} == {"rank0.log", "rank2.log"}


def test_a_source_that_takes_all_memory_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (code, mib, limit), document = command(
        tmp_path / "logs", "held = [bytes(1 << 20) for _ in range(1 << 14)]", deadline=60.0
    )
    assert code == "11" and losses(document) == {"rank1.log": "it exceeds the memory limit of one source"}
    assert int(mib) < 1800 and int(limit) == -1, "and the limit is taken back"


def test_a_limit_leaves_the_alarms_of_the_caller_alone_and_ends_stubborn_code() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with process.bounded(0.01):
            time.sleep(0.05)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    for swallow in (OSError, Exception, BaseException):
        with pytest.raises(process.OutOfTime), process.bounded(0.05):
            try:
                while True:
                    pass
            except swallow:
                while True:
                    pass
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def test_a_lost_part_of_a_log_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rank0.log").write_text(GOOD)
    (tmp_path / "rank1.log").write_text(GOOD)
    real = reading.read

    def late(container: Any, *rest: Any) -> Any:
        if container.label == "rank1.log":
            raise process.OutOfTime
        return real(container, *rest)

    monkeypatch.setattr(reading, "read", late)
    document = analyze([str(tmp_path)], Options(workers=1)).document
    assert losses(document) == {"rank1.log": f"the worker that read it {pool.why(TimeoutError())}"}
    assert document["ledger"]["scanned"] == len(GOOD)


# ── inputs that are large when they are read ────────────────────────────────────────────────────────────────


def test_json_is_counted_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_json, "MOST_VALUES", 1000)
    flood = b'{"message": [' + b"{}," * 2000 + b"{}]}"
    source = reading.Source("error.json", "error-file", len(flood))
    (event,) = error_file.parse(source, flood)
    assert event.kind == "unreadable" and "more than 1,000 values" in event.text
    (event,) = flight_recorder.parse(source, b'{"entries": [' + b"{}," * 2000 + b"{}]}")
    assert event.kind == "unreadable" and "more than 1,000 values" in event.text
    lines = [(1, "["), (2, '{"message": "x", "a": [' + "{}," * 2000 + "{}]}"), (3, "]")]
    assert [group[0].text for group in framing.export(iter(lines))] == [text for _, text in lines]


def test_a_flood_of_values_beside_a_log(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(GOOD)
    (tmp_path / "error.json").write_bytes(b'{"message": [' + b"{}," * 21_000_000 + b"{}]}")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    document = analyze([str(tmp_path)], Options(workers=1)).document
    assert "more than 4,000,000 values" in losses(document)["error.json"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 600 << 10


def zip_of(entries: int) -> bytes:
    """A zip whose directory has one member again and again."""
    name = b"a"
    local = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + name
    row = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + name
    directory = row * entries
    end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), len(local))
    end += struct.pack("<4sIQI", b"PK\x06\x07", 0, len(local) + len(directory), 1)
    end += struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), len(local), 0)
    return local + directory + end


def test_a_zip_of_a_million_members_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(GOOD)
    (tmp_path / "a.zip").write_bytes(zip_of(1_300_000))
    start = time.process_time()
    document = analyze([str(tmp_path)]).document
    assert time.process_time() - start < 10
    assert "directory too large" in losses(document)["a.zip"]
    assert document["verdict"]["outcome"] == "undetermined"


def test_an_archive_of_many_small_logs_has_the_time_that_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte may hold the logs of a thousand ranks: as one log of its size it would have too little time."""
    monkeypatch.setattr(pool, "DEADLINE", 0.3)  # the limit of one log; this takes longer
    logs = {f"rank{i}.log": GOOD.replace("rank0", f"rank{i}").replace("2.0", f"2.{i}").encode() for i in range(200)}
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_of(logs)))
    document = analyze([str(tmp_path)], Options(workers=1)).document
    assert not losses(document) and len(document["sources"]) == 200


def test_of_packed_logs_as_many_lines_are_read_as_of_plain_ones(tmp_path: Path) -> None:
    """A thousand ranks in one archive are not a single log, of which a thousand lines are read."""
    (tmp_path / "plain").mkdir()
    logs = {f"rank{i}.log": GOOD.replace("rank0", f"rank{i}").encode() * 5 for i in range(300)}
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_of(logs)))
    for name, data in logs.items():
        (tmp_path / "plain" / name).write_bytes(data)

    def shares(where: str) -> set[int]:
        (containers,) = [collect.collect([str(tmp_path / where)]).containers]
        return {job.lines for job in reading._jobs(containers, reading.Ways())}

    assert shares("plain") == shares("a.tar.gz") == {reading.LINES // 300}
