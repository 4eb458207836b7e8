"""The shipped pattern files: each example through the real scanner and parsers,
each file through every lint."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from conftest import ROOT
from postmortem.library import load
from postmortem.library.read import keys
from postmortem.model import vocabulary
from postmortem.system import resources
from postmortem.workshop import lint, trial

LIBRARY = load()
FILES = sorted((ROOT / "patterns").rglob("*.yaml"))


# Lints that measure time or compile each gate alone; test_scan_engine.py compiles and measures all gates together.
SLOW = {"regex-is-linear": pytest.mark.release}
GATES = ("gate-compiles", "gate-has-a-literal", "gate-is-cheap", "gate-lets-the-examples-through")
SLOW |= dict.fromkeys(GATES, pytest.mark.slow)
LINTS = [pytest.param(one, id=one.name, marks=SLOW.get(one.name, ())) for one in lint.LINTS]


def test_every_example_is_read_as_its_file_states() -> None:
    assert not [(str(one), why) for one in trial.trials(LIBRARY) if (why := trial.failure(one, LIBRARY))]


@pytest.mark.parametrize("one", LINTS)
def test_no_pattern_has_a_remark(one: lint.Lint) -> None:
    assert not [f"{p.id}: {text} ({one.fix})" for p in LIBRARY.patterns.values() for text in one.check(p, LIBRARY)]


def test_every_file_fits_the_schema() -> None:
    class Loader(yaml.CSafeLoader):
        """`on:` is a key here, not YAML's truth value."""

    Loader.yaml_implicit_resolvers = {
        letter: [(tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:bool" or letter not in "oO"]
        for letter, forms in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    schema = json.loads((resources.folder("patterns") / "schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for file in FILES:
        errors = [
            f"{file}: {e.json_path}: {e.message}" for e in validator.iter_errors(yaml.load(file.read_text(), Loader))
        ]
        assert not errors, errors[0]


def test_the_schema_has_the_words_of_the_vocabularies() -> None:
    found = {name: key.get("enum") or key.get("anyOf", [key])[0].get("enum") for name, key in keys().items()}
    v = vocabulary
    words = {
        "role": v.ROLES,
        "severity": v.SEVERITIES,
        "tells": v.TELLS,
        "cause_if": v.CONDITIONS,
        "strength": v.STRENGTHS,
    }
    words |= {"category": (*v.CATEGORIES, None), "bears_out": v.CATEGORIES, "stands_for": v.CATEGORIES}
    assert {name: tuple(found[name]) for name in words} == words
    action = keys()["actions"]["items"]["properties"]
    assert (tuple(action["kind"]["enum"]), tuple(action["unless"]["enum"])) == (v.ACTIONS, v.AT_HAND)
