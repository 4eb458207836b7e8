"""patterns/causes/*.yaml -> `Symptom`: its usual causes with their signs, and how each is checked and mended.

    symptom: killed
    when: [[{fact: category, is: external-signal}]]        the verdicts that it is a symptom of
    means: [{fact: signal, is: SIGTERM, says: …}]          what a signal or a code is, in a sentence
    causes:
      - id: host-memory
        weight: often                                      before any sign
        signs: [{fact: affected, is: one, effect: 1, says: one rank alone was killed}]
        check: dmesg -T | grep -i 'killed process'         a command; `look` is a place to look at
        expect: …
        fix: …
        sources: […]

A sign names a fact of `facts.NAMES` and a value, or a form of lines.yaml (`fact: line`) or places.yaml; no code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from postmortem.causes import facts
from postmortem.causes.facts import Facts, Known
from postmortem.model.vocabulary import CAUSES
from postmortem.system import cache, forms, resources

WEIGHTS = {"often": 3, "sometimes": 2, "rarely": 1}
EXCLUDES = "excludes"
LARGEST = 5  # an effect
MANDATORY = ("id", "title", "weight", "expect", "fix", "sources")
Ids = Set[str]
_SIGN = {"fact", "is", "at-least", "at-most", "effect", "says", "replay"}
_CAUSE = {*MANDATORY, "signs", "check", "look", "costly", "replay"}


@dataclass(frozen=True, slots=True)
class Sign:
    """A fact with one of some values, or within bounds. `effect` is added to a cause's weight; None excludes it."""

    fact: str
    values: tuple[facts.Value, ...] = ()
    least: float | None = None
    most: float | None = None
    effect: int | None = 0
    says: str = ""
    replay: str = ""  # the scenario of the cause where this is its sign

    def seen(self, known: Facts) -> Known | None:
        """The first value of the fact that fits."""
        if self.fact in ("line", "place"):
            look = known.line if self.fact == "line" else known.place
            return next(filter(None, (look(str(name)) for name in self.values)), None)
        return next((k for k in known[self.fact] if self._fits(k.value)), None)

    def _fits(self, value: facts.Value) -> bool:
        if self.least is not None or self.most is not None:
            low, high = self.least, self.most
            return not isinstance(value, str) and (low is None or value >= low) and (high is None or value <= high)
        return not self.values or value in self.values


@dataclass(frozen=True, slots=True)
class Cause:
    """One usual cause of a symptom."""

    id: str
    title: str
    weight: int
    check: str
    command: bool  # whether `check` is one
    expect: str
    fix: str
    sources: tuple[str, ...]
    signs: tuple[Sign, ...] = ()
    costly: bool = False  # shown though it is unlikely, as missing it costs much
    replay: str = ""


@dataclass(frozen=True, slots=True)
class Symptom:
    """One file: the conditions, each a conjunction of signs, and the causes, in the order of their frequency."""

    id: str
    title: str
    when: tuple[tuple[Sign, ...], ...]
    causes: tuple[Cause, ...]
    means: tuple[Sign, ...] = ()  # a sentence on a signal or a code: the first that holds

    def depth(self, known: Facts) -> int:
        """The length of the longest of its conditions that holds; 0 where none does."""
        return max((len(all_) for all_ in self.when if all(sign.seen(known) for sign in all_)), default=0)


@lru_cache(maxsize=1)
def symptoms() -> tuple[Symptom, ...]:
    """All symptoms, in the order of their files' names."""
    files = sorted((resources.folder("patterns") / "causes").glob("*.yaml"))
    content = [file.read_bytes() for file in files]
    place = cache.named("causes", hashlib.sha256(b"\0".join(content)), "causes/rows.py")
    found = cache.fetch_rows(place)
    if found is None:
        found = [*map(_read, content)]
        cache.store_rows(place, found)
    return tuple(_symptom(row) for row in found)


def _read(content: bytes) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def _symptom(row: dict[str, Any]) -> Symptom:
    when = tuple(tuple(map(sign, signs)) for signs in row["when"])
    means = tuple(map(sign, row.get("means", ())))
    return Symptom(row["symptom"], row["title"], when, tuple(map(_cause, row["causes"])), means)


