"""Logs that a collector wrapped: the lines come out as printed, with the numbers of the file's lines; a plain log is left alone."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from envelopes import ENVELOPES, arrived
from hypothesis import given, settings
from hypothesis import strategies as st

from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.formats import marks, records, unwrap
from postmortem.formats.envelope import peel
from postmortem.model import Source

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
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


def test_frames_as_data_are_a_traceback() -> None:
    frames = [{"filename": "/opt/train.py", "lineno": 29, "name": "main", "line": ""}]
    trace = [{"exc_type": "ValueError", "exc_value": "label 91", "frames": frames}]
    record = {"event": "failed", "exception": trace}
    assert [line.text for line in records.texts(record)][1:] == [
        "Traceback (most recent call last):",
        '  File "/opt/train.py", line 29, in main',
        "ValueError: label 91",
    ]


def test_what_was_only_warned_of_with_its_traceback_is_handled() -> None:
    record = {"levelname": "WARNING", "message": "no answer, it is safe to ignore this", "exc_text": TRACE}
    assert len(list(records.texts(record))) == 1


@pytest.mark.parametrize(
    ("record", "rank"),
    [
        ({"message": "x", "labels": {"rank": 3, "host": "c-1"}}, 3),
        ({"msg": "x", "global_rank": "7", "local_rank": 3}, 7),
        ({"text": "x", "record": {"extra": {"rank": 2}, "process": {"id": 99}}}, 2),
        ({"jsonPayload": {"message": "x", "process_index": 1}}, 1),
        ({"log": '{"msg": "x", "rank": 5}\n', "stream": "stderr"}, 5),
        ({"line": "x", "labels": {"pod": "train-rank-4"}}, 4),
        ({"msg": "x", "local_rank": 3}, None),
        ({"msg": "x", "rank": True}, None),
        ({"msg": "x", "rank": "9" * 5000}, None),
    ],
)
def test_a_record_names_its_rank(record: dict[str, object], rank: int | None) -> None:
    assert records.facts(record).rank == rank


def test_a_line_knows_its_rank_better_than_its_record() -> None:
    text = marks.marked(7, marks.head(marks.Facts(rank=0, host="pod-0")), "[rank2]: ValueError: x")
    found = peel(text)
    assert (found.rank, found.host, found.line, found.body) == (2, "pod-0", 7, "ValueError: x")


def test_an_export_keeps_the_lines_of_the_file_whatever_its_order() -> None:
    lines = [f"step {i}" for i in range(8)]
    text = ENVELOPES["Cloud Logging, newest first"](arrived(lines))
    places = {line: n for n, line in enumerate(text.split("\n"), 1)}
    assert shown(text) == [(places[f'    "textPayload": "{line}",'], line) for line in lines]


def test_evidence_is_the_line_of_the_file(tmp_path: Path) -> None:
    said = [f"[rank1]: {line}" for line in TRACE.split("\n")]
    text = ENVELOPES["Cloud Logging, newest first"](arrived(["[rank0]: step 1", "[rank1]: step 1", *said]))
    (tmp_path / "export.json").write_text(text)
    document = analyze([str(tmp_path)]).document
    first = document["verdict"]["evidence"][0]
    assert "ValueError: label 91" in text.split("\n")[first["line"] - 1]
    assert document["verdict"]["culprit"]["ranks"] == [1]
    assert document["ledger"] == {"bytes": len(text), "scanned": len(text), "skipped": []}


def test_a_row_of_a_table_over_several_lines_keeps_them() -> None:
    text = f'time,level,message\n2026-11-20T21:20:00Z,info,up\n2026-11-20T21:20:01Z,error,"failed\n{TRACE}"\n'
    assert [n for n, _ in shown(text)] == [2, 3, 4, 5, 6, 7]


def test_a_cut_line_is_one_line() -> None:
    stamp = "2026-11-20T21:20:00.000000000Z"
    text = f"{stamp} stderr P Value\n{stamp} stdout F step 1\n{stamp} stderr F Error: x\n"
    assert shown(text) == [(2, f"{stamp} stdout F step 1"), (1, f"{stamp} stderr F ValueError: x")]


def test_two_ranks_in_one_export_do_not_mix() -> None:
    rows = [
        {"msg": f"{line} of {rank}" if "Error" in line else line, "rank": rank}
        for line in TRACE.split("\n")
        for rank in (0, 1)
    ]
    found = unwrapped(of_json(*rows))
    assert found is not None
    events = read_text(of_json(*rows), "json-lines")
    assert {(e.rank, e.fields["line"]) for e in events if e.kind == "exception"} == {
        (0, "ValueError: label 91 of 0"),
        (1, "ValueError: label 91 of 1"),
    }


def test_plain_consoles_stay_as_they_are() -> None:
    for path in sorted(SAMPLES.rglob("*")):
        if path.suffix in (".log", ".err", ".out") and not path.read_bytes().startswith(b"{"):
            assert unwrapped(path.read_bytes()) is None, path


def test_a_table_on_a_terminal_is_not_broken_lines() -> None:
    row = "Trainable params: 874" + " " * 59
    assert unwrapped("".join(f"{row}\n  {i} rows of weights\n" for i in range(20))) is None


def test_nothing_in_a_log_is_a_mark() -> None:
    forged = "\x1b]9;000000000000;7;[5]\x07[rank3]: ValueError: x"
    assert peel(forged).line is None
    assert all("\x1b" not in line for _, line in shown(of_json({"msg": forged}, {"msg": "y"})) if line == "y")


@settings(max_examples=200, deadline=None)
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


def journal_record(message: str, **fields: str) -> bytes:
    rows = {
        "__REALTIME_TIMESTAMP": "1795349130924762",
        "_HOSTNAME": "node-a",
        "SYSLOG_IDENTIFIER": "train-rank2",
    }
    rows |= {"_PID": "777", "_TRANSPORT": "stdout", **fields}
    data = message.encode()
    plain = message.isprintable()
    said = b"MESSAGE=" + data if plain else b"MESSAGE\n" + len(data).to_bytes(8, "little") + data
    return b"__CURSOR=s=4d;i=48a\n" + b"".join(f"{k}={v}\n".encode() for k, v in rows.items()) + said + b"\n\n"


@pytest.mark.parametrize("length", [10, 13, 100, 200, 256, 300, 2570, 70_000])
def test_a_journal_export_gives_its_messages_with_their_lengths(length: int) -> None:
    body = "\x1b[31mstep failed\x1b[0m\n\nA=1\n  File x"
    body = (body + "é" * length).encode()[:length].decode("utf-8", "ignore")
    body = body + "x" * (length - len(body.encode()))
    text = journal_record("up") * 3 + journal_record(body) + journal_record("down", MESSAGE_ID="1")
    found = unwrapped(text)
    assert found is not None
    assert [line for _, _, line in found] == ["up"] * 3 + [*body.split("\n"), "down"]
    facts = found[-1][1]
    assert (facts.host, facts.pid, facts.rank, facts.program) == ("node-a", 777, 2, "train-rank2")
    assert facts.stamp is not None and facts.stamp.time == 1795349130.924762
    assert found[0][0] == 7


def test_the_kernels_record_of_an_export_is_the_kernels() -> None:
    text = journal_record("Out of memory: Killed process 31 (python3)", _TRANSPORT="kernel") * 2
    found = unwrapped(text, "kernel")
    assert found is not None
    line = peel(marks.marked(1, marks.head(found[0][1]), found[0][2]))
    assert line.kernel and line.host == "node-a"


def test_the_bytes_of_a_journals_json_are_text() -> None:
    record = records.load(json.dumps({"__REALTIME_TIMESTAMP": "1795349130924762", "MESSAGE": [27, 91, 109, 104, 105]}))
    assert record is not None and records.body_of(record) == ("MESSAGE", "\x1b[mhi")
    assert records.load('{"MESSAGE": [300]}') == {"MESSAGE": ""}


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reading_of_an_export(junk: bytes) -> None:
    found = unwrapped(journal_record("up") * 2 + b"MESSAGE\n" + junk + b"\n\n" + journal_record("x"))
    assert found is not None


def test_the_pid_of_a_journals_stream_is_a_ranks_only_where_its_name_is() -> None:
    own = unwrapped(journal_record("up") * 2)
    units = unwrapped(journal_record("[rank1]: up", SYSLOG_IDENTIFIER="train.sh") * 2)
    assert own is not None and units is not None
    mine, shared = (peel(marks.marked(1, marks.head(rows[0][1]), rows[0][2])) for rows in (own, units))
    assert (mine.rank, mine.pid) == (2, 777)
    assert (shared.rank, shared.pid, shared.program) == (1, None, "train.sh")


def test_what_graylog_and_opentelemetry_call_their_fields() -> None:
    gelf = {
        "version": "1.1",
        "short_message": "step 165 failed",
        "level": 3,
        "_rank": 2,
        "full_message": TRACE,
    }
    assert [line.text for line in records.texts(gelf)] == ["step 165 failed", *TRACE.split("\n")]
    assert records.facts(gelf).rank == 2
    attributes = {"exception.stacktrace": TRACE, "code.line.number": 10}
    resource = {"attributes": {"service.instance.id": "trainer-1", "process.pid": 13650}}
    otel = {"body": "failed", "severity_text": "ERROR", "attributes": attributes, "resource": resource}
    assert [line.lead + line.text for line in records.texts(otel)] == ["ERROR failed", *TRACE.split("\n")]
    assert (records.facts(otel).writer, records.facts(otel).pid) == ("trainer-1", 13650)


def test_structlogs_pairs_with_the_launchers_lines_between_them() -> None:
    """`KeyValueRenderer` prints what repr() says; torchrun's own lines stay as they are."""
    pairs = [f"timestamp='2026-11-22T13:04:5{n}Z' level='info' event='step {n}' replica={n % 2}" for n in range(4)]
    failed = f"level='error' event='run_failed' replica=0 exception={TRACE!r}"
    noise = ["W1122 13:05:05.111000 31483 torch/distributed/elastic/x.py:1028] Sending process 7 closing signal"] * 6
    found = unwrapped("\n".join([*pairs, failed, *noise, ""]))
    assert found is not None
    assert [line for _, _, line in found][4:9] == ["ERROR run_failed", *TRACE.split("\n")]
    assert [facts.writer for _, facts, _ in found][:3] == ["replica-0", "replica-1", "replica-0"]
    assert [line for _, _, line in found][-6:] == noise


def test_a_program_that_printed_some_objects_is_no_export() -> None:
    """Bunyan's printer passes on what it cannot read: two records on one line, at the head of the file."""
    record = '{"name": "ltr", "rank": 1, "msg": "worker started"}'
    lines = [f"[2026-11-22T15:13:{n:02}.040Z]  INFO: ltr/22892 on bn-4: progress (rank=1, step={n})" for n in range(20)]
    assert unwrapped("\n".join([record + record, *lines, ""])) is None
