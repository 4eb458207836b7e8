"""Reports of schedulers, clusters, GPUs and NCCL: their readers on any content, and on formats beside those of
data/excerpts/reports.yaml, which has the verdicts."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, read_yaml, table
from postmortem import documents
from postmortem.analyze import analyze
from postmortem.documents import inspector, kubernetes, outline, ras, schedulers
from postmortem.input import sniff
from postmortem.model import Event, Source

CASES = read_yaml(ROOT / "tests" / "data" / "excerpts" / "reports.yaml")
TEXTS = [text for case in CASES.values() for text in case["files"].values()]
SMI = next(text for text in TEXTS if "DRAM Uncorrectable            : 2" in text)


def facts(kind: str, text: str) -> list[str]:
    source = Source("report.txt", kind, len(text))
    events = documents.READERS[kind](source, text.encode())
    return [e.fields["signature"] for e in events if e.kind == "fact"]


# ── nested documents ────────────────────────────────────────────────────────────────────────────────────────

VALUES = st.recursive(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=9) | st.integers(0, 9999),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz.", min_size=1, max_size=4), inner),
    max_leaves=12,
)


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for n, inner in enumerate(value) for leaf in leaves(inner, (*path, n))]
    return [(path, str(value))]


@given(VALUES, st.sampled_from([None, 2, 4]))
def test_json_and_yaml_are_read_alike(value: object, indent: int | None) -> None:
    for text in (json.dumps({"a": value}, indent=indent), yaml.safe_dump({"a": value}, width=1000, sort_keys=False)):
        found, broken = outline.read(Source("x", "slurm", 0), text.encode())
        assert not broken and [(leaf.path, leaf.value) for leaf in found] == leaves({"a": value})


def test_a_document_that_is_cut_gives_what_precedes_the_cut() -> None:
    text = json.dumps({"items": [{"a": 1}, {"a": 2}]}, indent=2)
    found, broken = outline.read(Source("x", "slurm", 0), text[: text.index("2")].encode())
    assert [leaf.value for leaf in found][:1] == ["1"]
    assert "cut or broken near line" in broken[0].text


@pytest.mark.parametrize("opener", ["[", '{"a":', "{a: "])
def test_levels_are_bounded(opener: str) -> None:
    found, broken = outline.read(Source("x", "slurm", 0), ('{"a": 1, "b": ' + opener * 5000).encode())
    assert [leaf.value for leaf in found] == ["1"]
    assert broken[0].text.endswith("it is nested more than 100 levels deep on line 1.")


def test_an_alias_is_not_followed() -> None:
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"
    found, broken = outline.read(Source("x", "slurm", 0), bomb)
    assert len(found) == 8 and not broken


def test_a_row_of_indented_text_may_hold_colons() -> None:
    rows = ["GPU 00000000:10:1C.0", "    Remapped Rows", "        Pending         : Yes"]
    assert [leaf.path for leaf in outline.indented(rows)] == [("GPU 00000000:10:1C.0", "Remapped Rows", "Pending")]


# ── any content ─────────────────────────────────────────────────────────────────────────────────────────────

KINDS = ("slurm", "job-report", "unit-status", "gpu-report", "ras", "debug-server", "inspector")


@given(st.sampled_from(TEXTS), st.sampled_from(KINDS), st.data())
def test_no_reader_raises_on_content(text: str, kind: str, data: st.DataObject) -> None:
    raw = text.encode()
    at = data.draw(st.integers(0, len(raw)))
    changed = raw[:at] + data.draw(st.binary(max_size=8)) + raw[at + data.draw(st.integers(0, 40)) :]
    source = Source("report.txt", kind, len(changed))
    lines = changed.count(b"\n") + 1
    for event in documents.READERS[kind](source, changed):
        assert isinstance(event, Event) and (event.where.line is None or 1 <= event.where.line <= lines)
    kubernetes.placed(source, changed, [])


def test_rows_beyond_the_limit_are_a_loss() -> None:
    text = "JobID|State|ExitCode\n" + "".join(f"{n}|FAILED|1:0\n" for n in range(schedulers.MOST_ROWS + 1))
    events = list(schedulers.parse(Source("sacct.txt", "slurm", len(text)), text.encode()))
    assert len(events) == schedulers.MOST_ROWS + 1 and events[-1].kind == "unreadable"


# ── Slurm ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("rows", "stated"), table("reports")["allocations"])
def test_the_row_of_the_allocation_ends_the_job(rows: str, stated: list[str]) -> None:
    assert facts("slurm", f"JobID|State|ExitCode\n{rows}\n") == [f"slurm {words}" for words in stated]


@pytest.mark.parametrize(("text", "stated"), table("reports")["slurm"])
def test_reports_of_slurm_in_any_columns(text: str, stated: list[str]) -> None:
    """Of Slurm 22.05: sacct -Xn -P, -P -o, squeue -t all, --delimiter, sacctmgr show event, sinfo -R, scontrol --json."""
    assert sniff.kind("x.txt", text.encode())[0] == "slurm"
    assert facts("slurm", text) == stated


@pytest.mark.parametrize(("text", "stated"), table("reports")["schedulers"])
def test_reports_of_other_schedulers_have_the_same_words(text: str, stated: str) -> None:
    assert sniff.kind("x.txt", text.encode())[0] in ("job-report", "unit-status")
    assert facts("job-report", text) == [f"batch job {stated}"]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("indent", [2, None])
def test_json_of_different_releases(listed: bool, indent: int | None) -> None:
    """The data parser 0.0.38 has a word and plain numbers, 0.0.40 lists and objects (openapi/dbv0.0.x)."""
    job = {
        "job_id": 4711, "nodes": "gn42", "state": {"current": ["TIMEOUT"] if listed else "TIMEOUT", "reason": "None"},
        "exit_code": {"return_code": {"set": True, "number": 0} if listed else 0}, "time": {"end": 1795175560},
    }  # fmt: skip
    text = json.dumps({"jobs": [job], "meta": {"Slurm": {}, "account": ""}}, indent=indent)
    assert sniff.kind("x.json", text.encode())[0] == "slurm"
    (event,) = schedulers.parse(Source("x.json", "slurm", 0), text.encode())
    assert event.fields["signature"] == "slurm job TIMEOUT 0:0 on gn42" and event.time == 1795175560


# ── GPUs, NCCL, archives ────────────────────────────────────────────────────────────────────────────────────


def test_a_gpu_is_joined_to_its_rank_by_host_and_bus(tmp_path: Path) -> None:
    folder = tmp_path / "host=gn42"
    folder.mkdir()
    (folder / "nvidia-smi.txt").write_text(SMI)
    init = "gn42:{0}:{0} [{1}] NCCL INFO ncclCommInitRank comm 0x5 rank {1} nranks 2 cudaDev {1} busId {2} - Init COMPLETE\n"
    (folder / "rank0.log").write_text("[rank0] step 1\n" + init.format(500, 0, "48000"))
    failed = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 31, in main\n[rank1]: RuntimeError: '
    )
    failed += "CUDA error: unspecified launch failure\n"
    (folder / "rank1.log").write_text("[rank1] step 1\n" + init.format(501, 1, "5d000") + failed)
    verdict = analyze([str(tmp_path)]).document["verdict"]
    assert verdict["culprit"]["ranks"] == [1] and verdict["category"] in ("gpu-hardware", "gpu-fault")


def test_a_bug_report_is_read_compressed(tmp_path: Path) -> None:
    text = f"{'_' * 44}\n\nStart of NVIDIA bug report log file.\n{'_' * 44}\n\n/usr/bin/nvidia-smi --query\n{SMI}"
    (tmp_path / "nvidia-bug-report.log.gz").write_bytes(gzip.compress(text.encode()))
    assert analyze([str(tmp_path)]).document["verdict"]["culprit"]["gpus"] == ["0000:5d:00"]


def test_an_archive_of_collect_is_used_alone(tmp_path: Path) -> None:
    sacct = next(text for text in TEXTS if "OUT_OF_ME+" in text)
    heading = "# postmortem collect: rocm-smi --showallinfo\n# 2026-11-20T12:00:00Z, 0.1 s, exit code 0\n"
    ras_info = next(text for text in TEXTS if "RAS INFO" in text)
    files = {"sacct.txt": sacct, "host=gn7/nvidia-smi.txt": SMI, "host=gn8/amd-smi.txt": heading + ras_info}
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"collected/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    document = analyze([str(tmp_path / "x.tar")]).document
    assert {s["kind"] for s in document["sources"]} == {"slurm", "gpu-report"}
    assert document["verdict"]["category"] in ("host-oom", "gpu-hardware")
    found = {f["pattern"] for f in document["findings"]}
    assert {"slurm-oom-kill-event", "gpu-report-fault"} <= found


def test_inspector_has_the_last_collective_of_each_rank() -> None:
    record = {
        "header": {"id": "0x7f8c", "rank": 2, "n_ranks": 8, "nnodes": 1},
        "metadata": {"dump_timestamp_us": 1795175560000000, "hostname": "gn1", "pid": 100},
        "coll_perf": {"coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": 4},
    }
    later = {**record, "coll_perf": {"coll": "AllReduce", "coll_sn": 8, "coll_msg_size_bytes": 4}}
    text = json.dumps(record, indent=2) + json.dumps(later)
    (event,) = inspector.parse(Source("x.log", "inspector", 0), text.encode())
    assert (event.rank, event.host, event.pid) == (2, "gn1", 100)
    assert event.fields["status"]["0x7f8c"]["enqueued"] == 8


def test_ras_names_the_only_rank_of_its_count() -> None:
    """A count of one rank has no line of its own (src/ras/client_support.cc)."""
    text = (
        "Communicators... (0.00s)\n=============\n\n#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different AllGather operation counts\n  3 ranks have launched up to operation 99\n"
        "  Rank 1 has not launched any operations -- GPU 1 managed by process 71 on node 10.0.0.1\n"
    )
    events = list(ras.parse(Source("ras.txt", "ras", 0), text.encode()))
    assert [e.fields["ranks"] for e in events if e.kind == "fact"] == ["1"]
