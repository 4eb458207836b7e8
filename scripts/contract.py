"""Write schemas/*.json and the tables of docs/contract.md from the types of postmortem/contract;
with --check, only report whether they are up to date."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from postmortem.analyze import Incident, Options
from postmortem.model.contract import Brief, Comparison, Document, EventRow, words

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contract.md"
TITLES = {
    "incident": "The incident document",
    "brief": "The brief",
    "event": "An event",
    "diff": "A comparison",
}
SHAPES: Mapping[str, type] = {"incident": Document, "brief": Brief, "event": EventRow, "diff": Comparison}
NAMES: Mapping[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null",
}  # fmt: skip
BEGIN, END = "<!-- {}: written by scripts/contract.py -->", "<!-- end of {} -->"


# ── the types ───────────────────────────────────────────────────────────────────────────────────────────────


@cache
def fields(shape: type) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


def documented(shape: type) -> Iterator[tuple[ast.AnnAssign, str]]:
    """Each field as it is written, with the string below it."""
    body = ast.parse(inspect.getsource(shape)).body[0].body  # type: ignore[attr-defined]
    for field, text in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            yield field, str(ast.literal_eval(text.value))


@cache
def descriptions(shape: type) -> dict[str, str]:
    written = {ast.unparse(field.target): text for field, text in documented(shape)}
    rules = {name: dict(kind.__metadata__) for name, kind in fields(shape).items() if get_origin(kind) is Annotated}
    return written | {name: rule["description"] for name, rule in rules.items() if "description" in rule}


def summary(shape: type) -> str:
    return " ".join(inspect.getdoc(shape).split())  # type: ignore[union-attr]


def shapes(root: type) -> Iterator[type]:
    """The shape and those inside it, each once, outer ones first."""
    found = [root]
    for shape in found:
        yield shape
        inner = (one for kind in fields(shape).values() for one in _inside(kind))
        found += [one for one in dict.fromkeys(inner) if one not in found]


def _inside(kind: Any) -> list[type]:
    if is_typeddict(kind):
        return [kind]
    return list(dict.fromkeys(inner for part in get_args(kind) for inner in _inside(part)))


# ── JSON Schema ─────────────────────────────────────────────────────────────────────────────────────────────


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of `incident`, `brief` or `event`. Other properties are allowed: additions are free."""
    root, *inner = shapes(SHAPES[name])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{TITLES[name]} of postmortem",
        **_record(root),
        "$defs": {shape.__name__: _record(shape) for shape in inner},
    }


def _record(shape: type) -> dict[str, Any]:
    meanings = descriptions(shape)
    kinds = fields(shape)
    return {
        "description": summary(shape),
        "type": "object",
        "required": [name for name, kind in kinds.items() if get_origin(kind) is not NotRequired],
        "properties": {name: {**_schema(kind), "description": meanings[name]} for name, kind in kinds.items()},
    }


def _schema(kind: Any) -> dict[str, Any]:
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin is NotRequired:
        return _schema(parts[0])
    if origin is Annotated:
        return _schema(parts[0]) | {key: _plain(value) for key, value in kind.__metadata__}
    if origin is Literal:
        return {"const": parts[0]} if len(parts) == 1 else {"type": "string", "enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0])}
    if origin is dict:
        return {"type": "object"} | ({} if parts[1] is Any else {"additionalProperties": _schema(parts[1])})
    if origin in (Union, UnionType):
        return _either([_schema(part) for part in parts])
    return {"type": NAMES[kind]}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _either(meanings: list[dict[str, Any]]) -> dict[str, Any]:
    """Several plain types are one list of names; null is listed with the words of a vocabulary."""
    if not all("type" in one for one in meanings) or sum(len(one) > 1 for one in meanings) > 1:
        return {"anyOf": meanings}
    merged = {key: value for one in meanings for key, value in one.items()}
    merged["type"] = [one["type"] for one in meanings]
    if "enum" in merged and "null" in merged["type"]:
        merged["enum"] = [*merged["enum"], None]
    return merged


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────


def tables(name: str) -> str:
    return "\n\n".join(_table(shape, shape is not SHAPES[name]) for shape in shapes(SHAPES[name]))


def _table(shape: type, inner: bool) -> str:
    meanings = descriptions(shape)
    head = [f"### `{shape.__name__}`", ""] if inner else []
    lines = "\n".join(textwrap.wrap(summary(shape), 140))
    rows = [f"| `{name}` | {_words(kind)} | {meanings[name]} |" for name, kind in fields(shape).items()]
    return "\n".join([*head, lines, "", "| field | type | |", "|---|---|---|", *rows])


def _words(kind: Any) -> str:
    """`integer or null`, `list of [Finding](#finding)`, `text, optional`."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if origin is NotRequired:
        return f"{_words(parts[0])}, optional"
    if origin is Annotated:
        rules = dict(kind.__metadata__)
        if "title" in rules:
            return f"[{rules['title']}](#vocabularies)"
        return "time" if "format" in rules else _listed(rules.get("enum", ())) or _words(parts[0])
    if origin is Literal:
        return _listed(parts)
    if origin is list:
        return f"list of {_words(parts[0])}"
    if origin is dict:
        return "object" if parts[1] is Any else f"object of {_words(parts[1])}"
    if origin in (Union, UnionType):
        return " or ".join(map(_words, parts))
    return {str: "text", NoneType: "null"}.get(kind, NAMES[kind])


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def vocabularies() -> str:
    """The lists of words that are too long for a table."""
    aliases = (kind for kind in vars(words).values() if get_origin(kind) is Annotated)
    named = (dict(kind.__metadata__) for kind in aliases)
    return "\n".join(f"- {rules['title']}: {_listed(rules['enum'])}" for rules in named if "title" in rules)


def python(shape: type) -> str:
    """A class of the Python API."""
    rows = []
    for field, text in documented(shape):
        kind, default = ast.unparse(field.annotation).replace(" | ", " or "), field.value
        given = f"`{ast.unparse(default)}`" if isinstance(default, ast.Constant | ast.Tuple) else ""
        rows.append(f"| `{ast.unparse(field.target)}` | `{kind}` | {given} | {text} |")
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows])


def page(text: str) -> str:
    """The page with today's tables between its marks."""
    parts = {name: tables(name) for name in SHAPES} | {"vocabularies": vocabularies()}
    parts |= {"options": python(Options), "result": python(Incident)}
    for name, made in parts.items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        if not end:
            raise SystemExit(f"{PAGE} has no marks for {name}")
        text = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return text


def everything() -> dict[Path, str]:
    """Return the generated files."""
    texts = {
        ROOT / "schemas" / f"{name}-1.schema.json": json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"
        for name in SHAPES
    }
    return texts | {PAGE: page(PAGE.read_text())}


def main() -> int:
    stale = [path for path, text in everything().items() if not path.is_file() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"stale: {path.relative_to(ROOT)}: run {sys.executable} scripts/contract.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(everything()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
