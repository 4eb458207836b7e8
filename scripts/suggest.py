"""List error-like lines that no pattern and no parser recognizes, for authors of patterns.

    python scripts/suggest.py LOGS...             folders or files of logs
    python scripts/suggest.py LOGS... --top 20    only the most frequent shapes

Lines are grouped by shape: numbers, addresses, paths and quoted names do not count. Each group is one line of
output: count, number of files, first place as file:line, first text. Each folder is analyzed as one incident,
so pass the folder of one run at a time where runs must not mix.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LOUD = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|SEVERE|[Ff]atal|FAILED|[Ff]ail(?:ed|ure)|[Aa]bort(?:ed|ing)?|[Pp]anic|[Tt]erminated"
    r"|[Kk]illed|[Cc]rash(?:ed)?|[Tt]imed out|[Cc]annot|[Uu]nable to)\b|[Ee]rror\b[:\]= ]|Exception\b|^\s*E\d{4} "
)
CALM = re.compile(r"\b(?:INFO|DEBUG|TRACE)\b|\b(?:errors?|failures?|failed)[ :=]{1,3}0\b|^\s*(?:#|\+|File \")")
VARIABLE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"'[^']{1,200}'|\"[^\"]{1,200}\"|`[^`]{1,200}`"), "'*'"),
    (re.compile(r"\S*/\S+"), "/*"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[a-z]*\d)[0-9a-f]{6,}\b"), "#"),
    (re.compile(r"\d+"), "#"),
    (re.compile(r"#(?:[.:,T -]*#)+"), "#"),
    (re.compile(r"\s+"), " "),
)
MOST = 64 << 20  # bytes of one file


class Line(NamedTuple):
    """One error-like line that nothing recognizes."""

    source: str
    number: int
    text: str


class Group(NamedTuple):
    """Lines of one shape, in the order of the logs."""

    shape: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        first = self.lines[0]
        files = len({line.source for line in self.lines})
        return f"{len(self.lines)}\t{files}\t{first.source}:{first.number}\t{first.text.strip()[:300]}"


def shape(text: str) -> str:
    """Return the text without the parts that differ between runs."""
    for pattern, replacement in VARIABLE:
        text = pattern.sub(replacement, text)
    return text.strip()[:200]


def recognized(path: Path) -> tuple[set[tuple[str, int]], list[str]]:
    """Return the lines that patterns and parsers cover, as (source, line), and the names of all sources."""
    from postmortem.analyze import Options, aligned

    evidence = aligned([str(path)], Options(workers=1, redact=False))
    covered: set[tuple[str, int]] = set()
    for event in evidence.timeline.events:
        if event.kind in ("line", "notice") or not event.where.line:
            continue
        opened = event.fields.get("opened")
        first = opened if isinstance(opened, int) else event.where.line
        last = event.where.end_line or event.where.line
        covered.update((event.where.source, number) for number in range(first, last + 1))
    return covered, [source.path for source in evidence.sources]


def loud_lines(path: Path) -> Iterator[Line]:
    """Yield the error-like lines under `path` that nothing recognizes."""
    covered, sources = recognized(path)
    for source in sources:
        file = path / source if path.is_dir() else path
        if not file.is_file():
            continue  # a member of an archive
        with file.open("rb") as stream:
            text = stream.read(MOST).decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n"), start=1):
            if (source, number) not in covered and LOUD.search(line) and not CALM.search(line):
                yield Line(source, number, line)


def groups(paths: Sequence[Path]) -> list[Group]:
    """Return the lines of all paths by shape, the most frequent first."""
    found: dict[str, list[Line]] = {}
    for path in paths:
        for line in loud_lines(path):
            found.setdefault(shape(line.text), []).append(line)
    return sorted((Group(s, tuple(lines)) for s, lines in found.items()), key=lambda g: (-len(g.lines), g.shape))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=50, help="number of groups to print (default 50)")
    options = parser.parse_args(arguments)
    for group in groups(options.logs)[: options.top]:
        print(group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
