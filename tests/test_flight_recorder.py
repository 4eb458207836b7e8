"""Flight-recorder dumps: one alone, several together, and contents that must not make the parser raise."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, table
from postmortem.analyze import analyze
from postmortem.diagnose.compare import recorder
from postmortem.diagnose.compare.recorder import Reading
from postmortem.documents.flight_recorder import parse
from postmortem.model import Event, Source

# torch 2.13, gloo, 4 ranks, sub-groups: written by _dump_fr_trace(_json)
REAL = ROOT / "tests" / "data" / "flight_recorder"
WORLD = "[0, 1, 2, 3]"
Op = tuple[str, list[int], str]  # operation, size of its one tensor, state
REDUCE: Op = ("all_reduce", [1024], "completed")
WAITING: Op = ("all_reduce", [1024], "scheduled")
STARTED: Op = ("all_reduce", [1024], "started")


def read(path: Path | str, content: bytes | None = None, rank: int | None = None) -> Event:
    source = Source(str(path), "flight-recorder", 0, rank=rank, host="node-a")
    event, *marks = parse(source, Path(path).read_bytes() if content is None else content)
    assert all(e.kind == "sync" for e in marks)
    return event


def entry(number: int, op: Op, group: tuple[str, str] = ("0", "default_pg"), **other: Any) -> dict[str, Any]:
    """One record as torch 2.13 writes it for NCCL (FlightRecorderDetail.hpp)."""
    name, size, state = op
    created = 1_795_000_000_000_000_000 + number * 1_000_000
    torch = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    places = (
        (name, torch, 3245),
        ("step", "/opt/train/train.py", 40 + len(name)),
        ("<module>", "/opt/train/train.py", 90),
    )
    frames = [{"name": func, "filename": file, "line": line} for func, file, line in places]
    return {
        "frames": frames, "record_id": number - 1, "pg_id": int(group[0]), "process_group": group,
        "thread_name": "pt", "thread_id": "1", "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number,
        "profiling_name": f"nccl:{name}", "time_created_ns": created, "input_sizes": [size],
        "input_dtypes": ["BFloat16"], "output_sizes": [size], "output_dtypes": ["BFloat16"], "state": state,
        "time_discovered_started_ns": created if state != "scheduled" else None,
        "time_discovered_completed_ns": created if state == "completed" else None,
        "retired": state == "completed", "timeout_ms": 600000, "is_p2p": False, **other,
    }  # fmt: skip


def dump(ops: list[Op], first: int = 1, ranks: str = WORLD, more: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The dump of one rank that enqueued `ops` in the default group, and `more` entries in others."""
    entries = [entry(first + i, op) for i, op in enumerate(ops)] + (more or [])
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    for e in more or []:
        name, desc = e["process_group"]
        config[name] = {"name": name, "desc": desc, "ranks": e.pop("ranks", "")}
    status = {"last_enqueued_collective": 9999, "last_started_collective": -1, "last_completed_collective": 9999}
    return {"version": "2.10", "pg_config": config, "pg_status": {"0": status}, "entries": entries}


def together(*dumps: dict[str, Any] | None) -> Reading | None:
    """Read the dumps of ranks 0, 1, … together. None is a rank without a dump."""
    events = {r: read(f"fr_rank{r}", pickle.dumps(d, 2), rank=r) for r, d in enumerate(dumps) if d is not None}
    return recorder.read(events)


# ── one dump ────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_forms_of_a_real_dump_are_equal() -> None:
    for rank in (0, 1):
        as_json = read(REAL / "other-size" / f"fr_rank{rank}.json", rank=rank)
        as_pickle = read(REAL / "other-size" / f"fr_rank{rank}.pkl", rank=rank)
        assert as_json.text == as_pickle.text
        for name in ("entries", "pending", "status", "groups", "version"):
            assert as_json.fields[name] == as_pickle.fields[name]
        assert as_json.fields["code"] is None  # JSON dumps have no frames
        assert as_pickle.fields["code"] == "train.py:28"


