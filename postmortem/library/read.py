"""patterns/**/*.yaml -> Pattern, checked; and Pattern -> Signature, what the scanner looks for.

    id: kernel-oom-killed-process
    regex: 'Killed process (?P<pid>\\d+) \\((?P<comm>[^)]*)\\)'

A pattern file is data only: no anchors, no tags, no code.
Each error names the file and the line of the key at fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from postmortem.errors import PatternError
from postmortem.library import cache, files
from postmortem.library.files import MAX_FILE
from postmortem.model import Action, Example, Explains, Pattern, ReadsAs, Variant
from postmortem.model.vocabulary import (
    ACTIONS,
    AT_HAND,
    CATEGORIES,
    CONDITIONS,
    ENTITIES,
    JOINS,
    LASTS,
    ROLES,
    SEVERITIES,
    STATUSES,
    STRENGTHS,
    SURVIVALS,
    TELLS,
    TOPICS,
)
from postmortem.system import resources

MAX_REGEX = 2000  # characters: compiling a longer one may take longer than the scan
KEYS = {
    "id", "title", "status", "category", "role", "severity", "sources", "gate", "regex", "on", "frame",
    "derived", "entity", "explains", "since", "variants", "what", "why", "actions", "not_to_be_confused_with",
    "replay", "references", "examples", "strength", "tells", "generic", "survivable", "restored_by",
    "if_last", "cause_if", "cause_if_near", "reads_as", "spreads", "says_why", "bears_out", "names_ranks_of",
    "stands_for", "headline", "topic", "tried_again",
}  # fmt: skip
EVENT_KINDS = ("", "exception", "crash", "exit", "cut", "fault", "warned")
LINE = "line"  # a variant that reads every line, in a file that reads events otherwise


@dataclass(frozen=True, slots=True)
class Signature:
    """What the scanner looks for. `regex` None: a block opener of a parser, whose gate is enough.

    `after` is how many bytes of following lines the hit shall bring along.
    """

    id: str
    gate: str
    regex: str | None = None
    after: int = 2048
    before: int = 2048
    path: str = ""  # of a file that is not shipped: nobody has seen how long its regex takes


@dataclass(frozen=True, eq=False)
class Library:
    """All patterns by id, and the hash of their files' bytes.
    Equal to itself only, so that what is made of it can be kept."""

    patterns: Mapping[str, Pattern]
    digest: str

    def __getitem__(self, pattern_id: str) -> Pattern:
        return self.patterns[pattern_id]

    def get(self, pattern_id: str | None) -> Pattern | None:
        return self.patterns.get(pattern_id) if pattern_id else None

    def telling(self, word: str) -> frozenset[str]:
        """Ids of the patterns that tell this, a word of `model.TELLS`."""
        return self._telling.get(word, frozenset())

    @cached_property
    def _telling(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for p in self.patterns.values():
            for word in p.tells:
                found.setdefault(word, set()).add(p.id)
        return {word: frozenset(ids) for word, ids in found.items()}

    def signatures(self) -> list[Signature]:
        """One signature for each wording that a line can show. Several may share a pattern's id."""
        return [
            Signature(p.id, v.gate or v.regex, v.regex, path="" if shipped(p) else p.path)
            for p in self.patterns.values()
            if not p.derived
            for v in p.variants
            if not v.on
        ]


def shipped(pattern: Pattern) -> bool:
    """Whether a pattern is one of ours, linted and tried on hostile lines."""
    return pattern.path.startswith(_OURS)


_OURS = f"{resources.folder('patterns')}/"


def load(*extra: Path) -> Library:
    """Read the shipped library and the folders in `extra`,
    whose patterns win over shipped ones of the same id."""
    return _load(tuple(str(p) for p in extra))


@lru_cache(maxsize=8)
def _load(extra: tuple[str, ...]) -> Library:
    roots = (resources.folder("patterns"), *map(Path, extra))
    post = cache.signpost(files.stamp(root) for root in roots)
    found = cache.follow(post) if post else None
    return Library(*found) if found else _read(roots, post)


def _read(roots: Iterable[Path], post: Path | None) -> Library:
    """Read each file, parse them if nobody has done so yet, and put up the signpost for the next start."""
    digest, content = hashlib.sha256(), hashlib.sha256()
    found: list[tuple[Path, bytes]] = []
    for root in roots:
        for path, data in files.found(root):
            found.append((path, data))
            digest.update(path.name.encode() + b"\0" + data)
            content.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    place = cache.place(content)
    patterns = cache.fetch(place)
    if patterns is None:
        # the last of an id wins
        read = {pattern.id: pattern for pattern in (parse(data, path) for path, data in found)}
        patterns = dict(sorted(read.items()))
        cache.store(place, patterns)
    library = Library(patterns, digest.hexdigest()[:16])
    if post:
        cache.point(post, place, library.digest)
    return library


def parse(data: bytes, path: Path) -> Pattern:
    """Read one pattern file. Raise PatternError with file and line on anything that is not a pattern."""
    reader = _Reader(data, path)
    pattern = reader.pattern()
    if not shipped(pattern):
        reader.compile(pattern)
    return pattern


