"""Pattern files -> remarks, each with its remedy.

    patterns/kernel/kernel-oom.yaml: no example under `no_match` [examples-both-ways]
        add the nearest line that is something else, with `because`

A lint is a function that yields the defects of one pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import regex

from postmortem.errors import PatternError
from postmortem.library import Library, Signature, parse, regexes
from postmortem.library.files import found
from postmortem.model import Pattern, Variant
from postmortem.model.vocabulary import SURVIVED_BY
from postmortem.scan import Engine, gate_of
from postmortem.scan.cost import cost, healthy
from postmortem.system import resources
from postmortem.workshop.catalogue import TEXTS, require

MAX_REGEX = 2000
MIN_LETTERS = 5
MAX_CALLBACKS_PER_MIB = 20  # from here on it shows in the run time; a MiB is some 5,000 lines
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

Check = Callable[[Pattern, Library], Iterator[str]]


class Remark(NamedTuple):
    """A defect of one pattern file."""

    path: str
    lint: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message} [{self.lint}]\n    {self.fix}"


class Lint(NamedTuple):
    name: str
    fix: str
    check: Check


def run(folders: tuple[Path, ...] = (), ids: tuple[str, ...] = ()) -> list[Remark]:
    """Return remarks on the shipped library or, if `folders` are given, on those; `ids` selects patterns."""
    remarks: list[Remark] = []
    library = _read((resources.folder("patterns"), *folders), remarks)
    require(library, ids)
    roots = [f.resolve() for f in folders]
    for pattern in library.patterns.values():
        theirs = not roots or any(Path(pattern.path).resolve().is_relative_to(r) for r in roots)
        if theirs and (not ids or pattern.id in ids):
            remarks += check(pattern, library)
    return sorted([*remarks, *_of_causes(library)]) if not (folders or ids) else sorted(remarks)


def _of_causes(library: Library) -> Iterator[Remark]:
    """Remarks on the files of usual causes, which are no patterns."""
    from postmortem.causes import rows
    from postmortem.replay.catalogue import BY_ID

    fix = "postmortem/causes/rows.py describes the keys, facts.py the facts"
    for text in rows.remarks(set(library.patterns), set(BY_ID)):
        path, _, message = text.partition(": ")
        yield Remark(f"patterns/{path}", "causes", message, fix)


def check(pattern: Pattern, library: Library) -> list[Remark]:
    """Run every lint over one pattern."""
    return [
        Remark(pattern.path, lint.name, message, lint.fix) for lint in LINTS for message in lint.check(pattern, library)
    ]


def _read(roots: tuple[Path, ...], remarks: list[Remark]) -> Library:
    """Load every pattern file that can be loaded; the others become remarks."""
    patterns: dict[str, Pattern] = {}
    for root in roots:
        files: list[tuple[Path, bytes]] = []
        with _remarked(remarks):
            files += found(root)
        for path, data in files:
            with _remarked(remarks):
                pattern = parse(data, path)
                patterns[pattern.id] = pattern
    return Library(dict(sorted(patterns.items())), "lint")


@contextmanager
def _remarked(remarks: list[Remark]) -> Iterator[None]:
    """Turn an error of the block into a remark."""
    try:
        yield
    except PatternError as e:
        place, _, message = e.message.partition(": ")
        remarks.append(Remark(place, "loads", message, e.hint))


def id_is_the_file_name(p: Pattern, library: Library) -> Iterator[str]:
    if p.id != Path(p.path).stem:
        yield f"the id {p.id} is not the file's name"
    if not NAME.fullmatch(p.id):
        yield f"the id {p.id} is not small letters, digits and dashes"


def folder_is_the_family(p: Pattern, library: Library) -> Iterator[str]:
    folder = Path(p.path).parent
    is_root = any(other.path.startswith(f"{folder}/{other.family}/") for other in library.patterns.values())
    if is_root or not NAME.fullmatch(folder.name):
        yield f"{folder.name} is not a family"


def has_what_and_why(p: Pattern, library: Library) -> Iterator[str]:
    for key in ("title", "what", "why"):
        if not getattr(p, key):
            yield f"`{key}` is empty"


def cause_has_a_category(p: Pattern, library: Library) -> Iterator[str]:
    if p.role == "cause" and p.category is None:
        yield "a cause without a category"


def cause_has_an_action(p: Pattern, library: Library) -> Iterator[str]:
    if p.role == "cause" and not any(a.text for a in p.actions):
        yield "a cause without an action"


def explains_what_exists(p: Pattern, library: Library) -> Iterator[str]:
    for link in p.explains:
        if link.id not in library.patterns:
            yield f"explains {link.id}, which does not exist"
        if link.id == p.id:
            yield "explains itself"


def is_survived_by_what_exists(p: Pattern, library: Library) -> Iterator[str]:
    for word in p.survived_by:
        if word not in SURVIVED_BY and word not in library.patterns:
            yield f"survived_by {word}, which is neither a pattern nor one of {', '.join(SURVIVED_BY)}"


def replay_exists(p: Pattern, library: Library) -> Iterator[str]:
    from postmortem.replay.catalogue import BY_ID

    if p.replay and p.replay not in BY_ID:
        yield f"replay {p.replay} is not a scenario"


def examples_both_ways(p: Pattern, library: Library) -> Iterator[str]:
    if not any(e.text or e.incident for e in p.matches):
        yield "no example under `match`"
    if not any(e.text or e.incident for e in p.no_matches):
        yield "no example under `no_match`"


def examples_fit_the_regex(p: Pattern, library: Library) -> Iterator[str]:
    groups = {g for v in p.variants for g in re.findall(r"\(\?P<(\w+)>", v.regex)}
    for number, example in enumerate(p.matches):
        for name in example.captures:
            if groups and name not in groups and not any(v.on for v in p.variants):
                yield f"match[{number}] captures {name}, which is not a group of the regex"


def stable_has_a_source(p: Pattern, library: Library) -> Iterator[str]:
    if p.status == "stable" and not p.references and not any(e.origin or e.incident for e in p.matches):
        yield "stable without a source"


def _wordings(p: Pattern) -> Iterator[tuple[str, Variant]]:
    for number, variant in enumerate(p.variants):
        yield ("regex" if len(p.variants) == 1 else f"wording {number}"), variant


def _compiled(v: Variant) -> regex.Pattern[bytes] | None:
    try:
        return regex.compile(v.regex.encode())
    except regex.error:
        return None


def _gates(p: Pattern) -> Iterator[tuple[str, Variant, Signature]]:
    """Yield the signature of each wording that the scanner takes; gate-compiles reports the others."""
    for name, v in _wordings(p):
        signature = Signature(p.id, v.gate or v.regex, v.regex)
        if not v.on and not _refusal(signature):
            yield name, v, signature


@lru_cache(maxsize=64)
def _alone(signature: Signature, prefer: str = "auto") -> Engine:
    """Return an engine for one gate, which several lints use."""
    return Engine.compile([signature], prefer=prefer, cache=False)


@lru_cache(maxsize=4096)
def _refusal(signature: Signature) -> str:
    try:
        for engine in ("auto", "re2"):
            _alone(signature, engine)
    except PatternError as e:
        return e.message
    return ""


def regex_compiles(p: Pattern, library: Library) -> Iterator[str]:
    for name, v in _wordings(p):
        try:
            if regex.compile(v.regex.encode()).search(b""):
                yield f"{name} matches an empty line"
        except regex.error as e:
            yield f"{name}: {e}"
        if len(v.regex) > MAX_REGEX:
            yield f"{name} has {len(v.regex)} characters"


def regex_is_linear(p: Pattern, library: Library) -> Iterator[str]:
    texts = [line for e in p.matches for line in e.text.splitlines()[:3]]
    for name, v in _wordings(p):
        if _compiled(v) and (growth := regexes.slowest(v.regex, texts)).line:
            spent = f"{growth.seconds * 1e3:.0f} ms on 16 KiB of {growth.line!r}"
            yield f"{name}: a line ten times as long takes {growth.ratio:.0f} times as long ({spent})"


def gate_compiles(p: Pattern, library: Library) -> Iterator[str]:
    for name, v in _wordings(p):
        if not v.on and (refusal := _refusal(Signature(p.id, v.gate or v.regex, v.regex))):
            yield f"{name}: {refusal}"


def gate_lets_the_examples_through(p: Pattern, library: Library) -> Iterator[str]:
    lines = [line.encode() for e in p.matches for line in e.text.splitlines()]
    for name, v, signature in _gates(p):
        compiled = _compiled(v)
        if not v.gate or not compiled:
            continue
        if any(compiled.search(line) and not _alone(signature).find(line) for line in lines):
            yield f"{name}: an example passes the regex and not the gate"


def gate_has_a_literal(p: Pattern, library: Library) -> Iterator[str]:
    for name, _, signature in _gates(p):
        literal = regexes.certain_literal(gate_of(signature).decode())
        called = "()" in literal or " -" in literal  # `what():` and `kill -9` are no words of prose
        if regexes.letters(literal) < MIN_LETTERS - called:
            yield f"{name}: the longest text that is in every match is {literal!r}"


def gate_is_cheap(p: Pattern, library: Library) -> Iterator[str]:
    for name, _, signature in _gates(p):
        if (rate := cost(_alone(signature), healthy_corpus())) > MAX_CALLBACKS_PER_MIB:
            yield f"{name}: {rate:.0f} callbacks for each MiB of healthy logs"


@lru_cache(maxsize=1)
def healthy_corpus() -> bytes:
    """Return the output of healthy jobs, and in a checkout the logs of the healthy samples."""
    files = sorted((resources.PACKAGE.parent / "sample_logs").glob("*healthy*/logs/**/*"))
    return healthy(1 << 20) + b"".join(f.read_bytes() for f in files if f.is_file())[: 8 << 20]


def regex_is_its_own(p: Pattern, library: Library) -> Iterator[str]:
    own = {(v.regex, v.on) for v in p.variants}
    for other in library.patterns.values():
        apart = p.sources and other.sources and set(p.sources).isdisjoint(other.sources)
        if other.id != p.id and not apart and own & {(v.regex, v.on) for v in other.variants}:
            yield f"has the regex of {other.id}"


CHECKS: tuple[Check, ...] = (
    id_is_the_file_name, folder_is_the_family, has_what_and_why, cause_has_a_category,
    cause_has_an_action, explains_what_exists, is_survived_by_what_exists, replay_exists, examples_both_ways,
    examples_fit_the_regex, stable_has_a_source, regex_compiles, regex_is_linear,
    gate_compiles, gate_lets_the_examples_through, gate_has_a_literal, gate_is_cheap,
    regex_is_its_own,
)  # fmt: skip
_NAMES = [check.__name__.replace("_", "-") for check in CHECKS]
LINTS = [Lint(name, TEXTS["fix"][name], check) for name, check in zip(_NAMES, CHECKS, strict=True)]