def test_a_rank_that_waits_in_gloo() -> None:
    e = read(REAL / "other-size" / "fr_rank0.json", rank=0)
    assert (e.kind, e.rank, e.host, e.where.line) == ("recorder", 0, "node-a", None)
    assert e.text == "rank 0: last enqueued collective 7 of default_pg (gloo:all_reduce [4] Float), 6 completed"
    assert e.fields["pending"] == (("default_pg", 7, "gloo:all_reduce", "[4] Float"),)
    assert (e.fields["version"], e.clock) == ("2.10", "absolute")
    assert e.time == pytest.approx(1795268033.177, abs=0.01)
    assert ("1 tp", 1, "gloo:all_reduce", "[4] Float") in e.fields["entries"]  # type: ignore[operator]


def test_numbers_come_from_entries_because_pg_status_counts_sends_too() -> None:
    e = read("fr", pickle.dumps(dump([REDUCE, WAITING]), 2), rank=1)
    assert e.fields["status"] == {"default_pg": {"enqueued": 2, "started": 1, "completed": 1}}
    without = read("fr", json.dumps(dump([])).encode(), rank=1)
    assert without.fields["status"] == {"default_pg": {"enqueued": 9999, "started": None, "completed": 9999}}
    assert without.text == "rank 1: last enqueued collective 9999 of default_pg; no entries"


def test_sends_and_receives_have_no_common_number() -> None:
    more = [entry(9, ("send 0->1", [4], "scheduled"), is_p2p=True, ranks=WORLD)]
    more.append(entry(9, ("recv 0<-1", [4], "scheduled"), ranks=WORLD))
    e = read("fr", pickle.dumps(dump([REDUCE], more=more), 2))
    assert e.fields["entries"] == (("default_pg", 1, "nccl:all_reduce", "[1024] BFloat16"),)
    assert e.fields["pending"] == ()


def test_groups_of_one_name_are_distinguished_by_their_ranks() -> None:
    """split_group gives all parts the same name."""
    keys = set()
    for ranks in ("[0, 1]", "[2, 3]"):
        e = read("fr", pickle.dumps(dump([REDUCE], more=[entry(1, REDUCE, ("5", "tp"), ranks=ranks)]), 2))
        (key,) = set(e.fields["groups"]) - {"default_pg"}  # type: ignore[call-overload]
        keys.add(key)
    assert keys == {"5 tp [0, 1]", "5 tp [2, 3]"}


def test_the_detail_has_the_values_on_which_ranks_have_to_agree() -> None:
    for name, detail in table("flight_recorder")["details"]:
        d = dump([(name, [8, 2], "scheduled")])
        d["entries"][0]["output_sizes"] = [[3]]
        (shown,) = read("fr", pickle.dumps(d, 2)).fields["pending"]  # type: ignore[misc, attr-defined]
        assert shown == ("default_pg", 1, f"nccl:{name}", detail)


def test_the_rank_at_the_end_of_the_name_counts_if_there_is_such_a_rank() -> None:
    """torch appends the bare number to TORCH_FR_DUMP_TEMP_FILE."""
    content = pickle.dumps(dump([REDUCE]), 2)
    assert read("dumps/fr_trace_3", content).rank == 3
    assert read("dumps/fr_trace_2026.json", content).rank is None
    assert read("dumps/fr_trace_3", content, rank=1).rank == 1


def test_a_large_dump_is_cut_to_its_last_entries() -> None:
    e = read("fr", pickle.dumps(dump([REDUCE] * 3000 + [WAITING]), 2), rank=0)
    entries = e.fields["entries"]
    assert isinstance(entries, tuple) and len(entries) == 2000 and entries[-1][1] == 3001
    assert e.fields["whole"] is False and e.fields["code"] == "train.py:50"


# ── dumps together ──────────────────────────────────────────────────────────────────────────────────────────