def _on(entry: Any) -> Any:
    """YAML 1.1 reads a bare `on` as a truth value."""
    if isinstance(entry, dict) and True in entry:
        entry["on"] = entry.pop(True)
    return entry


class _Reader:
    """One file's YAML with the line of every top-level key, so that errors can point at it."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.path = path
        self.lines: dict[str, int] = {}
        self.doc = self._compose(data)

    def fail(self, message: str, key: str = "") -> PatternError:
        line = self.lines.get(key, 1)
        return PatternError(
            f"{self.path}:{line}: {message}", "see patterns/README.md, or run `postmortem patterns lint`"
        )

    def _compose(self, data: bytes) -> dict[str, Any]:
        import yaml

        if len(data) > MAX_FILE:
            raise self.fail("larger than 1 MiB")
        try:
            if files.refers(data):
                raise self.fail("anchors and aliases are not allowed")
            doc, self.lines = files.composed(data)
        except yaml.YAMLError as e:
            mark = getattr(e, "problem_mark", None)
            where = f"{self.path}:{mark.line + 1}" if mark else f"{self.path}:1"
            said = " ".join(str(getattr(e, "problem", e)).split())
            hint = "quote regular expressions with '…'"
            raise PatternError(f"{where}: not YAML: {said}", hint) from None
        except (ValueError, RecursionError) as e:
            raise self.fail(f"not YAML: {e}") from None
        if not isinstance(doc, dict):
            raise self.fail("a pattern file is one mapping")
        return _on(doc)  # type: ignore[no-any-return]

    def text(self, key: str, default: str | None = None) -> str:
        value = self.doc.get(key, default)
        if value is None:
            raise self.fail(f"`{key}` is missing")
        if not isinstance(value, str):
            raise self.fail(f"`{key}` must be text", key)
        return value.strip()

    def word(self, key: str, allowed: Iterable[str], default: str | None = None) -> Any:
        value = self.text(key, default)
        if value not in allowed:
            raise self.fail(f"`{key}: {value}` is not one of {', '.join(a or '(none)' for a in allowed)}", key)
        return value

    def items(self, key: str) -> list[Any]:
        value = self.doc.get(key) or []
        if not isinstance(value, list):
            raise self.fail(f"`{key}` must be a list", key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        if any(not isinstance(item, str) for item in self.items(key)):
            raise self.fail(f"`{key}` must be a list of texts", key)
        return tuple(self.items(key))

    def mapping(self, value: Any, key: str, known: set[str]) -> dict[str, Any]:
        if not isinstance(value, dict) or set(value) - known:
            raise self.fail(f"an entry of `{key}` must have only {', '.join(sorted(known))}", key)
        return value

    def variants(self) -> tuple[Variant, ...]:
        on = self.word("on", EVENT_KINDS, "")
        first = [self.doc] if "regex" in self.doc else []
        rest = [self.mapping(_on(v), "variants", {"regex", "gate", "since", "on"}) for v in self.items("variants")]
        out = []
        for entry in first + rest:
            if not isinstance(entry.get("regex"), str):
                raise self.fail("each variant needs a `regex`", "variants")
            if not isinstance(entry.get("gate", ""), str | None):
                raise self.fail("`gate` must be text", "gate" if entry is self.doc else "variants")
            since = entry.get("since") or {}
            if not isinstance(since, dict):
                raise self.fail("`since` must be a mapping", "since")
            kind = entry.get("on", on)
            if kind not in (*EVENT_KINDS, LINE):
                raise self.fail(f"`on: {kind}` is no kind of event", "variants")
            versions = {str(k): str(v) for k, v in since.items()}
            kind = "" if kind == LINE else kind
            out.append(Variant(entry["regex"], entry.get("gate"), versions, kind))
        return tuple(out)

    def explains(self) -> tuple[Explains, ...]:
        out = []
        for entry in self.items("explains"):
            e = self.mapping(entry, "explains", {"id", "join", "within_s"})
            if e.get("join") not in JOINS:
                raise self.fail(f"`join: {e.get('join')}` is not one of {', '.join(JOINS)}", "explains")
            within = e.get("within_s")
            number = isinstance(within, int | float) and not isinstance(within, bool)
            if within is not None and not (number and 0 <= within <= 1e9):
                raise self.fail(f"`within_s: {within}` is no number of seconds", "explains")
            out.append(Explains(str(e.get("id")), e["join"], within))
        return tuple(out)

    def words(self, key: str, allowed: Iterable[str]) -> tuple[str, ...]:
        """One word of a vocabulary, or a list of them."""
        value = self.doc.get(key) or []
        found = [value] if isinstance(value, str) else self.items(key)
        for word in found:
            if word not in allowed:
                raise self.fail(f"`{key}: {word}` is not one of {', '.join(allowed)}", key)
        return tuple(found)

    def flag(self, key: str) -> bool:
        value = self.doc.get(key, False)
        if not isinstance(value, bool):
            raise self.fail(f"`{key}` must be true or false", key)
        return value

    def reads_as(self) -> ReadsAs | None:
        if self.doc.get("reads_as") is None:
            return None
        entry = self.mapping(self.doc["reads_as"], "reads_as", {"id", "before"})
        before = entry.get("before") or {}
        if not isinstance(before, dict):
            raise self.fail("`before` must be a mapping such as {torch: '2.5'}", "reads_as")
        return ReadsAs(str(entry.get("id")), {str(k): str(v) for k, v in before.items()})

    def actions(self) -> tuple[Action, ...]:
        out = []
        for entry in self.items("actions"):
            a = self.mapping(entry, "actions", {"kind", "text", "unless"})
            if a.get("kind") not in ACTIONS:
                raise self.fail(f"`kind: {a.get('kind')}` is not one of {', '.join(ACTIONS)}", "actions")
            unless = str(a.get("unless") or "")
            if unless and unless not in AT_HAND:
                raise self.fail(f"`unless: {unless}` is not one of {', '.join(AT_HAND)}", "actions")
            out.append(Action(a["kind"], str(a.get("text", "")).strip(), unless))
        return tuple(out)

    def examples(self, which: str) -> tuple[Example, ...]:
        block = self.doc.get("examples") or {}
        entries = self.mapping(block, "examples", {"match", "no_match"}).get(which) or []
        if not isinstance(entries, list):
            raise self.fail(f"`{which}` must be a list", "examples")
        out = []
        for entry in entries:
            e = self.mapping(entry, "examples", {"text", "captures", "from", "because", "incident", "source"})
            captured = e.get("captures") or {}
            if not isinstance(captured, dict):
                raise self.fail("`captures` must be a mapping such as {pid: '12'}", "examples")
            captures = {str(k): str(v) for k, v in captured.items()}
            out.append(
                Example(
                    text=str(e.get("text", "")),
                    captures=captures,
                    origin=str(e.get("from", "")),
                    because=str(e.get("because", "")),
                    incident=str(e.get("incident", "")),
                    source=str(e.get("source", "")),
                )
            )
        return tuple(out)

    def compile(self, pattern: Pattern) -> None:
        """Try the expressions of a pattern that is not shipped."""
        import regex

        found = [("variants" if i else "regex", v.regex) for i, v in enumerate(pattern.variants)]
        found += [("frame", pattern.frame), ("cause_if_near", pattern.cause_if_near)]
        for key, expression in found:
            if len(expression) > MAX_REGEX:
                raise self.fail(f"`{key}` is longer than {MAX_REGEX:,} characters", key)
            try:
                regex.compile(expression)
            except (regex.error, RecursionError, OverflowError, ValueError) as e:
                raise self.fail(f"`{key}` is no regular expression: {e}", key) from None

    def pattern(self) -> Pattern:
        unknown = set(self.doc) - KEYS
        if unknown:
            key = sorted(map(str, unknown))[0]
            raise self.fail(f"unknown key `{key}`", key)
        category = self.doc.get("category")
        if category is not None and category not in CATEGORIES:
            raise self.fail(f"`category: {category}` is not one of {', '.join(CATEGORIES)}", "category")
        variants = self.variants()
        derived = bool(self.doc.get("derived", False))
        if not variants and not derived:
            raise self.fail("`regex` is missing")
        return Pattern(
            id=self.text("id"),
            family=self.path.parent.name,
            title=self.text("title"),
            status=self.word("status", STATUSES, "draft"),
            category=category,
            role=self.word("role", ROLES),
            severity=self.word("severity", SEVERITIES, "error"),
            entity=self.word("entity", ENTITIES, "self"),
            what=self.text("what", ""),
            sources=self.texts("sources"),
            variants=variants,
            on=self.word("on", EVENT_KINDS, ""),
            frame=self.text("frame", ""),
            derived=derived,
            strength=self.word("strength", STRENGTHS, "stated"),
            tells=self.words("tells", TELLS),
            generic=self.flag("generic"),
            tried_again=self.text("tried_again", ""),
            topic=self.word("topic", ("", *TOPICS), ""),
            survivable=self.word("survivable", ("", *SURVIVALS), ""),
            restored_by=self.text("restored_by", ""),
            if_last=self.word("if_last", ("", *LASTS), ""),
            cause_if=self.words("cause_if", CONDITIONS),
            cause_if_near=self.text("cause_if_near", ""),
            reads_as=self.reads_as(),
            spreads=self.flag("spreads"),
            says_why=self.flag("says_why"),
            bears_out=self.words("bears_out", CATEGORIES),
            names_ranks_of=self.word("names_ranks_of", ("", *CATEGORIES), ""),
            stands_for=self.word("stands_for", ("", *CATEGORIES), ""),
            headline=self.text("headline", ""),
            explains=self.explains(),
            why=self.text("why", ""),
            actions=self.actions(),
            not_to_be_confused_with=self.text("not_to_be_confused_with", ""),
            replay=self.text("replay", ""),
            references=self.texts("references"),
            matches=self.examples("match"),
            no_matches=self.examples("no_match"),
            path=str(self.path),
        )
