"""The contract with programs: the generated schemas are current, and valid for every sample in every form."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from quantities import run_of

from conftest import ROOT, SAMPLES, solved
from postmortem import Incident, Options, analyze, report
from postmortem.cli.analyze import OUTCOME_CODES
from postmortem.cli.app import run
from postmortem.cli.texts import Document
from postmortem.fleet.diff.comparison import compare
from postmortem.fleet.history import filing, resolved, rows
from postmortem.fleet.history.store import opened
from postmortem.model import EventKind, Outcome
from postmortem.model.details import OF_KIND, Details
from postmortem.system import resources

sys.path.insert(0, str(ROOT / "scripts"))
import contract

CASES = sorted(case for case in SAMPLES.iterdir() if (case / "logs").is_dir())
OOM = SAMPLES / "oom-on-second-host"
HANG = SAMPLES / "skipped-collective"
XID = "[Sat Nov 21 12:55:05 2026] NVRM: Xid (PCI:0000:65:00): 79, pid=21965, GPU has fallen off the bus.\n"


@cache
def validator(name: str, closed: bool = False) -> jsonschema.Draft202012Validator:
    """Return a validator; `closed`, it refuses undeclared fields, as no reader should."""
    found = json.loads(resources.schema(name))
    if closed:
        for record in (found, *found["$defs"].values()):
            record["additionalProperties"] = False
    return jsonschema.Draft202012Validator(found)


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Incident:
    """Return an incident with a culprit GPU, a second job, a file that ends early, and a history."""
    logs = tmp_path_factory.mktemp("rare")
    shutil.copytree(HANG / "logs", logs / "a")
    shutil.copytree(SAMPLES / "bad-label-one-rank" / "logs", logs / "b")
    (logs / "dmesg.txt").write_text(XID)
    whole = gzip.compress(b"step 1 loss 2\n" * 20_000)
    (logs / "rank9.log.gz").write_bytes(whole[: len(whole) // 2])
    found = analyze([str(logs)], Options(job="a"))
    where = str(logs.parent / "fleet.db")
    with opened(where, make=True) as history:  # of a host with the same failure twice, and its repair
        for number in range(2):
            own = rows.row(found.document)
            seen = (rows.Involved("host", "gpu-017", True),)
            history.file(replace(own, uid=f"{number:064x}", happened=f"2026-11-1{number}T03:12:08.000Z", involved=seen))
        history.file(replace(own, uid=f"{2:064x}", cause="591c3021e7074691"))  # by an older version
        history.note(f"{1:064x}", "reseated")
        resolved.resolve(history, f"{1:064x}", "bad-hardware")
    filed: Incident = filing.filed(found, where, None, [str(logs)], hide=False, known=filing.counts(where))
    return filed


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Incident:
    """Return a run with a slow rank, and a loss that becomes NaN."""
    return analyze([str(run_of(tmp_path_factory.mktemp("measured"), slow={1: 2.0}, nan=30))])


compared = cache(compare)


def written(incident: Incident, name: str) -> list[Any]:
    if name == "diff":
        return [compared(str(SAMPLES / "healthy-torchrun" / "logs"), str(SAMPLES / "bad-label-one-rank" / "logs"))]
    if name == "event":
        return [json.loads(row) for row in report.render_ndjson(incident).splitlines()]
    render = report.render_json if name == "incident" else report.render_brief
    return [json.loads(render(incident))]


@cache
def of_sample(case: Path, name: str) -> list[Any]:
    return written(solved(case), name)


def test_schemas_and_tables_are_generated_from_the_types(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["contract.py", "--check"])
    assert contract.main() == 0, capsys.readouterr().out
    monkeypatch.setattr(contract, "TITLES", contract.TITLES | {"event": "Something else"})
    assert contract.main() == 1
    assert "schemas/event-1.schema.json" in capsys.readouterr().out


def test_schemas_are_valid_and_describe_every_field() -> None:
    for name in contract.SHAPES:
        jsonschema.Draft202012Validator.check_schema(json.loads(resources.schema(name)))
        shapes = list(contract.shapes(contract.SHAPES[name]))
        assert len(shapes) == len(set(shapes))
        for shape in shapes:
            assert set(contract.descriptions(shape)) == set(contract.fields(shape)), shape


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_sample_follows_the_contract(case: Path) -> None:
    """Undeclared fields fail: a new field is declared, with its meaning."""
    for name in contract.SHAPES.keys() - {"diff"}:
        for row in of_sample(case, name):
            validator(name, closed=True).validate(row)


def test_rare_fields_follow_the_contract(rare: Incident) -> None:
    document = rare.document
    assert document["verdict"]["culprit"]["gpus"] and document["other_jobs"] and document["ledger"]["skipped"]
    for name in contract.SHAPES:
        for row in written(rare, name):
            validator(name, closed=True).validate(row)


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Yield `verdict.culprit.ranks`, without the numbers of items in lists."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, at)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"{at}.{name}".lstrip(".")
            yield from paths(item, f"{at}.{name}")


def declared(found: dict[str, Any], record: dict[str, Any], at: str = "") -> Iterator[str]:
    for name, field in record.get("properties", {}).items():
        yield f"{at}.{name}".lstrip(".")
        inner = field.get("items", field).get("$ref")
        if inner:
            yield from declared(found, found["$defs"][inner.removeprefix("#/$defs/")], f"{at}.{name}")


@pytest.mark.parametrize("name", contract.SHAPES)
def test_every_declared_field_occurs(name: str, rare: Incident, measured: Incident) -> None:
    found = json.loads(resources.schema(name))
    samples = () if name == "diff" else CASES  # each writes the same comparison
    every = [*(of_sample(case, name) for case in samples), written(rare, name), written(measured, name)]
    seen = {path for part in every for row in part[:50] for path in paths(row)}
    unseen = set(declared(found, found)) - seen - {"job", "report"}  # which a notification adds
    # a replay adds its result; `more` depends on lengths; every root here accounts for all symptoms; no sample has a
    # snapshot of GPU memory (test_crash_texts.py)
    assert not {path for path in unseen if not path.startswith(("replay.result", "more.", "unexplained.", "memory"))}


def test_a_reader_accepts_additions_but_no_number_in_quotes() -> None:
    """`"rank": "523"` in the brief was text, which no program could compare with a rank."""
    (brief,) = written(solved(HANG), "brief")
    validator("brief").validate({**brief, "new_in_a_later_version": 1})
    for wrong in ({"rank": "1"}, {"ranks": "0, 1"}, {"ranks": ["1"]}):
        changed = {**brief, "culprit": {**brief["culprit"], **wrong}}
        assert ("ranks" in wrong) != validator("brief").is_valid(changed), wrong  # `rank` is an addition, unread
    (document,) = written(solved(HANG), "incident")
    for name in ("verdict", "ranks", "schema"):
        assert not validator("incident").is_valid({k: v for k, v in document.items() if k != name}), name
    broken = copy.deepcopy(document)
    broken["verdict"]["outcome"] = "solved"
    assert not validator("incident").is_valid(broken)


def test_the_brief_has_the_culprit_of_the_document() -> None:
    """Of a job that lost a host with hundreds of ranks it has the first, and counts the others."""
    (document,), (brief,) = written(solved(OOM), "incident"), written(solved(OOM), "brief")
    blamed = {name: value for name, value in document["verdict"]["culprit"].items() if value}
    assert brief["culprit"] == blamed and blamed["ranks"] and blamed["pids"]
    incident = copy.deepcopy(solved(OOM))
    incident.document["verdict"]["culprit"]["ranks"] = list(range(700))
    wide = json.loads(report.render_brief(incident))
    assert wide["culprit"]["ranks"] == list(range(len(wide["culprit"]["ranks"])))
    assert wide["more"]["ranks"] == 700 - len(wide["culprit"]["ranks"])


def test_the_command_prints_each_schema(capfd: pytest.CaptureFixture[str]) -> None:
    assert set(Document) == set(contract.SHAPES)
    for name in Document:
        assert run(["schema", name.value]) == 0
        assert json.loads(capfd.readouterr().out) == json.loads(resources.schema(name.value))


def test_each_outcome_has_an_exit_code() -> None:
    assert set(OUTCOME_CODES) == set(get_args(Outcome))


def test_each_kind_of_event_is_made_and_has_its_details() -> None:
    rooms = (ROOT / "postmortem" / room for room in ("blocks", "documents", "formats", "align"))
    made = "".join(p.read_text() for room in rooms for p in room.rglob("*.py"))
    assert OF_KIND.keys() == {*get_args(EventKind)}
    assert [kind for kind in OF_KIND if f'"{kind}"' not in made] == []
    assert frozenset().union(*OF_KIND.values()) == Details.__annotations__.keys()