BEHIND, DIFFER = "recorder-rank-behind", "recorder-collectives-differ"
WAITS, ENDED = dump([REDUCE, WAITING]), dump([REDUCE])
TOGETHER = table("flight_recorder")["together"]


def operation(word: str) -> Op:
    if found := {"R": REDUCE, "W": WAITING, "S": STARTED}.get(word):
        return found
    name, size, state = word.split(":")
    return name, [int(size)], state


def spelled(text: str | None) -> dict[str, Any] | None:
    """The dump of a row of the table."""
    if text is None:
        return None
    own, _, pair = text.partition(" / ")
    own, _, world = own.partition(" @ ")
    first, _, own = own.rpartition("+ ")
    ranks, _, more = pair.partition(": ")
    of_pair = [entry(n, op, ("7", "pair"), ranks=ranks) for n, op in enumerate(map(operation, more.split()), 1)]
    return dump([*map(operation, own.split())], int(first or 1), world or WORLD, of_pair)


@pytest.mark.parametrize("name", TOGETHER)
def test_the_odd_rank_of_several_dumps(name: str) -> None:
    dumps, pattern, odd = TOGETHER[name]
    found = together(*map(spelled, dumps))
    assert (found and (found.pattern.removeprefix("recorder-"), found.odd)) == (pattern and (pattern, tuple(odd)))
    assert found is None or found.sure == (name != "a rank without a dump")


def test_a_rank_with_another_type_is_odd() -> None:
    other = dump([REDUCE, WAITING])
    other["entries"][1]["input_dtypes"] = ["Float"]
    found = together(*copy.deepcopy([WAITS, WAITS]), other)
    assert found is not None and (found.pattern, found.odd, found.sure) == (DIFFER, (2,), True)


def test_the_collective_of_a_hang_has_the_ranks_that_entered_it() -> None:
    broadcast = dump([REDUCE, ("broadcast", [1024], "scheduled")])
    for dumps, entered, missing in (
        ([WAITS, WAITS, ENDED, WAITS], (0, 1, 3), (2,)),
        ([WAITS, WAITS, broadcast, WAITS], (0, 1, 3), ()),
        ([WAITS] * 4, (0, 1, 2, 3), ()),
    ):
        events = {r: read(f"fr_rank{r}", pickle.dumps(d, 2), rank=r) for r, d in enumerate(dumps)}
        found = recorder.stuck_in(events)
        operation = ("default_pg", 2, "nccl:all_reduce", "[1024] BFloat16", (0, 1, 2, 3))
        assert found == (*operation, entered, missing)
        assert [recorder.completed(e, "default_pg") for e in events.values()] == [1] * 4
        assert recorder.completed(events[0], "other") is None
    assert recorder.stuck_in({0: read("fr", pickle.dumps(ENDED, 2), rank=0)}) is None


def test_the_reason_names_the_collectives() -> None:
    found = together(dump([REDUCE, REDUCE, WAITING]), dump([REDUCE, REDUCE, WAITING]), dump([REDUCE, REDUCE]))
    assert found is not None and found.because == (
        "rank 2 last enqueued collective 2, ranks 0 and 1 collective 3 of group default_pg "
        "(nccl:all_reduce [1024] BFloat16)"
    )
    found = together(dump([REDUCE, STARTED]), WAITS, dump([REDUCE, STARTED]))
    assert found is not None and "started on all ranks except rank 1" in found.because


def test_no_gpu_is_accused_where_one_has_completed_it_or_started_nothing() -> None:
    def accused(pending: dict[int, set[int]], started: dict[int, int]) -> tuple[int, ...]:
        group = recorder._Group("0", last=dict.fromkeys(range(3), 2), pending=pending, started=started)
        found = recorder._not_started(group)
        return () if found is None else found.odd

    waits = {rank: {2} for rank in range(3)}
    assert accused(waits, {0: 2, 1: 1, 2: 2}) == (1,)
    assert accused(waits | {2: set()}, {0: 2, 1: 1, 2: 2}) == ()
    for started in ({0: 2, 1: 1}, {0: 2, 1: 1, 2: 1}, {0: 2, 1: 2, 2: 2}):
        assert accused(waits, started) == ()


