"""patterns/**/*.yaml -> Pattern, checked; and Pattern -> Signature, the input of the scanner.

    id: kernel-oom-killed-process
    regex: 'Killed process (?P<pid>\\d+) \\((?P<comm>[^)]*)\\)'

A pattern file is data only: no anchors, no tags, no code.
Each error names the file and the line of the key at fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from postmortem.errors import PatternError
from postmortem.library import files
from postmortem.library.files import MAX_FILE
from postmortem.model import Action, Example, Explains, Pattern, ReadsAs, Variant
from postmortem.system import lazy, resources

LINE = "line"  # in place of a kind of event: a variant that reads every line, in a file that reads events otherwise
MANDATORY = ("id", "title", "role")
OWN_FORM = {"gate", "regex", "since", "variants", "explains", "reads_as", "actions", "examples"}
_MANY = lazy.regex(r"[{,]\d{6,}[,}]")
MAX_REGEX = 2000  # characters: compiling a longer one may take longer than the scan


@dataclass(frozen=True, slots=True)
class Signature:
    """A gate and a regex for the scanner. `regex` None: a block opener of a parser, which needs a gate only.

    `before` and `after` are the bytes of lines around it that a hit includes.
    """

    id: str
    gate: str
    regex: str | None = None
    after: int = 2048
    before: int = 2048
    path: str = ""  # of a file that is not shipped: its regex was never timed


@dataclass(frozen=True, eq=False)
class Library:
    """All patterns by id, and the hash of their files' bytes. Equal to itself only: a key of caches."""

    patterns: Mapping[str, Pattern]
    digest: str

    def __getitem__(self, pattern_id: str) -> Pattern:
        return self.patterns[pattern_id]

    def get(self, pattern_id: str | None) -> Pattern | None:
        return self.patterns.get(pattern_id) if pattern_id else None

    def telling(self, word: str) -> frozenset[str]:
        """Return the ids of the patterns with this word of `vocabulary.TELLS`."""
        return self._telling.get(word, frozenset())

    @cached_property
    def _telling(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for p in self.patterns.values():
            for word in p.tells:
                found.setdefault(word, set()).add(p.id)
        return {word: frozenset(ids) for word, ids in found.items()}

    def signatures(self) -> list[Signature]:
        """Return a signature for each wording of a line. Several may share a pattern's id."""
        return [
            Signature(p.id, v.gate or v.regex, v.regex, path="" if shipped(p) else p.path)
            for p in self.patterns.values()
            if not p.derived
            for v in p.variants
            if not v.on
        ]


def shipped(pattern: Pattern) -> bool:
    """Return whether a pattern is one of ours, linted and tried on hostile lines."""
    return pattern.path.startswith(_OURS)


_OURS = f"{resources.folder('patterns')}/"


def load(*extra: Path) -> Library:
    """Read the shipped library and the folders in `extra`, which override shipped patterns of the same id."""
    return _load(tuple(str(p) for p in extra))


@lru_cache(maxsize=8)
def _load(extra: tuple[str, ...]) -> Library:
    roots = (resources.folder("patterns"), *map(Path, extra))
    post = files.signpost(files.stamp(root) for root in roots)
    found = files.follow(post) if post else None
    return Library(*found) if found else _read(roots, post)


def _read(roots: Iterable[Path], post: Path | None) -> Library:
    """Read each file, parse them if the cache lacks them, and store the signpost for the next start."""
    digest, content = hashlib.sha256(), hashlib.sha256()
    found: list[tuple[Path, bytes]] = []
    for root in roots:
        for path, data in files.found(root):
            found.append((path, data))
            digest.update(path.name.encode() + b"\0" + data)
            content.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    place = files.place(content)
    patterns = files.fetch(place)
    if patterns is None:
        # the last of an id wins
        read = {pattern.id: pattern for pattern in (parse(data, path) for path, data in found)}
        patterns = dict(sorted(read.items()))
        files.store(place, patterns)
    library = Library(patterns, digest.hexdigest()[:16])
    if post:
        files.point(post, place, library.digest)
    return library


def parse(data: bytes, path: Path) -> Pattern:
    """Read one pattern file. Raise PatternError with file and line on anything that is not a pattern."""
    reader = _Reader(data, path)
    pattern = reader.pattern()
    if not shipped(pattern):
        reader.compile(pattern)
    return pattern


@cache
def keys() -> dict[str, Any]:
    """Return the JSON schemas of all keys of a pattern file, by key."""
    schema = (resources.folder("patterns") / "schema.json").read_text(encoding="utf-8")
    return json.loads(schema)["properties"]  # type: ignore[no-any-return]


def _properties(name: str, *within: str) -> dict[str, Any]:
    """Return the schemas of an entry of key `name`."""
    schema = keys()[name]
    for step in ("", *within):
        schema = schema["properties"][step] if step else schema
        schema = schema.get("items", schema)
    return schema["properties"]  # type: ignore[no-any-return]


def _with_on(entry: Any) -> Any:
    """Repair the key `on`, which YAML 1.1 reads as a truth value."""
    if isinstance(entry, dict) and True in entry:
        entry["on"] = entry.pop(True)
    return entry


class _Reader:
    """One file's YAML with the line of every top-level key, so that errors can name it."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.path = path
        self.lines: dict[str, int] = {}
        import yaml

        if len(data) > MAX_FILE:
            raise self.fail("larger than 1 MiB")
        try:
            if files.refers(data):
                raise self.fail("anchors and aliases are not allowed")
            doc, self.lines = files.composed(data)
        except yaml.YAMLError as e:
            mark = getattr(e, "problem_mark", None)
            place = f"{self.path}:{mark.line + 1 if mark else 1}"
            problem = " ".join(str(getattr(e, "problem", e)).split())
            raise PatternError(f"{place}: not YAML: {problem}", "quote regular expressions with '…'") from None
        except (ValueError, RecursionError) as e:
            raise self.fail(f"not YAML: {e}") from None
        if not isinstance(doc, dict):
            raise self.fail("a pattern file is one mapping")
        self.doc = _with_on(doc)

    def fail(self, message: str, key: str = "") -> PatternError:
        place = f"{self.path}:{self.lines.get(key, 1)}"
        return PatternError(f"{place}: {message}", "see patterns/README.md, or run `postmortem patterns lint`")

    # ── values of one key ───────────────────────────────────────────────────────────────────────────────────

    def value(self, name: str) -> Any:
        """Return the value of a key that has no form of its own, as its schema wants it."""
        schema = keys()[name]
        value = self.doc.get(name, schema.get("default"))
        if value is None and name in MANDATORY:
            raise self.fail(f"`{name}` is missing")
        if "enum" in schema:
            if None in schema["enum"]:
                return value if value is None else self.one_of(name, value, schema["enum"])
            text = self.text(name, value)
            mandatory = name in MANDATORY or "default" in schema
            return self.one_of(name, text, schema["enum"]) if text or mandatory else text
        if "anyOf" in schema:
            words = [value] if isinstance(value, str) else self.items(name)
            return tuple(self.one_of(name, word, schema["anyOf"][0]["enum"]) for word in words)
        if schema["type"] == "boolean":
            return self.typed(name, self.doc.get(name, False), bool, "true or false")
        if schema["type"] == "string":
            return self.text(name, value)
        if any(not isinstance(item, str) for item in self.items(name)):
            raise self.fail(f"`{name}` must be a list of texts", name)
        return tuple(self.items(name))

    def text(self, name: str, value: object) -> str:
        return str(self.typed(name, "" if value is None else value, str, "text")).strip()

    def one_of(self, name: str, word: Any, allowed: Iterable[str | None], key: str = "") -> Any:
        if word not in allowed:
            raise self.fail(f"`{name}: {word}` is not one of {', '.join(filter(None, allowed))}", key or name)
        return word

    def items(self, name: str) -> list[Any]:
        value = self.doc.get(name) or []
        return self.typed(name, value, list, "a list")  # type: ignore[no-any-return]

    def typed(self, name: str, value: object, kind: type, words: str, key: str = "") -> Any:
        if not isinstance(value, kind):
            raise self.fail(f"`{name}` must be {words}", key or name)
        return value

    def entry(self, name: str, value: Any, *within: str) -> dict[str, Any]:
        """Return a mapping that has only the keys of its schema."""
        known = _properties(name, *within)
        if not isinstance(value, dict) or set(value) - set(known):
            raise self.fail(f"an entry of `{name}` must have only {', '.join(sorted(known))}", name)
        return value

    def texts_of(self, entry: dict[str, Any], name: str, key: str, example: str = "") -> dict[str, str]:
        """Return an optional mapping with its keys and values as texts."""
        words = f"a mapping such as {example}" if example else "a mapping"
        return {str(k): str(v) for k, v in self.typed(name, entry.get(name) or {}, dict, words, key).items()}

    # ── the keys with a form of their own ───────────────────────────────────────────────────────────────────

    def variants(self) -> tuple[Variant, ...]:
        on = self.value("on")
        first = [self.doc] if "regex" in self.doc else []
        out = []
        for entry in first + [self.entry("variants", _with_on(v)) for v in self.items("variants")]:
            if not isinstance(entry.get("regex"), str):
                raise self.fail("each variant needs a `regex`", "variants")
            if not isinstance(entry.get("gate", ""), str | None):
                raise self.fail("`gate` must be text", "gate" if entry is self.doc else "variants")
            kind = self.one_of("on", entry.get("on", on), ("", *_properties("variants")["on"]["enum"]), "variants")
            since = self.texts_of(entry, "since", "since")
            out.append(Variant(entry["regex"], entry.get("gate"), since, "" if kind == LINE else kind))
        return tuple(out)

    def explains(self) -> tuple[Explains, ...]:
        out = []
        for e in (self.entry("explains", item) for item in self.items("explains")):
            join = self.one_of("join", e.get("join"), _properties("explains")["join"]["enum"], "explains")
            within = e.get("within_s")
            number = isinstance(within, int | float) and not isinstance(within, bool)
            if within is not None and not (number and 0 <= within <= 1e9):
                raise self.fail(f"`within_s: {within}` is not a number of seconds", "explains")
            out.append(Explains(str(e.get("id")), join, within))
        return tuple(out)

    def reads_as(self) -> ReadsAs | None:
        if self.doc.get("reads_as") is None:
            return None
        entry = self.entry("reads_as", self.doc["reads_as"])
        return ReadsAs(str(entry.get("id")), self.texts_of(entry, "before", "reads_as", "{torch: '2.5'}"))

    def actions(self) -> tuple[Action, ...]:
        out, known = [], _properties("actions")
        for a in (self.entry("actions", item) for item in self.items("actions")):
            kind = self.one_of("kind", a.get("kind"), known["kind"]["enum"], "actions")
            unless = self.one_of("unless", str(a.get("unless") or ""), ("", *known["unless"]["enum"]), "actions")
            out.append(Action(kind, str(a.get("text", "")).strip(), unless, str(a.get("at") or "")))
        return tuple(out)

    def examples(self, which: str) -> tuple[Example, ...]:
        entries = self.entry("examples", self.doc.get("examples") or {}).get(which) or []
        out = []
        for entry in self.typed(which, entries, list, "a list", "examples"):
            e = self.entry("examples", entry, "match")
            captures = self.texts_of(e, "captures", "examples", "{pid: '12'}")
            text, *rest = (str(e.get(key, "")) for key in ("text", "from", "because", "incident", "source"))
            out.append(Example(text, captures, *rest))
        return tuple(out)

    def compile(self, pattern: Pattern) -> None:
        """Try the expressions of a pattern that is not shipped."""
        import regex

        found = [("variants" if i else "regex", v.regex) for i, v in enumerate(pattern.variants)]
        found += [("frame", pattern.frame), ("cause_if_near", pattern.cause_if_near)]
        for key, expression in found:
            if len(expression) > MAX_REGEX:
                raise self.fail(f"`{key}` is longer than {MAX_REGEX:,} characters", key)
            if _MANY.search(expression):  # its compiler makes one node for each repetition
                raise self.fail(f"`{key}` has a repetition count of more than five digits", key)
            try:
                regex.compile(expression)
            except (regex.error, RecursionError, OverflowError, ValueError) as e:
                raise self.fail(f"`{key}` is not a regular expression: {e}", key) from None

    def pattern(self) -> Pattern:
        if unknown := sorted(map(str, set(self.doc) - set(keys()))):
            raise self.fail(f"unknown key `{unknown[0]}`", unknown[0])
        variants = self.variants()
        if not variants and not self.doc.get("derived"):
            raise self.fail("`regex` is missing")
        return Pattern(
            **{name: self.value(name) for name in keys() if name not in OWN_FORM},
            family=self.path.parent.name,
            variants=variants,
            reads_as=self.reads_as(),
            explains=self.explains(),
            actions=self.actions(),
            matches=self.examples("match"),
            no_matches=self.examples("no_match"),
            path=str(self.path),
        )
