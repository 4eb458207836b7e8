"""What is installed for development and CI, each file by its hash, and what a release says it is made with."""

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
from packaging.version import Version
from referencing import Registry, Resource

from conftest import ROOT

sys.path.insert(0, str(ROOT))

from scripts import lock, sbom

LOCKED = lock.pins(lock.DEV.read_text())
LOWEST = lock.pins(lock.LOWEST.read_text())
PROJECT = lock.project()
ASKED = [r for r in lock.asked(PROJECT, "dev") if not lock.BY_ITS_PIN.match(r.name)]


# ── the lock ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_lock_is_what_pyproject_asks_for() -> None:
    names = {r.name for r in ASKED}
    assert {"pandas", "dask", "aiohttp", "pytest", "hatchling"} <= names  # of all extras that dev names
    assert lock.unmet(ASKED, LOCKED) == [], "run `make lock`"


def test_each_entry_of_a_lock_is_read_and_has_hashes() -> None:
    for path, pins in ((lock.DEV, LOCKED), (lock.LOWEST, LOWEST)):
        text = path.read_text()
        assert len(pins) == len(re.findall(r"(?m)^[^\s#]", text)) > 10
        assert sum(len(pin.hashes) for pin in pins) == text.count("--hash=")  # no other kind of hash
        assert all(pin.hashes and len({*pin.hashes}) == len(pin.hashes) for pin in pins)


def test_torch_has_its_pin_and_no_place_in_the_lock() -> None:
    """CUDA builds on PyPI, CPU builds on an index of their own: a hash of one would refuse the other."""
    assert not [pin.name for pin in LOCKED if lock.BY_ITS_PIN.match(pin.name)]
    (pin,) = re.findall(r"(?m)^torch==(.+)$", (ROOT / "constraints.txt").read_text())
    (wanted,) = (r for r in lock.asked(PROJECT, "dev") if r.name == "torch")
    assert wanted.specifier.contains(pin)
    assert {"sympy", "filelock", "typing-extensions"} <= {p.name for p in LOCKED if "torch" in p.via}


@pytest.mark.parametrize(
    ("wanted", "entry", "lacks"),
    [
        ("left>=1.0", "", "left is missing for Python 3.11"),
        ("left>=1.0", "left==0.9 \\\n    --hash=sha256:" + "a" * 64, "left 0.9 is not >=1.0"),
        ("left>=1.0", "left==1.0", "left==1.0 has no SHA-256"),
        ("left>=1.0", "left==1.0 \\\n    --hash=sha256:" + "a" * 63, "left==1.0 has no SHA-256"),
        ("left>=1.0", "left==1.0 \\\n    --hash=md5:" + "a" * 32, "left==1.0 has no SHA-256"),
        (
            "Left",
            "left==1.0 ; python_full_version >= '3.12' \\\n    --hash=sha256:" + "a" * 64,
            "left is missing for Python 3.11",
        ),
        (
            "left",
            2 * ("left==1.0 \\\n    --hash=sha256:" + "a" * 64 + "\n"),
            "left is there twice for Python 3.11",
        ),
    ],
)
def test_what_a_lock_lacks_is_said(wanted: str, entry: str, lacks: str) -> None:
    assert lacks in lock.unmet([Requirement(wanted)], lock.pins(f"# head\n{entry}\n    # via right\n"))


def test_make_installs_by_the_lock() -> None:
    """What it would run, with the lock and without."""

    def said(*words: str) -> str:
        command = ["make", "--dry-run", "--always-make", *words, ".venv/.dev"]
        env = {"PATH": os.environ["PATH"]}  # this suite may be run by a `make test LOCK=`, which hands that on
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout

    locked, free = said(), said("LOCK=")
    assert "--require-hashes --only-binary :all: --requirement requirements-dev.lock" in locked
    assert "--no-deps --no-build-isolation --editable ." in locked and ".[dev]" not in locked
    assert "--require-hashes" not in free and "--constraint constraints.txt --editable '.[dev]'" in free


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    """2.2 in pyproject.toml is 2.2.0 in the lock, or 2.2.1 where that is the first of 2.2."""
    versions = {pin.name: Version(pin.version) for pin in LOWEST}
    for wanted in lock.asked(PROJECT):
        (low,) = (Version(s.version) for s in wanted.specifier if s.operator == ">=")
        assert versions[wanted.name].release[: len(low.release)] == low.release, f"{wanted}: run `make lock`"


# ── the bill of materials ───────────────────────────────────────────────────────────────────────────────────


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


def test_the_bill_is_cyclonedx(validator: jsonschema.Draft7Validator, bill: dict[str, Any]) -> None:
    assert [e.message for e in validator.iter_errors(bill)] == []
    wrong = copy.deepcopy(bill)
    wrong["components"][0]["licenses"] = [{"license": {"id": "Free-as-in-beer"}}]
    wrong["components"][1]["externalReferences"][0]["hashes"][0]["content"] = "abc"
    assert len([*validator.iter_errors(wrong)]) == 2