def test_real_dumps_alone_name_the_rank() -> None:
    """Written after the exception, so gloo has retired the failed collective; rank 2 of the second folder has none."""
    for folder, pattern, rank in (("other-size", DIFFER, 1), ("rank-3-left", BEHIND, 3)):
        verdict = analyze([str(REAL / folder)]).document["verdict"]
        assert (verdict["pattern"], verdict["culprit"]["ranks"]) == (pattern, [rank])


# ── any content ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reason_and_place_where_a_dump_cannot_be_read() -> None:
    for content, reason in (
        (b'{"entries": [', "its JSON is broken: Expecting value (at byte 13)"),
        (b'{"entries": "\xff"}', "its JSON is not UTF-8 (at byte 13)"),
        (b'{"a": ' + b"[" * 200_000, "its JSON is nested too deep"),
        (b'{"entries": ' + b"9" * 5000 + b"}", "its JSON has a number that is too long"),
        (b"[1, 2]", "it has none of the recorder's fields"),
        (b"", "its JSON is broken"),
        (pickle.dumps(dump([REDUCE]), 2)[:-9], "(at byte "),
        (b"\x80\x02cos\nsystem\n.", "GLOBAL builds more than plain data (at byte 2)"),
    ):
        e = read("fr_rank1.json", content, rank=1)
        assert (e.kind, e.rank) == ("unreadable", 1)
        assert e.text.startswith("The flight-recorder dump cannot be read: ") and e.text.endswith(").")
        assert reason in e.text


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.just("0")
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)
KEYS = st.sampled_from(["0", "", "ranks", "desc", "filename", "line"])
ODD = st.recursive(
    SCALARS | TEXTS,
    lambda v: st.lists(v, max_size=3) | st.tuples(v, v) | st.dictionaries(KEYS, v, max_size=3),
    max_leaves=6,
)
ENTRIES = st.lists(
    st.fixed_dictionaries({}, optional={name: ODD | st.just(value) for name, value in entry(3, WAITING).items()}) | ODD,
    max_size=4,
)
DUMPS = st.fixed_dictionaries(
    {"entries": ENTRIES | ODD},
    optional={name: ODD | st.just(value) for name, value in dump([REDUCE]).items() if name != "entries"},
)


@settings(max_examples=120)
@given(DUMPS, st.booleans())
def test_fields_of_other_types_than_torch_writes(document: dict[str, Any], as_json: bool) -> None:
    content = json.dumps(document).encode() if as_json else pickle.dumps(document, 2)
    e = read("fr_rank0.json", content, rank=0)
    assert e.kind in ("recorder", "unreadable")
    assert e.text.isprintable()
    assert e.time is None or math.isfinite(e.time)
    good = read("fr_rank1", pickle.dumps(dump([REDUCE, WAITING]), 2), rank=1)
    recorder.read({0: e, 1: good, 2: e})


def test_collectives_that_ended_compare_clocks() -> None:
    """The ranks of a group end a collective together."""
    rows = [entry(n, REDUCE if n < 5 else STARTED) | {"time_created_ns": (100 + n) * 10**9} for n in range(1, 6)]
    for row in rows[:4]:
        row["time_discovered_completed_ns"] = row["time_created_ns"] + 10**8
    source = Source("fr_rank0.json", "flight-recorder", 1, rank=0)
    _, marks = parse(source, json.dumps({"version": "2.10", "entries": rows}).encode())
    assert marks.kind == "sync" and marks.clock == "absolute" and marks.rank == 0
    assert marks.fields["family"] == "recorder ended default_pg"
    assert list(marks.fields["values"])[1::2] == [1, 2, 3, 4]
    assert list(marks.fields["times"]) == pytest.approx([101.1, 102.1, 103.1, 104.1])
