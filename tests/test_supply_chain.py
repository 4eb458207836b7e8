"""Locks for development and CI, with hashes; the bill of materials of a release; rights of the workflows."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.resources
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from referencing import Registry, Resource

from conftest import ROOT

sys.path.insert(0, str(ROOT))

from scripts import sbom

LOWEST_LOCK = ROOT / "requirements-min.lock"
LOCKED = sbom.pins(sbom.LOCK.read_text())
LOWEST = sbom.pins(LOWEST_LOCK.read_text())
PROJECT = sbom.project()


def test_locks_meet_the_bounds_of_pyproject() -> None:
    """For each Python a version within bounds; of the lowest versions 2.2 is 2.2.0, or the first release of 2.2."""
    required = [r for r in sbom.required(PROJECT, "dev") if r.name != "torch"]
    assert {"pandas", "dask", "aiohttp", "pytest", "hatchling"} <= {r.name for r in required}  # of all extras
    for python in sbom.PYTHONS:
        here = [pin for pin in LOCKED if pin.needed_on(python)]
        versions = {pin.name: pin.version for pin in here}
        assert len(versions) == len(here), "one version of each"
        for wanted in required:
            if not wanted.marker or wanted.marker.evaluate(sbom.linux(python)):
                version = versions.get(canonicalize_name(wanted.name), "0")
                assert wanted.specifier.contains(version, prereleases=True), f"{wanted}: run `make lock`"
    lowest = {pin.name: Version(pin.version) for pin in LOWEST}
    for wanted in sbom.required(PROJECT):
        (low,) = (Version(s.version) for s in wanted.specifier if s.operator == ">=")
        assert lowest[wanted.name].release[: len(low.release)] == low.release, f"{wanted}: run `make lock`"


def test_each_entry_of_a_lock_has_hashes_and_torch_has_no_entry() -> None:
    """Torch has CUDA builds on PyPI, CPU builds on an index of their own: a hash of one would refuse the other."""
    for path, pins in ((sbom.LOCK, LOCKED), (LOWEST_LOCK, LOWEST)):
        text = path.read_text()
        assert len(pins) == len(re.findall(r"(?m)^[^\s#]", text)) > 10
        assert sum(len(pin.hashes) for pin in pins) == text.count("--hash=")  # no other kind of hash
        assert all(pin.hashes and len({*pin.hashes}) == len(pin.hashes) for pin in pins)
    assert not [pin.name for pin in LOCKED if re.match(r"(torch|triton|nvidia-.+|cuda-.+)$", pin.name)]
    (pin,) = re.findall(r"(?m)^torch==(.+)$", (ROOT / "constraints.txt").read_text())
    (wanted,) = (r for r in sbom.required(PROJECT, "dev") if r.name == "torch")
    assert wanted.specifier.contains(pin)
    assert {"sympy", "filelock", "typing-extensions"} <= {p.name for p in LOCKED if "torch" in p.via}


def test_make_installs_by_the_lock() -> None:
    def dry_run(*words: str) -> str:
        command = ["make", "--dry-run", "--always-make", *words, ".venv/.dev"]
        env = {"PATH": os.environ["PATH"]}  # this suite may be run by a `make test LOCK=`, which hands that on
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout

    locked, free = dry_run(), dry_run("LOCK=")
    assert "--require-hashes --only-binary :all: --requirement requirements-dev.lock" in locked
    assert "--no-deps --no-build-isolation --editable ." in locked and ".[dev]" not in locked
    assert "--require-hashes" not in free and "--constraint constraints.txt --editable '.[dev]'" in free


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    folder = importlib.resources.files("cyclonedx.schema") / "_res"

    def schema(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text())
        return found

    bom, others = schema("bom-1.6"), ("spdx", "jsf-0.82")
    known = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", Resource.from_contents(schema(name)))
        for name in others
    )
    return jsonschema.Draft7Validator(bom, registry=known, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return sbom.bill(LOCKED, b"a wheel")


def test_bill_is_cyclonedx(validator: jsonschema.Draft7Validator, bill: dict[str, Any]) -> None:
    assert [e.message for e in validator.iter_errors(bill)] == []
    wrong = copy.deepcopy(bill)
    wrong["components"][0]["licenses"] = [{"license": {"id": "Free-as-in-beer"}}]
    wrong["components"][1]["externalReferences"][0]["hashes"][0]["content"] = "abc"
    assert len([*validator.iter_errors(wrong)]) == 2


def test_bill_names_the_packages_of_an_analysis_and_no_more(bill: dict[str, Any]) -> None:
    names = {c["name"] for c in bill["components"]}
    assert {r.name for r in sbom.required(PROJECT)} | {"numpy", "rich", "markupsafe"} <= names
    assert not names & {"pytest", "torch", "dask", "mypy", "colorama", "uv"}
    locked = {(pin.name, pin.version): set(pin.hashes) for pin in LOCKED}
    for part in bill["components"]:
        (files,) = part["externalReferences"]
        assert {h["content"] for h in files["hashes"]} == locked[part["name"], part["version"]]
    (product,) = bill["metadata"]["component"]["hashes"]
    assert product["content"] == "69f51477f05c46bfa5ff0027a1fcde274695311a38adfb85611ffeb93c8b146b"


def test_packages_left_out_of_the_bill_are_needed_on_windows_only() -> None:
    """The site's tools need colorama everywhere, click on Windows: the lock only shows that both need it."""
    for name in sbom.WINDOWS:
        (pin,) = (pin for pin in LOCKED if pin.name == name)
        needed = {p.name for p in sbom.needed(LOCKED, [r.name for r in sbom.required(PROJECT)])}
        assert (askers := {*pin.via} & needed)
        for asker in askers:
            wanted = [Requirement(line) for line in importlib.metadata.requires(asker) or ()]
            markers = [r.marker for r in wanted if r.name == name and "extra" not in str(r.marker)]
            assert markers and not any(m is None or m.evaluate(sbom.linux("3.11")) for m in markers), asker


