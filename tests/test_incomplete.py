"""An incomplete reading is never called healthy, and every output lists the losses."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import PACK, tar_of

from conftest import losses
from postmortem import report
from postmortem.analyze import Incident, analyze
from postmortem.cli.app import run
from postmortem.errors import NothingReadable

OOM = (
    b"2026-11-20 21:59:59,000 node-a kernel: [ 1234.567890] Out of memory: Killed process 4711 (python3) "
    b"total-vm:1425944kB, anon-rss:717428kB, file-rss:94192kB, shmem-rss:0kB, UID:0\n"
)


def log(rank: int = 0, steps: int = 1500) -> bytes:
    """A run that ends well. It packs as logs do."""
    noise = random.Random(rank)
    lines = [
        f"2026-11-20 21:{i // 60:02d}:{i % 60:02d},548 INFO [rank{rank}] step {i} loss {noise.random():.6f}"
        for i in range(steps)
    ]
    end = f"2026-11-20 21:59:58,548 INFO [rank{rank}] training finished, exiting"
    return "\n".join([*lines, end, ""]).encode()


ARCHIVE = tar_of({f"rank{n}.log": log(n) for n in range(2)})
ENTRIES = [
    {
        "record_id": i, "process_group": ["0", "default_pg"], "collective_seq_id": i, "is_p2p": False,
        "profiling_name": "gloo:all_reduce", "input_sizes": [[10]], "input_dtypes": ["Float"],
        "output_sizes": [[10]], "output_dtypes": ["Float"], "state": "completed", "retired": True,
    }
    for i in range(1, 60)
]  # fmt: skip
DUMP = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": ENTRIES}
EXTRA = {"py_callstack": "Traceback\n", "timestamp": "17"}
ERROR = {"message": {"message": "RuntimeError: bad", "extraInfo": EXTRA}}
WHOLE: dict[str, bytes] = {
    **{f"rank1.log.{form}": pack(log(1)) for form, pack in PACK.items()},
    "logs.tar": ARCHIVE,
    "logs.tar.gz": gzip.compress(ARCHIVE),
    "nccl_trace_rank_0": json.dumps(DUMP).encode(),
    "nccl_trace_rank_1": pickle.dumps(DUMP, 2),
    "error.json": json.dumps(ERROR).encode(),
}


def analysed(folder: Path, **files: bytes) -> Incident:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return analyze([str(folder)])


def check(incident: Incident, name: str) -> None:
    """Every output shows a loss in a file."""
    verdict = incident.document["verdict"]
    assert verdict["outcome"] != "healthy"
    assert any(path.partition("!/")[0] == name for path in losses(incident.document))
    assert name in report.render_html(incident).partition('<script type="application/json"')[0]
    assert name in report.render_markdown(incident)
    assert "Not everything was read" in report.render_terminal(incident)
    assert json.loads(report.render_brief(incident))["incomplete"].startswith("Not everything was read")


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in ("rank1.log.xz", "rank1.log.bz2", "logs.tar")])
def test_half_of_a_file_beside_a_healthy_log_is_undetermined(name: str, tmp_path: Path) -> None:
    data = WHOLE[name]
    incident = analysed(tmp_path, **{"rank0.log": log(), name: data[: len(data) // 2]})
    check(incident, name)
    assert incident.document["verdict"]["outcome"] == "undetermined"
    words = ["analyze", str(tmp_path), "--output", str(tmp_path.with_suffix(".html"))]
    assert run([*words, "--exit-code"]) == 11 and run([*words, "--strict"]) == 4


def test_the_verdict_states_the_losses(tmp_path: Path) -> None:
    broken = gzip.compress(log(1)) + b"something else\n" * 300
    incident = analysed(tmp_path, **{"rank0.log": log(), "rank1.log.gz": broken})
    verdict = incident.document["verdict"]
    (row,) = incident.document["ledger"]["skipped"]
    total = len(log()) + len(broken)
    assert row["bytes"] == 4500
    assert verdict["headline"] == (
        f"Undetermined: no failure in what was read, but {row['bytes']:,} bytes of {total:,} were not read."
    )
    assert verdict["because"][0].startswith("rank1.log.gz: bytes after the end of the gz")
    assert verdict["missing"][0]["what"] == f"rank1.log.gz: {row['reason']}"


def test_files_left_out_on_purpose_are_no_loss(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    whole = {name: WHOLE[name] for name in ("rank1.log.gz", "nccl_trace_rank_0")}
    incident = analysed(tmp_path, **{"rank0.log": log(), "train.py": b"x = 1\n", "core.1": b"\x7fELF", **whole})
    assert incident.document["verdict"]["outcome"] == "healthy" and not losses(incident.document)
    assert {"link", "train.py", "core.1"} <= {r["path"] for r in incident.document["ledger"]["skipped"]}


def test_an_incident_stays_one_with_losses(tmp_path: Path) -> None:
    incident = analysed(tmp_path, **{"rank0.log": log() + OOM, "rank1.log.gz": WHOLE["rank1.log.gz"][:-900]})
    assert incident.document["verdict"]["outcome"] == "incident"
    check(incident, "rank1.log.gz")


@settings(max_examples=12)
@given(name=st.sampled_from(sorted(WHOLE)), share=st.floats(0.02, 0.98), flip=st.booleans())
def test_no_file_that_lost_a_part_is_healthy(
    name: str, share: float, flip: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Cut anywhere, or damaged anywhere: where the ledger knows of a loss, nothing is healthy; and a cut is
    known, but where it leaves a whole archive or an empty file."""
    folder = tmp_path_factory.mktemp("cut")
    at = int(len(WHOLE[name]) * share)
    data = WHOLE[name][:at]
    if flip:
        data += bytes([WHOLE[name][at] ^ 0x55]) + WHOLE[name][at + 1 :]
    try:
        incident = analysed(folder, **{"rank0.log": log(steps=20), name: data})
    except NothingReadable:
        return
    assert incident.document["verdict"]["outcome"] != "healthy" or not losses(incident.document)
    if not flip and WHOLE[name][at:].strip(b"\0"):  # an archive's padding is no loss
        check(incident, name)
