"""The shipped pattern files: each example through the real scanner and parsers, each file through every lint, and the
graph of `explains`: no cycles, no dead ends, no symptom above a cause."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import jsonschema
import pytest
import yaml

from conftest import ROOT
from postmortem.library import Library, load
from postmortem.library.read import keys
from postmortem.model import Explains, Pattern, vocabulary
from postmortem.system import resources
from postmortem.workshop import lint, trial

LIBRARY = load()
FILES = sorted(p for p in (ROOT / "patterns").rglob("*.yaml") if p.parent.name != "causes")


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
    assert FILES
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
    assert (tuple(action["kind"]["enum"]), tuple(action["unless"]["enum"])) == (
        v.ACTIONS,
        (*v.AT_HAND, *v.CULPRITS, *v.PLACES),
    )


# edges from a pattern that is no cause to a cause: the fault handler's `Aborted` is the end of the exception above it
ECHOES = {("cpp-terminate-distributed", "faulthandler-fatal-error")}


def edges(library: Library) -> Iterator[tuple[Pattern, Explains]]:
    for pattern in library.patterns.values():
        for link in pattern.explains:
            yield pattern, link


def cycles(library: Library) -> Iterator[str]:
    graph = {p.id: {link.id for link in p.explains if link.id != p.id} for p in library.patterns.values()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        yield "a cycle: " + " -> ".join(reversed(e.args[1]))


def wrong_edges(library: Library) -> Iterator[str]:
    for pattern, link in edges(library):
        target = library.get(link.id)
        if link.id == pattern.id:
            yield f"{pattern.id} explains itself"
        elif target is None:
            yield f"{pattern.id} explains {link.id}, which does not exist"
        elif target.role == "cause" and pattern.role != "cause" and (pattern.id, link.id) not in ECHOES:
            yield f"{pattern.id} is a {pattern.role} and explains the cause {link.id}"
        elif pattern.role == "context":
            yield f"{pattern.id} is context and explains {link.id}"
    yield from cycles(library)


def source_of(*rooms: str) -> str:
    """The text of some rooms: a derived pattern, or a kind of event, that it does not name is never made."""
    files = (path for room in rooms for path in sorted((ROOT / "postmortem" / room).rglob("*.py")))
    return "".join(path.read_text() for path in files)


def unreachable(library: Library) -> Iterator[str]:
    """Yield patterns that no log can lead to."""
    reasoning, parsing = source_of("diagnose"), source_of("blocks", "formats")
    for p in library.patterns.values():
        if p.derived:
            readings = {other.reads_as.id for other in library.patterns.values() if other.reads_as}
            if f'"{p.id}"' not in reasoning and p.id not in readings:
                yield f"{p.id} is derived, and no reasoning names it"
        elif not any(v.regex for v in p.variants):
            yield f"{p.id} has neither a gate, a regex, an event nor a reasoning that leads to it"
        elif p.on and (p.on not in keys()["on"]["enum"] or f'"{p.on}"' not in parsing):
            yield f"{p.id} reads `{p.on}` events, which no parser makes"


def test_edges_lead_from_causes_to_effects_and_every_pattern_can_be_reached() -> None:
    faults = [*wrong_edges(LIBRARY), *unreachable(LIBRARY)]
    assert not faults, "\n".join(faults)
    assert {(pattern.id, link.id) for pattern, link in edges(LIBRARY)} >= ECHOES


def changed(*changes: Pattern) -> Library:
    return Library({**LIBRARY.patterns, **{p.id: p for p in changes}}, "changed")


def explaining(pattern_id: str, *targets: str) -> Pattern:
    return replace(LIBRARY[pattern_id], explains=tuple(Explains(t, "any") for t in targets))


BAD_EDGES = {
    "explains itself": [explaining("kernel-oom-killed-process", "kernel-oom-killed-process")],
    "does not exist": [explaining("kernel-oom-killed-process", "no-such-thing")],
    "is a symptom and explains the cause": [explaining("gloo-connection-closed", "kernel-oom-killed-process")],
    "is context and explains": [explaining("nccl-version", "gloo-connection-closed")],
    "a cycle: ": [explaining("xid-79-gpu-fell-off-bus", "gpu-lost"), explaining("gpu-lost", "xid-79-gpu-fell-off-bus")],
}
OOM = LIBRARY["kernel-oom-killed-process"]
DEAD_ENDS = {
    "neither a gate": replace(OOM, variants=()),
    "no reasoning names it": replace(OOM, id="rank-unknown", derived=True, variants=()),
    "which no parser makes": replace(LIBRARY["module-not-found"], on="unknown"),
}


def test_bad_edges_and_dead_ends_are_found() -> None:
    for fault, broken in BAD_EDGES.items():
        assert any(fault in found for found in wrong_edges(changed(*broken))), fault
    for fault, pattern in DEAD_ENDS.items():
        assert any(fault in found for found in unreachable(changed(pattern))), fault