def test_each_part_of_the_bill_is_reached_from_the_wheel(bill: dict[str, Any]) -> None:
    edges = {d["ref"]: d["dependsOn"] for d in bill["dependencies"]}
    assert len(edges) == len(bill["dependencies"])
    reached, fresh = set(), {bill["metadata"]["component"]["bom-ref"]}
    while fresh:
        reached |= fresh
        fresh = {ref for known in fresh for ref in edges[known]} - reached
    assert reached == edges.keys() == {c["bom-ref"] for c in bill["components"]} | {sbom.purl(
        PROJECT["name"], PROJECT["version"]
    )}  # fmt: skip


def test_script_writes_the_bill(tmp_path: Path) -> None:
    target = tmp_path / "bill.json"
    command = [sys.executable, "scripts/sbom.py", "--output", target]
    subprocess.run(command, cwd=ROOT, env={"PYTHONHASHSEED": "1"}, check=True, capture_output=True)
    assert target.read_text() == sbom.text(LOCKED), "the same lock gives the same bytes"
    other = sbom.bill(LOCKED, b"a wheel")["serialNumber"]
    assert json.loads(target.read_text())["serialNumber"] != other


def test_each_license_is_the_declared_one() -> None:
    """As SPDX expression in the metadata; others have only words, and were compared by reading."""
    assert sbom.LICENCES.keys() == {p.name for p in sbom.needed(LOCKED, [r.name for r in sbom.required(PROJECT)])}
    compared = 0
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"])
        declared = distribution.metadata.get("License-Expression")
        if name in sbom.LICENCES and declared:
            assert sbom.LICENCES[name] == declared, name
            compared += 1
    assert compared >= 8


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_and_have_few_rights(path: Path) -> None:
    """A tag can be moved to other code (CVE-2025-30066), and a job without `permissions` may write everywhere."""
    text = path.read_text()
    workflow = yaml.safe_load(text)
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name, _ in used)
    assert all(re.fullmatch(r" # v[\d.]+", version) for _, version in used), "a comment names the release of the hash"
    assert workflow["permissions"] in ({}, {"contents": "read"})
    writes = {
        (name, right)
        for name, job in workflow["jobs"].items()
        for right, level in job.get("permissions", {}).items()
        if level == "write"
    }
    assert writes <= {("publish", "id-token"), ("attach", "contents")}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


def test_workflow_runs_the_suite_on_each_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(sbom.PYTHONS) <= set(pythons) and f">={pythons[0]}" == PROJECT["requires-python"]
    assert workflow["jobs"]["test"]["steps"][-1]["run"] == "bash .ci/run"
    assert workflow["jobs"]["release"]["steps"][-1]["run"] == "make dist docs"
