"""What decides a verdict: the content of the logs. Not the order of files, lines of the library, nor the
names of files."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from conftest import ROOT, SAMPLES
from postmortem import input as collect
from postmortem import reading
from postmortem.align import align
from postmortem.diagnose import diagnose
from postmortem.diagnose.same import stem
from postmortem.library import Library, load
from postmortem.model import Event, Source
from postmortem.say.document import write

SYNTHETIC = ROOT / "tests" / "incidents" / "synthetic"
CASES = sorted(p.parent for folder in (SAMPLES, SYNTHETIC) for p in folder.glob("*/truth.json"))
EVERY = len(CASES) // 12 + 1
CHOSEN = [pytest.param(c, id=c.name, marks=() if i % EVERY == 0 else pytest.mark.slow) for i, c in enumerate(CASES)]
Verdict = tuple[object, ...]


@cache
def read(case: Path) -> tuple[list[Source], list[Event]]:
    found = collect.collect([str(case / "logs")])
    reads = reading.read_all(found.containers, reading.Ways((), 1))
    return [s for r in reads for s in r.sources], [e for r in reads for e in r.events]


def verdict(sources: Sequence[Source], events: Sequence[Event], library: Library | None = None) -> Verdict:
    said = write(diagnose(align(events), sources, library or load(), {}), sources, {})["verdict"]
    assert isinstance(said, dict)
    who = said["culprit"]
    what = tuple(said[k] for k in ("outcome", "category", "pattern", "confidence", "headline"))
    return (*what, who["ranks"], who["hosts"], who["gpus"])


@pytest.mark.parametrize("case", CHOSEN)
def test_the_order_of_files_changes_nothing(case: Path) -> None:
    sources, events = read(case)
    files: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        files[e.where.source].append(e)
    rng = random.Random(case.name)
    order = rng.sample(sorted(files), len(files))
    shuffled = rng.sample(sources, len(sources))
    assert verdict(shuffled, [e for f in order for e in files[f]]) == verdict(sources, events)


@pytest.mark.parametrize("case", CHOSEN)
def test_the_order_of_events_on_the_timeline_changes_nothing(case: Path) -> None:
    sources, events = read(case)
    timeline = align(events)
    shuffled = random.Random(case.name).sample(timeline.events, len(timeline.events))
    said = [
        write(diagnose(replace(timeline, events=tuple(es)), sources, load(), {}), sources, {})["verdict"]
        for es in (timeline.events, shuffled)
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize("case", CHOSEN)
def test_the_names_of_files_change_nothing(case: Path) -> None:
    sources, events = read(case)
    new = renamed(s.path for s in sources)
    files = sorted((replace(s, path=new[s.path]) for s in sources), key=lambda s: s.path)
    place = {s.path: i for i, s in enumerate(files)}
    moved = [e._replace(where=e.where._replace(source=new[e.where.source])) for e in events]
    moved.sort(key=lambda e: place[e.where.source])
    said = verdict(files, moved)
    old = str(said[4])
    for path, name in new.items():
        old = old.replace(name, path)  # some sentence names a file
    assert (*said[:4], old, *said[5:]) == verdict(sources, events)


@pytest.mark.parametrize("case", CHOSEN)
def test_the_order_of_the_library_changes_nothing(case: Path) -> None:
    sources, events = read(case)
    names = random.Random(case.name).sample(sorted(load().patterns), len(load().patterns))
    library = Library({name: load()[name] for name in names}, load().digest)
    assert verdict(sources, events, library) == verdict(sources, events)


def test_a_library_is_the_same_from_folders_of_other_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern files, each family in a folder whose name reverses their order."""
    families = sorted(p for p in (ROOT / "patterns").iterdir() if p.is_dir())
    for n, family in enumerate(reversed(families)):
        for file in family.rglob("*.yaml"):
            copy = tmp_path / f"{n:03d}" / file.relative_to(family.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    monkeypatch.setattr("postmortem.system.resources.folder", lambda name: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from postmortem.library import read as library_read

    moved = library_read._load.__wrapped__(()).patterns
    assert list(moved) == list(load().patterns)
    assert all(replace(p, path=load()[name].path) == load()[name] for name, p in moved.items())


def parts(path: str) -> list[str]:
    """The folders and the file of a path; a member of an archive stands below it."""
    return path.replace("!/", "/!").split("/")


def renamed(paths: Iterable[str]) -> dict[str, str]:
    """Other names in the reversed order, of the same folders and endings; streams of one process stay beside
    each other."""
    children: dict[str, set[str]] = defaultdict(set)
    paths = list(paths)
    for path in paths:
        names = parts(path)
        for i, name in enumerate(names):
            children["/".join(names[:i])].add(name)
    new: dict[tuple[str, str], str] = {}
    for parent, names_here in children.items():
        stems = sorted({stem(name) for name in names_here}, reverse=True)
        for name in names_here:
            n = stems.index(stem(name))
            letters = "".join(chr(ord("a") + n // 26**k % 26) for k in (2, 1, 0))
            mark = "!" if name.startswith("!") else ""
            new[parent, name] = f"{mark}{letters}-{name.removeprefix('!')}"
    out = {}
    for path in paths:
        names = parts(path)
        moved = [new["/".join(names[:i]), name] for i, name in enumerate(names)]
        out[path] = "/".join(moved).replace("/!", "!/")
    return out
