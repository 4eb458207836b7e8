"""The shipped pattern files: each example through the real scanner and parsers,
each file through every lint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache

import jsonschema
import pytest
import yaml

from conftest import ROOT
from postmortem.library import load, schema
from postmortem.workshop import lint, trial

LIBRARY = load()
TRIALS = list(trial.trials(LIBRARY))
FILES = sorted((ROOT / "patterns").rglob("*.yaml"))


@pytest.mark.parametrize("one", TRIALS, ids=str)
def test_example(one: trial.Trial) -> None:
    assert not trial.failure(one, LIBRARY)


def remarks(pattern_id: str, lints: Iterable[lint.Lint]) -> list[str]:
    return [f"{one.name}: {said} ({one.fix})" for one in lints for said in one.check(LIBRARY[pattern_id], LIBRARY)]


@pytest.mark.parametrize("pattern_id", LIBRARY.patterns)
def test_lint(pattern_id: str) -> None:
    quick = [one for one in lint.LINTS if one.name != "regex-is-linear"]
    assert not remarks(pattern_id, quick)


@pytest.mark.release
@pytest.mark.slow
def test_no_line_stops_a_regex() -> None:
    """The one lint that measures time: half of what all lints cost together."""
    (linear,) = (one for one in lint.LINTS if one.name == "regex-is-linear")
    slow = [said for pattern_id in LIBRARY.patterns for said in remarks(pattern_id, [linear])]
    assert not slow, "\n".join(slow)


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema.pattern_schema())


def test_every_file_fits_the_schema() -> None:
    class Loader(yaml.CSafeLoader):
        """`on:` is a key here, not YAML's truth value."""

    Loader.yaml_implicit_resolvers = {
        letter: [(tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:bool" or letter not in "oO"]
        for letter, forms in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    for file in FILES:
        errors = [
            f"{file}: {e.json_path}: {e.message}" for e in validator().iter_errors(yaml.load(file.read_text(), Loader))
        ]
        assert not errors, errors[0]


def test_schema_is_the_one_that_the_types_give() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/pattern_schema.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
