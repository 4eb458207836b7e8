"""Only the content of the logs decides a verdict: not the order of files or patterns, nor the names of files;
and lines of kernels, schedulers and Kubernetes beside a healthy log make no failure."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ROOT, SAMPLES
from postmortem import input as collect
from postmortem import reading
from postmortem.align import Timeline, align
from postmortem.analyze import analyze
from postmortem.diagnose import diagnose
from postmortem.diagnose.same import stem
from postmortem.input import sniff
from postmortem.library import Library, load
from postmortem.model import Event, Source
from postmortem.model.details import OF_KIND
from postmortem.runs import folders
from postmortem.say.document import write

SYNTHETIC = ROOT / "tests" / "incidents" / "synthetic"
CASES = sorted(p.parent for folder in (SAMPLES, SYNTHETIC) for p in folder.glob("*/truth.json"))
EVERY = len(CASES) // 12 + 1
CHOSEN = [pytest.param(c, id=c.name, marks=() if i % EVERY == 0 else pytest.mark.slow) for i, c in enumerate(CASES)]
Verdict = tuple[object, ...]


def read(case: Path) -> tuple[list[Source], list[Event]]:
    found = collect.collect([str(case / "logs")])
    reads = reading.read_all(found.containers, reading.Ways((), 1))
    return [s for r in reads for s in r.sources], [e for r in reads for e in r.events]


def of_timeline(timeline: Timeline, sources: Sequence[Source], library: Library | None = None) -> Verdict:
    found = write(diagnose(timeline, sources, library or load(), {}), sources, {})["verdict"]
    assert isinstance(found, dict)
    who = found["culprit"]
    decided = tuple(found[k] for k in ("outcome", "category", "pattern", "confidence", "headline"))
    return (*decided, who["ranks"], who["hosts"], who["gpus"])


def verdict(sources: Sequence[Source], events: Sequence[Event], library: Library | None = None) -> Verdict:
    return of_timeline(align(events, folders.split(events, sources)), sources, library)


@pytest.mark.parametrize("case", CHOSEN)
def test_neither_order_nor_names_decide(case: Path) -> None:
    sources, events = read(case)
    others = (e for e in events if e.kind != "pattern")
    assert {e.kind: unknown for e in others if (unknown := e.fields.keys() - OF_KIND[e.kind])} == {}
    expected, rng = verdict(sources, events), random.Random(case.name)
    files: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        files[e.where.source].append(e)
    order = rng.sample(sorted(files), len(files))
    assert verdict(rng.sample(sources, len(sources)), [e for f in order for e in files[f]]) == expected, "files"
    names = rng.sample(sorted(load().patterns), len(load().patterns))
    assert verdict(sources, events, Library({n: load()[n] for n in names}, load().digest)) == expected, "library"
    timeline = align(events, folders.split(events, sources))
    shuffled = Timeline.of(rng.sample(timeline.events, len(timeline.events)), timeline.clocks, timeline.corrections)
    shuffled = replace(shuffled, jobs=timeline.jobs)
    assert of_timeline(shuffled, sources) == expected, "events"
    new = renamed(s.path for s in sources)
    moved_files = sorted((replace(s, path=new[s.path]) for s in sources), key=lambda s: s.path)
    place = {s.path: i for i, s in enumerate(moved_files)}
    moved = [e._replace(where=e.where._replace(source=new[e.where.source])) for e in events]
    found = verdict(moved_files, sorted(moved, key=lambda e: place[e.where.source]))
    headline = str(found[4])
    for path, name in new.items():
        headline = headline.replace(name, path)  # a sentence may name a file
    assert (*found[:4], headline, *found[5:]) == expected, "names of files"


def test_a_library_is_the_same_from_folders_of_other_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern files, each family in a folder whose name reverses their order."""
    families = sorted(p for p in (ROOT / "patterns").iterdir() if p.is_dir())
    for n, family in enumerate(reversed(families)):
        for file in family.rglob("*.yaml"):
            copy = tmp_path / f"{n:03d}" / file.relative_to(family.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    (tmp_path / "schema.json").write_bytes((ROOT / "patterns" / "schema.json").read_bytes())
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


HEALTHY = SAMPLES / "healthy-torchrun" / "logs"
NAMES = {"kernel": "dmesg.txt", "gpu-hardware": "dmesg.txt", "scheduler": "slurmctld.log", "kubernetes": "events.txt"}
NAMES_A_RANK = ("kernel-oom-summary", "slurm-task-out-of-memory")  # of this job, and that it was killed


def foreign() -> Iterator[tuple[str, str]]:
    """Every line of a host or a cluster that would accuse a rank or a host: file, text."""
    for pattern in load().patterns.values():
        name = NAMES.get(pattern.family)
        if name is None or pattern.derived or pattern.role not in ("cause", "symptom") or pattern.id in NAMES_A_RANK:
            continue
        for example in pattern.matches:
            text = example.text.strip("\n")
            if name == "dmesg.txt" and not text.startswith("["):
                text = f"[ 1234.500000] {text}"
            if text and sniff.kind(name, text.encode())[0] in ("kernel", "scheduler", "kubernetes"):
                yield name, f"{text}\n"


@pytest.mark.parametrize("together", [40, pytest.param(8, marks=pytest.mark.slow)])  # lines in one analysis
def test_a_job_that_finished_did_not_fail_whatever_others_state(together: int, tmp_path: Path) -> None:
    lines: dict[str, list[str]] = defaultdict(list)
    for name, text in foreign():
        lines[name].append(text)
    assert sum(map(len, lines.values())) > 150
    for name, texts in lines.items():
        for at in range(0, len(texts), together):
            folder = tmp_path / f"{name}-{at}"
            shutil.copytree(HEALTHY, folder)
            (folder / name).write_text("".join(texts[at : at + together]))
            verdict = analyze([str(folder)]).document["verdict"]
            assert verdict["outcome"] == "healthy", (verdict["headline"], texts[at : at + together])
