"""Measure the prose of the project against well-kept libraries: words per 1,000.

    python scripts/prose.py             the table of figures and limits; exit code 1 if a figure is above its limit
    python scripts/prose.py --files     and the files that contribute most
    python scripts/prose.py --peers     the figures of the peers that are installed

Four kinds of prose: docstrings and comments, strings that a user may read, pattern files, and documents. A limit is
twice the figure of the highest peer.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
GROUPS = {
    "tell": ("tell", "tells", "told"),
    "say": ("say", "says", "said"),
    "stand": ("stand", "stands", "stood"),
    "nobody": ("nobody",),
    "whose": ("whose",),
    "what": ("what",),
}
PEERS = ("click", "rich", "pandas", "jinja2", "sqlalchemy", "alembic", "mkdocs", "mcp")
# Docstrings and comments of the highest peer, per 1,000 words, as `--peers` prints them.
HIGHEST = {"tell": 0.36, "say": 0.16, "stand": 0.05, "nobody": 0.05, "whose": 0.83, "what": 0.81}
LIMITS: Mapping[str, float] = {group: 2 * figure for group, figure in HIGHEST.items()}
SHORT = 4  # words; a shorter string is a name, not a sentence
TEXTS = (
    "title",
    "what",
    "why",
    "headline",
    "not_to_be_confused_with",
    "text",
    "because",
)  # keys of pattern files


def comments_of(path: Path) -> str:
    """Return docstrings and comments of a Python file."""
    text = path.read_text(encoding="utf-8")
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join([*found, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def strings_of(path: Path) -> str:
    """Return the string literals of a Python file that read like a sentence."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    quoted = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in quoted)
    return " ".join(s for s in strings if isinstance(s, str) and "\\" not in s and len(words_of(s)) >= SHORT)


def texts_of(path: Path) -> str:
    """Return the sentences of a pattern file, without its examples, which are quotations."""

    def walk(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in TEXTS and isinstance(inner, str):
                    yield inner
                elif key != "examples":
                    yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    return " ".join(walk(yaml.safe_load(path.read_text(encoding="utf-8"))))


def document_of(path: Path) -> str:
    """Return a Markdown document without its code."""
    code = r"```.*?```|`[^`]*`|^ {4}[^\n]*$"
    text = re.sub(code, " ", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\]\([^)]*\)|^> .*$", " ", text, flags=re.MULTILINE)


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def figures(words: Counter[str]) -> dict[str, float]:
    total = sum(words.values()) or 1
    return {group: 1000 * sum(words[w] for w in members) / total for group, members in GROUPS.items()}


def project() -> dict[str, dict[Path, str]]:
    """Return the prose of each file, by kind."""
    code = sorted((ROOT / "postmortem").rglob("*.py"))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        "docstrings and comments": {p: comments_of(p) for p in code},
        "strings": {p: strings_of(p) for p in code if "scenarios" not in p.parts},
        "patterns": {p: texts_of(p) for p in sorted((ROOT / "patterns").rglob("*.yaml"))},
        "documents": {p: document_of(p) for p in documents if "catalogue" not in p.parts},
    }


def total(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in words_of(text))


def above(kinds: Mapping[str, Mapping[Path, str]]) -> list[str]:
    """Return a sentence for each figure above its limit."""
    return [
        f"{kind}: {group} {figure:.2f} per 1,000 words, limit {LIMITS[group]:.2f}"
        for kind, files in kinds.items()
        for group, figure in figures(total(files.values())).items()
        if figure > LIMITS[group]
    ]


def worst(files: Mapping[Path, str], most: int = 15) -> Iterator[str]:
    """Yield the files with the most words above the limit."""
    rows = []
    for path, text in files.items():
        words = total([text])
        size = sum(words.values())
        over = {g: sum(words[w] for w in m) - LIMITS[g] * size / 1000 for g, m in GROUPS.items()}
        rows.append((sum(n for n in over.values() if n > 0), path, {g: round(n) for g, n in over.items() if n > 1}))
    for excess, path, counts in sorted(rows, key=lambda row: -row[0])[:most]:
        if excess > 1:
            yield f"  {path.relative_to(ROOT)}: " + ", ".join(f"{g} +{n}" for g, n in counts.items())


def peers() -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the figures of docstrings and comments of each peer that is installed."""
    for name in PEERS:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            files = sorted(Path(spec.origin).parent.rglob("*.py"))
            yield name, figures(total(comments_of(p) for p in files if not {"tests", "_vendor"} & set(p.parts)))


def table(rows: Iterable[tuple[str, Mapping[str, float]]]) -> str:
    """Return aligned rows of figures."""
    lines = [f"{'words per 1,000':25}" + "".join(f"{group:>8}" for group in GROUPS)]
    lines += [f"{name:25}" + "".join(f"{row[group]:8.2f}" for group in GROUPS) for name, row in rows]
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--files", action="store_true", help="list the files that contribute most")
    options.add_argument("--peers", action="store_true", help="measure the peers that are installed")
    chosen = options.parse_args()
    if chosen.peers:
        print(table(peers()))
        return 0
    kinds = project()
    rows = [(kind, figures(total(files.values()))) for kind, files in kinds.items()]
    print(table([*rows, ("limit", LIMITS)]))
    for kind, files in kinds.items() if chosen.files else ():
        print("\n".join([f"{kind}:", *worst(files)]))
    over = above(kinds)
    print("\n".join(over) or "nothing is above its limit")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
