"""Pattern -> text for people: the list, one pattern in full, and its explanation."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from postmortem.errors import UsageError
from postmortem.library import Library, load
from postmortem.model import Example, Pattern

WIDTH = 100
SEARCHED = 12  # patterns that a search lists
ROLES = ("cause", "symptom", "confirms", "context")
TEXTS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("texts.toml").read_text())
ROLE_MEANS, ENTITY_MEANS = TEXTS["role"], TEXTS["entity"]


def find(pattern_id: str, folders: Iterable[Path] = ()) -> Pattern:
    """Return the pattern of this id, or raise UsageError that names the nearest ids."""
    library = load(*folders)
    require(library, (pattern_id,))
    return library[pattern_id]


def require(library: Library, ids: Iterable[str]) -> None:
    """Raise UsageError, with the nearest ids, for the first of these ids that is no pattern."""
    for missing in (i for i in ids if i not in library.patterns):
        from difflib import get_close_matches

        words = [p for p in library.patterns if missing in p] or get_close_matches(missing, library.patterns, 5, 0.5)
        if not words:  # a word of an id, mistyped
            known = sorted({word for p in library.patterns for word in p.split("-")})
            word = {*get_close_matches(missing, known, 1, 0.7)}
            words = [p for p in library.patterns if word & {*p.split("-")}]
            words.sort(key=lambda p: (ROLES.index(library[p].role), len(p)))
        near = f"did you mean {', '.join(words[:5])}?" if words else "`postmortem patterns list` names all of them"
        raise UsageError(f"there is no pattern {missing}", near)


def search(words: str, folders: Iterable[Path] = ()) -> str:
    """Return the patterns with all of these words, the best first; empty for the id of a pattern, and where none is."""
    patterns, wanted = load(*folders).patterns, words.lower().split()
    if words in patterns:
        return ""

    def rank(p: Pattern) -> tuple[int, ...] | None:
        fields = [p.id.split("-"), [p.id], [p.title.lower()], [(p.category or "").lower()], [p.what.lower()]]
        places = [next((n for n, text in enumerate(fields) if any(word in t for t in text)), -1) for word in wanted]
        whole = sum(word not in fields[0] for word in wanted)
        return None if -1 in places else (whole, sum(places) // 2, ROLES.index(p.role), -len(p.matches), len(p.id))

    found = sorted((r, p.id, p.title) for p in patterns.values() if (r := rank(p)) is not None)[:SEARCHED]
    wide = max((len(name) for _, name, _ in found), default=0)
    return "\n".join(f"{name:{wide}}  {title}" for _, name, title in found)


def listing(folders: Iterable[Path] = (), as_json: bool = False) -> str:
    """Return all patterns, one a line, aligned; or as a JSON list."""
    patterns = sorted(load(*folders).patterns.values(), key=lambda p: (p.family, p.id))
    if as_json:
        keys = ("id", "family", "role", "category", "severity", "status", "title")
        return json.dumps([{k: getattr(p, k) for k in keys} for p in patterns], indent=1, ensure_ascii=False)
    wide = max((len(p.id) for p in patterns), default=0)
    rows = [f"{p.id:{wide}}  {p.role:8}  {p.category or '-':20} {p.title}" for p in patterns]
    return "\n".join([f"{'PATTERN':{wide}}  {'ROLE':8}  {'CATEGORY':20} TITLE", *rows, f"{len(rows)} patterns"])


def explain(pattern: Pattern) -> str:
    """Return the explanation of one pattern for an engineer on call."""
    return "\n".join(_explanation(pattern)).rstrip() + "\n"


def show(pattern: Pattern) -> str:
    """Return the explanation, and the use that the program makes of the pattern."""
    return "\n".join([*_explanation(pattern), *_mechanics(pattern)]).rstrip() + "\n"


def _section(title: str, *paragraphs: str) -> Iterator[str]:
    filled = [textwrap.fill(p, WIDTH, initial_indent="  ", subsequent_indent="  ") for p in paragraphs if p]
    if filled:
        yield from (title, *filled, "")


def _explanation(p: Pattern) -> Iterator[str]:
    yield from (p.id, f"  {p.title}", "")
    yield from _section("What it means", p.what, p.why)
    yield from _looks("How it looks", p.matches)
    yield from _section("Usual culprit", f"{ENTITY_MEANS[p.entity]}." if p.role != "context" else "")
    yield from _section("What to do", *(f"{a.text} [{a.kind}]" for a in p.actions))
    yield from _section("Not to be confused with", p.not_to_be_confused_with)
    yield from _looks("Lines that do not match", p.no_matches)
    yield from _section("Reproduce it with", f"postmortem replay {p.replay}" if p.replay else "")
    yield from _section("References", *p.references)


def _looks(title: str, examples: Iterable[Example]) -> Iterator[str]:
    texts = [e for e in examples if e.text]
    if texts:
        yield title
        for e in texts:
            yield from (f"  | {line}" for line in e.text.splitlines())
            if e.origin or e.because:
                yield f"    {e.because}" if e.because else f"    from {e.origin}"
        yield ""


def _mechanics(p: Pattern) -> Iterator[str]:
    yield "How it is used"
    yield f"  status {p.status}, severity {p.severity}, category {p.category or 'none'}, family {p.family}"
    yield f"  role {p.role}: {ROLE_MEANS[p.role]}"
    yield f"  read in {', '.join(p.sources) or 'every source'}" + (f", on {p.on} events" if p.on else "")
    if p.derived:
        yield "  found by reasoning over several ranks, not by one line"
    for v in p.variants:
        since = f"  since {', '.join(f'{k} {v}' for k, v in v.since.items())}" if v.since else ""
        yield f"  regex {v.regex}{since}" + (f"  on {v.on} events" if v.on and not p.on else "")
        if v.gate:
            yield f"  gate  {v.gate}"
    for link in p.explains:
        within = f" within {link.within_s:g} s" if link.within_s else ""
        yield f"  explains {link.id} ({link.join}{within})"
    for example in p.matches:
        for name, value in example.captures.items():
            yield f"  captures {name} = {value}"
    yield f"  file {p.path}"
