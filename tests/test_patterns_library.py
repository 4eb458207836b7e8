"""The shipped pattern files: each example through the real scanner and parsers,
each file through every lint."""

from __future__ import annotations

import json
from collections.abc import Iterable

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
TRIALS = list(trial.trials(LIBRARY))
FILES = sorted((ROOT / "patterns").rglob("*.yaml"))


@pytest.mark.parametrize("family", sorted({p.family for p in LIBRARY.patterns.values()}))
def test_examples_and_lints(family: str) -> None:
    patterns = {p.id for p in LIBRARY.patterns.values() if p.family == family}
    assert not [
        (str(one), why) for one in TRIALS if one.pattern.id in patterns and (why := trial.failure(one, LIBRARY))
    ]
    quick = [one for one in lint.LINTS if one.name != "regex-is-linear"]
    assert not [remark for pattern_id in patterns for remark in remarks(pattern_id, quick)]


def remarks(pattern_id: str, lints: Iterable[lint.Lint]) -> list[str]:
    found = ((one, text) for one in lints for text in one.check(LIBRARY[pattern_id], LIBRARY))
    return [f"{pattern_id}: {one.name}: {text} ({one.fix})" for one, text in found]


@pytest.mark.release
@pytest.mark.slow
def test_no_line_stops_a_regex() -> None:
    """The one lint that measures time: half of what all lints cost together."""
    (linear,) = (one for one in lint.LINTS if one.name == "regex-is-linear")
    slow = [remark for pattern_id in LIBRARY.patterns for remark in remarks(pattern_id, [linear])]
    assert not slow, "\n".join(slow)


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
