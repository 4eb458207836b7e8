"""The graph of what explains what, as the pattern files draw it:
no circles, no dead ends, nothing upside down.

`pytest tests/test_pattern_graph.py -s` prints it; a failure prints the edges at fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import pytest

from conftest import ROOT
from postmortem.library import Library, load
from postmortem.library.read import keys
from postmortem.model import Explains, Pattern

LIBRARY = load()
# An edge from something that is no cause to a cause says that the cause is an echo.
# Each is here with its reason.
ECHOES = {
    (
        "cpp-terminate-distributed",
        "faulthandler-fatal-error",
    ): "the fault handler's `Aborted` is the end of the exception thrown above it",
}


def edges(library: Library) -> Iterator[tuple[Pattern, Explains]]:
    for pattern in library.patterns.values():
        for link in pattern.explains:
            yield pattern, link


def drawn(library: Library) -> str:
    """The graph as text: each pattern that explains others, and below it what it explains,
    and by what they are joined."""
    lines = []
    for pattern in library.patterns.values():
        if pattern.explains:
            lines.append(f"{pattern.id} ({pattern.role}, {pattern.category or '-'})")
        for link in pattern.explains:
            target = library.get(link.id)
            within = f", within {link.within_s:g} s" if link.within_s else ""
            lines.append(f"    -> {link.id} ({target.role if target else 'UNKNOWN'}), {link.join}{within}")
    return "\n".join(lines)


def circles(library: Library) -> Iterator[str]:
    """One circle; more come to light when this one is mended."""
    graph = {p.id: {link.id for link in p.explains if link.id != p.id} for p in library.patterns.values()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        yield "a circle: " + " -> ".join(reversed(e.args[1]))


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
    yield from circles(library)


def reasoned() -> str:
    """The text of the room that derives findings: a derived pattern that it does not name is never found."""
    return "".join(f.read_text() for f in sorted((ROOT / "postmortem" / "diagnose").rglob("*.py")))


def read_as_blocks() -> str:
    """The text of the room whose events a pattern with `on:` waits for."""
    return "".join(
        f.read_text()
        for f in sorted(
            [*(ROOT / "postmortem" / "blocks").glob("*.py"), *(ROOT / "postmortem" / "formats").glob("*.py")]
        )
    )


def unreachable(library: Library) -> Iterator[str]:
    """Patterns that no log can lead to."""
    reasoning, parsing = reasoned(), read_as_blocks()
    for p in library.patterns.values():
        if p.derived:
            readings = {other.reads_as.id for other in library.patterns.values() if other.reads_as}
            if f'"{p.id}"' not in reasoning and p.id not in readings:
                yield f"{p.id} is derived, and no reasoning names it"
        elif not any(v.regex for v in p.variants):
            yield f"{p.id} has neither a gate, a regex, an event nor a reasoning that leads to it"
        elif p.on and (p.on not in keys()["on"]["enum"] or f'"{p.on}"' not in parsing):
            yield f"{p.id} reads `{p.on}` events, which no parser makes"


def test_edges_lead_from_causes_to_what_follows() -> None:
    print(drawn(LIBRARY))
    faults = list(wrong_edges(LIBRARY))
    assert not faults, "\n".join([*faults, "", "the graph:", drawn(LIBRARY)])


def test_every_pattern_can_be_reached() -> None:
    faults = list(unreachable(LIBRARY))
    assert not faults, "\n".join(faults)


def test_every_echo_is_still_drawn() -> None:
    assert set(ECHOES) <= {(pattern.id, link.id) for pattern, link in edges(LIBRARY)}


def changed(*changes: Pattern) -> Library:
    return Library({**LIBRARY.patterns, **{p.id: p for p in changes}}, "changed")


def explaining(pattern_id: str, *targets: str) -> Pattern:
    return replace(LIBRARY[pattern_id], explains=tuple(Explains(t, "any") for t in targets))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ([explaining("kernel-oom-killed-process", "kernel-oom-killed-process")], "explains itself"),
        ([explaining("kernel-oom-killed-process", "no-such-thing")], "does not exist"),
        (
            [explaining("gloo-connection-closed", "kernel-oom-killed-process")],
            "is a symptom and explains the cause",
        ),
        ([explaining("nccl-version", "gloo-connection-closed")], "is context and explains"),
        (
            [
                explaining("xid-79-gpu-fell-off-bus", "gpu-lost"),
                explaining("gpu-lost", "xid-79-gpu-fell-off-bus"),
            ],
            "a circle: ",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_bad_edge_is_found(broken: list[Pattern], fault: str) -> None:
    assert any(fault in found for found in wrong_edges(changed(*broken)))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (replace(LIBRARY["kernel-oom-killed-process"], variants=()), "neither a gate"),
        (
            replace(LIBRARY["kernel-oom-killed-process"], id="rank-dreamt", derived=True, variants=()),
            "no reasoning names it",
        ),
        (replace(LIBRARY["module-not-found"], on="dream"), "which no parser makes"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_dead_end_is_found(broken: Pattern, fault: str) -> None:
    assert any(fault in found for found in unreachable(changed(broken)))
