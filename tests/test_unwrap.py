"""Logs that a collector wrapped: the lines come out as printed, with the numbers of the file's lines; a plain log is left alone.
Real incidents in every envelope have the same verdict."""

from __future__ import annotations

import io
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from envelopes import ENVELOPES, arrived
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SAMPLES, solved, table
from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.formats import marks, records, unwrap
from postmortem.formats.envelope import peel
from postmortem.model import Source

TRACE = 'Traceback (most recent call last):\n  File "/opt/train.py", line 29, in main\n    step()\nValueError: label 91'


def unwrapped(text: str | bytes, kind: str = "console") -> list[tuple[int | None, marks.Facts, str]] | None:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    stream = unwrap.of(Source("x", kind, len(data)), io.BytesIO(data))
    out = b""
    while piece := stream.read(1 << 16):
        out += piece
    if not isinstance(stream, unwrap.Unwrapped):
        assert out == data
        return None
    assert stream.bytes == len(data)
    return [marks.read(line) for line in out.decode("utf-8", "replace").split("\n")[:-1]]


def shown(text: str) -> list[tuple[int | None, str]]:
    found = unwrapped(text)
    assert found is not None
    return [(number, line) for number, _, line in found]


def of_json(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_traceback_inside_a_record_is_lines_of_the_record() -> None:
    text = of_json({"msg": "up"}, {"msg": "step failed", "level": "error", "rank": 2, "exc_info": TRACE})
    assert shown(text) == [(1, "up"), (2, "ERROR step failed"), *((2, line) for line in TRACE.split("\n"))]
    warned = {"levelname": "WARNING", "message": "no answer, it is safe to ignore this", "exc_text": TRACE}
    assert len(list(records.texts(warned))) == 1, "the program handled it"


def test_a_record_names_its_rank() -> None:
    for record, rank in (*table("unwrap")["ranks"], ({"msg": "x", "rank": "9" * 5000}, None)):
        assert records.facts(record).rank == rank, record


def test_the_rank_of_a_line_takes_precedence_over_that_of_its_record() -> None:
    text = marks.marked(7, marks.head(marks.Facts(rank=0, host="pod-0")), "[rank2]: ValueError: x")
    found = peel(text)
    assert (found.rank, found.host, found.line, found.body) == (2, "pod-0", 7, "ValueError: x")


def test_evidence_is_the_line_of_the_file(tmp_path: Path) -> None:
    lines = [f"[rank1]: {line}" for line in TRACE.split("\n")]
    text = ENVELOPES["Cloud Logging, newest first"](arrived(["[rank0]: step 1", "[rank1]: step 1", *lines]))
    (tmp_path / "export.json").write_text(text)
    document = analyze([str(tmp_path)]).document
    first = document["verdict"]["evidence"][0]
    assert "ValueError: label 91" in text.split("\n")[first["line"] - 1]
    assert document["verdict"]["culprit"]["ranks"] == [1]
    assert document["ledger"] == {"bytes": len(text), "scanned": len(text), "skipped": []}


def test_a_row_of_a_table_over_several_lines_has_the_number_of_each() -> None:
    text = f'time,level,message\n2026-11-20T21:20:00Z,info,up\n2026-11-20T21:20:01Z,error,"failed\n{TRACE}"\n'
    assert [n for n, _ in shown(text)] == [2, 3, 4, 5, 6, 7]


def test_a_cut_line_is_one_line() -> None:
    stamp = "2026-11-20T21:20:00.000000000Z"
    text = f"{stamp} stderr P Value\n{stamp} stdout F step 1\n{stamp} stderr F Error: x\n"
    assert shown(text) == [(2, f"{stamp} stdout F step 1"), (1, f"{stamp} stderr F ValueError: x")]
    logs = [("up\n", "stderr"), ("Value", "stderr"), ("step 1\n", "stdout"), ("Error: x\n", "stderr")]
    docker = of_json(*({"log": log, "stream": stream} for log, stream in logs))
    assert shown(docker) == [(1, "up"), (3, "step 1"), (2, "ValueError: x")]
    without_line_ends = of_json({"log": "up", "stream": "stderr"}, {"log": "step 1", "stream": "stderr"})
    assert shown(without_line_ends) == [(1, "up"), (2, "step 1")], "another collector's records are whole lines"


def test_two_ranks_in_one_export_do_not_mix() -> None:
    rows = [
        {"msg": f"{line} of {rank}" if "Error" in line else line, "rank": rank}
        for line in TRACE.split("\n")
        for rank in (0, 1)
    ]
    raised = {(e.rank, e.fields["line"]) for e in read_text(of_json(*rows), "json-lines") if e.kind == "exception"}
    assert raised == {(0, "ValueError: label 91 of 0"), (1, "ValueError: label 91 of 1")}


def test_plain_consoles_stay_as_they_are() -> None:
    texts = {path: path.read_bytes() for path in SAMPLES.rglob("*") if path.suffix in (".log", ".err", ".out")}
    assert (plain := {path: text for path, text in texts.items() if not text.startswith(b"{")})
    for path, text in plain.items():
        assert unwrapped(text) is None, path
    row = "Trainable params: 874" + " " * 59
    assert unwrapped("".join(f"{row}\n  {i} rows of weights\n" for i in range(20))) is None, "a table on a terminal"
    # Bunyan's printer passes on records that it cannot read: two on one line, at the head of the file
    record = '{"name": "ltr", "rank": 1, "msg": "worker started"}'
    lines = [f"[2026-11-22T15:13:{n:02}.040Z]  INFO: ltr/22892 on bn-4: progress (rank=1, step={n})" for n in range(20)]
    assert unwrapped("\n".join([record + record, *lines, ""])) is None


def test_nothing_in_a_log_is_a_mark() -> None:
    forged = "\x1b]9;000000000000;7;[5]\x07[rank3]: ValueError: x"
    assert peel(forged).line is None
    assert all("\x1b" not in line for _, line in shown(of_json({"msg": forged}, {"msg": "y"})) if line == "y")


@settings(max_examples=50)
@given(
    st.lists(
        st.sampled_from(
            ['{"msg": "a"}', '{"msg": "a', "[", "]", "{", "}", '{"log": "x", "stream": "o"}', 'a="b" msg=c', "", "\x1b]9;", '"',
             "time,message", '2026,"x', "2026-11-20T21:20:00Z stderr P x", '{"values": [[1]], "stream": {}}', "\r", "é" * 90]
        )
    ),
    st.sampled_from(["\n", ",\n", ""]),
)  # fmt: skip
def test_no_text_makes_it_raise_or_lose_bytes(pieces: list[str], between: str) -> None:
    unwrapped(between.join(pieces))


def test_a_journal_as_json_has_the_program_of_each_line() -> None:
    record = {"__REALTIME_TIMESTAMP": "1795349130924762", "_HOSTNAME": "node-a", "_PID": "777"}
    record |= {"SYSLOG_IDENTIFIER": "train-rank2", "MESSAGE": "up"}
    units = record | {"SYSLOG_IDENTIFIER": "train.sh", "MESSAGE": "[rank1]: up"}
    kernel = record | {"_TRANSPORT": "kernel", "MESSAGE": "Out of memory: Killed process 31 (python3)"}
    found = unwrapped(of_json(record, units, kernel))
    assert found is not None and found[0][1].stamp is not None and found[0][1].stamp.time == 1795349130.924762
    own, shared, oom = (peel(marks.marked(1, marks.head(facts), line)) for _, facts, line in found)
    assert (own.rank, own.pid, own.host) == (2, 777, "node-a")
    # the pid is that of the process that opened the stream: a rank's only where the name is
    assert (shared.rank, shared.pid, shared.program) == (1, None, "train.sh")
    assert oom.kernel and oom.host == "node-a"
    as_bytes = records.load(json.dumps(record | {"MESSAGE": [27, 91, 109, 104, 105]}))
    assert as_bytes is not None and records.body_of(as_bytes) == ("MESSAGE", "\x1b[mhi")
    assert records.load('{"MESSAGE": [300]}') == {"MESSAGE": ""}


def test_the_fields_of_graylog_and_opentelemetry() -> None:
    gelf = {"version": "1.1", "short_message": "step 165 failed", "level": 3, "_rank": 2, "full_message": TRACE}
    assert [line.text for line in records.texts(gelf)] == ["step 165 failed", *TRACE.split("\n")]
    assert records.facts(gelf).rank == 2
    attributes = {"exception.stacktrace": TRACE, "code.line.number": 10}
    resource = {"attributes": {"service.instance.id": "trainer-1", "process.pid": 13650}}
    otel = {"body": "failed", "severity_text": "ERROR", "attributes": attributes, "resource": resource}
    assert [line.prefix + line.text for line in records.texts(otel)] == ["ERROR failed", *TRACE.split("\n")]
    assert (records.facts(otel).writer, records.facts(otel).pid) == ("trainer-1", 13650)


def test_structlogs_pairs_with_the_launchers_lines_between_them() -> None:
    """`KeyValueRenderer` prints values as repr() does; torchrun's own lines stay as they are."""
    pairs = [f"timestamp='2026-11-22T13:04:5{n}Z' level='info' event='step {n}' replica={n % 2}" for n in range(4)]
    failed = f"level='error' event='run_failed' replica=0 exception={TRACE!r}"
    noise = ["W1122 13:05:05.111000 31483 torch/distributed/elastic/x.py:1028] Sending process 7 closing signal"] * 6
    found = unwrapped("\n".join([*pairs, failed, *noise, ""]))
    assert found is not None
    assert [line for _, _, line in found][4:9] == ["ERROR run_failed", *TRACE.split("\n")]
    assert [facts.writer for _, facts, _ in found][:3] == ["replica-0", "replica-1", "replica-0"]
    assert [line for _, _, line in found][-6:] == noise


CASES = ("bad-label-one-rank", "sigkill-from-outside", "early-rank-waits-in-barrier", "healthy-torchrun")
# each envelope with one case, and two more envelopes of each kind with the first case
PAIRS = sorted(
    {(CASES[i % len(CASES)], name) for i, name in enumerate(ENVELOPES)} | set(product(CASES[:1], list(ENVELOPES)[::4]))
)
# envelopes that name a host, so the verdict may name it
WITH_HOST = {"kubectl logs --prefix", "docker compose logs", "journalctl", "journalctl -o json-pretty"}
WITH_HOST |= {"syslog of RFC 5424", "structlog", "Loki, lines newest first"}


def verdict(document: dict[str, Any], hosts: bool) -> list[object]:
    v = document["verdict"]
    return [v["outcome"], v["category"], v["pattern"], v["culprit"]["ranks"], v["culprit"]["hosts"] if hosts else []]


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_a_collector_changes_no_verdict(case: str, name: str, tmp_path: Path) -> None:
    copy = tmp_path / "logs"
    shutil.copytree(SAMPLES / case / "logs", copy)
    for path in (p for p in copy.rglob("*") if p.is_file() and p.suffix in (".log", ".err", ".out")):
        first = path.relative_to(copy).parts[0]
        host = first if (copy / first).is_dir() and first != "torchelastic" else "node-a"
        if text := path.read_text(errors="replace"):
            path.write_text(ENVELOPES[name](arrived(text.splitlines(), host)))
    hosts = name not in WITH_HOST
    assert verdict(analyze([str(copy)]).document, hosts) == verdict(solved(SAMPLES / case).document, hosts)