def _cause(row: dict[str, Any]) -> Cause:
    return Cause(
        row["id"],
        row["title"],
        WEIGHTS[row["weight"]],
        row.get("check") or row["look"],
        "check" in row,
        row["expect"],
        row["fix"],
        tuple(row["sources"]),
        tuple(map(sign, row.get("signs", ()))),
        bool(row.get("costly")),
        row.get("replay", ""),
    )


def sign(row: dict[str, Any]) -> Sign:
    value = row.get("is", ())
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    effect = row.get("effect", 0)
    return Sign(row["fact"], values, row.get("at-least"), row.get("at-most"),
                None if effect == EXCLUDES else effect, row.get("says", ""), row.get("replay", ""))  # fmt: skip


# ── lint ────────────────────────────────────────────────────────────────────────────────────────────────────


def remarks(patterns: Ids, scenarios: Ids) -> Iterator[str]:
    """A sentence for each mistake in the files of causes; `patterns` and `scenarios` are the ids that exist."""
    for file in sorted((resources.folder("patterns") / "causes").glob("*.yaml")):
        row = _read(file.read_bytes())
        name = f"causes/{file.name}"
        if row.get("symptom") != file.stem:
            yield f"{name}: the symptom is the name of the file, and not {row.get('symptom')!r}"
        for sign in (sign for signs in row["when"] for sign in signs):
            yield from (f"{name}: when: {text}" for text in _of_sign(sign, patterns, {"fact", "is"}))
        for sign in row.get("means", ()):
            yield from (f"{name}: means: {text}" for text in _of_sign(sign, patterns, _SIGN - {"effect"}))
        ids = [cause.get("id") for cause in row["causes"]]
        yield from (f"{name}: {i} is listed twice" for i in sorted({i for i in ids if ids.count(i) > 1}))
        for cause in row["causes"]:
            yield from (f"{name}: {cause.get('id')}: {text}" for text in _of_cause(cause, patterns, scenarios))


def _of_cause(row: dict[str, Any], patterns: Ids, scenarios: Ids) -> Iterator[str]:
    yield from (f"`{key}` is missing" for key in MANDATORY if not row.get(key))
    yield from (f"`{key}` is not a key of a cause" for key in sorted(set(row) - _CAUSE))
    if row.get("id") not in CAUSES:
        yield "the id is not in CAUSES in model/vocabulary.py"
    if row.get("weight") not in WEIGHTS:
        yield f"the weight is one of {', '.join(WEIGHTS)}"
    if ("check" in row) == ("look" in row):
        yield "either `check`, a command, or `look`, a place, decides it"
    if any(not str(source).startswith("https://") for source in row.get("sources", ())):
        yield "a source is an address that begins with https://"
    for replay in filter(None, (each.get("replay") for each in (row, *row.get("signs", ())))):
        if replay not in scenarios:
            yield f"{replay} is not a scenario"
    for sign in row.get("signs", ()):
        yield from _of_sign(sign, patterns, _SIGN)
        effect = sign.get("effect")
        if effect != EXCLUDES and not (isinstance(effect, int) and 0 < abs(effect) <= LARGEST):
            yield f"the effect of a sign is 1 to {LARGEST}, with its sign, or `{EXCLUDES}`"
        if not sign.get("says") and effect != EXCLUDES:
            yield f"the sign {sign.get('fact')} has no `says`"


def _of_sign(row: dict[str, Any], patterns: Ids, keys: set[str]) -> Iterator[str]:
    yield from (f"`{key}` is not a key of a sign" for key in sorted(set(row) - keys))
    own = sign(row)
    yield from (f"{name} is not a fact" for name in facts.names([own.fact]))
    known: dict[str, Ids] = {"pattern": patterns, "verdict": patterns}
    known |= {name: set(forms.rows(f"causes/{name}s")) for name in ("line", "place")}
    if own.fact in known:
        yield from (f"{value} is not a {own.fact}" for value in own.values if value not in known[own.fact])