def test_the_bill_names_what_an_analysis_needs_and_no_more(bill: dict[str, Any]) -> None:
    names = {c["name"] for c in bill["components"]}
    assert {r.name for r in lock.asked(PROJECT)} | {"numpy", "rich", "markupsafe"} <= names
    assert not names & {"pytest", "torch", "dask", "mypy", "colorama", "uv"}
    locked = {(pin.name, pin.version): set(pin.hashes) for pin in LOCKED}
    for part in bill["components"]:
        (files,) = part["externalReferences"]
        assert {h["content"] for h in files["hashes"]} == locked[part["name"], part["version"]]
    (product,) = bill["metadata"]["component"]["hashes"]
    assert product["content"] == "69f51477f05c46bfa5ff0027a1fcde274695311a38adfb85611ffeb93c8b146b"


def test_what_the_bill_leaves_out_is_asked_for_on_windows_alone() -> None:
    """The site's tools need colorama everywhere, click on Windows: the lock says only that both need it."""
    for name in sbom.WINDOWS:
        (pin,) = (pin for pin in LOCKED if pin.name == name)
        for asker in {*pin.via} & {p.name for p in sbom.needed(LOCKED, [r.name for r in lock.asked(PROJECT)])}:
            wanted = [Requirement(line) for line in importlib.metadata.requires(asker) or ()]
            markers = [r.marker for r in wanted if r.name == name and "extra" not in str(r.marker)]
            assert markers and not any(m is None or m.evaluate(lock.linux("3.11")) for m in markers), asker


def test_each_part_is_reached_from_the_wheel(bill: dict[str, Any]) -> None:
    edges = {d["ref"]: d["dependsOn"] for d in bill["dependencies"]}
    assert len(edges) == len(bill["dependencies"])
    reached, fresh = set(), {bill["metadata"]["component"]["bom-ref"]}
    while fresh:
        reached |= fresh
        fresh = {ref for known in fresh for ref in edges[known]} - reached
    assert reached == edges.keys() == {c["bom-ref"] for c in bill["components"]} | {sbom.purl(
        PROJECT["name"], PROJECT["version"]
    )}  # fmt: skip


def test_the_same_lock_gives_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for seed in ("1", "2"):
        target = tmp_path / f"{seed}.json"
        command = [sys.executable, "scripts/sbom.py", "--output", target]
        subprocess.run(command, cwd=ROOT, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True)
        made.append(target.read_bytes())
    assert made[0] == made[1] == sbom.text(LOCKED).encode()
    other = sbom.bill(LOCKED, b"a wheel")["serialNumber"]
    assert json.loads(made[0])["serialNumber"] != other  # of other content


def test_each_licence_is_the_one_that_its_package_declares() -> None:
    """As SPDX expression in the metadata, else in words."""
    words = {
        "MIT": "MIT",
        "ISC": "ISC",
        "BSD-3-Clause": "BSD",
        "LGPL-3.0-or-later": "LGPL",
        "Apache-2.0": "Apache",
    }
    assert sbom.LICENCES.keys() == {p.name for p in sbom.needed(LOCKED, [r.name for r in lock.asked(PROJECT)])}
    compared = 0
    for name, licence in sbom.LICENCES.items():
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:  # on another Python
            continue
        if (declared := metadata.get("License-Expression")) is not None:
            assert licence == declared, name
            compared += 1
        elif told := [metadata.get("License") or "", *(metadata.get_all("Classifier") or [])]:
            told = [line for line in told if line and ("::" not in line or line.startswith("License"))]
            assert not told or any(words[licence] in line for line in told), name
    assert compared >= 8


# ── what the repository's host runs ─────────────────────────────────────────────────────────────────────────

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_and_have_no_more_rights_than_they_need(path: Path) -> None:
    """A tag can be moved to other code (CVE-2025-30066), and a job without `permissions` may write everywhere."""
    text = path.read_text()
    workflow = yaml.safe_load(text)
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name, _ in used)
    assert all(re.fullmatch(r" # v[\d.]+", version) for _, version in used), "say which release the hash is"
    assert workflow["permissions"] in ({}, {"contents": "read"})
    writes = {
        (name, right)
        for name, job in workflow["jobs"].items()
        for right, level in job.get("permissions", {}).items()
        if level == "write"
    }
    assert writes <= {("publish", "id-token"), ("attach", "contents")}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


def test_the_suite_runs_on_each_python_that_the_package_takes() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(lock.PYTHONS) <= set(pythons) and f">={pythons[0]}" == PROJECT["requires-python"]
    assert workflow["jobs"]["test"]["steps"][-1]["run"] == "bash .ci/run"


@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.stem)
def test_an_issue_form_asks_for_what_decides(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"] and form["description"]
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert len({item["id"] for item in fields}) == len(fields)
    assert all(item["attributes"]["label"] for item in fields)
    assert any(item.get("validations", {}).get("required") for item in fields)
    assert "--anonymise" in path.read_text() or "pseudonyms" in path.read_text()
