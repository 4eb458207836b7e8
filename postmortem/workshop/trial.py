"""Run the examples of pattern files through the real scanner and parsers.

match:    [{text: '… Killed process 32688 (python) …', captures: {pid: '32688'}}]   must be read as this pattern
no_match: [{text: '… killed=0 …', because: a counter}]                              must not; others may match
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from postmortem.library import Library, load
from postmortem.model import Example, Pattern
from postmortem.system import resources
from postmortem.workshop.catalogue import require

BLOCK = 'Traceback (most recent call last):\n  File "train.py", line 31, in <module>\n    main()\n'


class Trial(NamedTuple):
    """One example of one pattern; prints as its address."""

    pattern: Pattern
    expected: bool
    number: int
    example: Example

    def __str__(self) -> str:
        which = "match" if self.expected else "no_match"
        return f"{self.pattern.family}/{self.pattern.id}::{which}[{self.number}]"


def trials(library: Library, ids: tuple[str, ...] = ()) -> Iterator[Trial]:
    """Return every example of the library, or of the patterns `ids`."""
    require(library, ids)
    for pattern in library.patterns.values():
        if not ids or pattern.id in ids:
            yield from (Trial(pattern, True, n, e) for n, e in enumerate(pattern.matches))
            yield from (Trial(pattern, False, n, e) for n, e in enumerate(pattern.no_matches))


def run(folders: tuple[Path, ...] = (), ids: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Run the examples; return their number, and one sentence for each that is not read as its file states,
    and for each pattern that is still the skeleton of `patterns new`."""
    library = load(*folders)
    results = [(t, failure(t, library)) for t in trials(library, ids)]
    bare = {t.pattern.id: t.pattern for t, _ in results if not t.pattern.what}
    return len(results), [
        *(
            f"{p.path}: a bare draft; `postmortem patterns lint {p.id}` lists the fields to fill in"
            for p in bare.values()
        ),
        *(f"{t.pattern.path}: {t}: {why}" for t, why in results if why),
    ]


def failure(trial: Trial, library: Library) -> str:
    """Return how the example is misread; empty if it is read as its file states."""
    if trial.example.incident:
        # try a whole sample incident, the example of a derived pattern, which has no line of its own
        name = f"sample_logs/{trial.example.incident}"
        if (resources.PACKAGE.parent / name / "logs").is_dir():
            return _compared(trial, _findings(resources.PACKAGE.parent / name / "logs"), name)
        checkout = (resources.PACKAGE.parent / "pyproject.toml").is_file()  # a wheel has no samples
        return f"there is no {name}" if checkout else ""
    if trial.pattern.derived:
        # try a small incident in the file itself: `==> path <==` starts each log, as `head` prints several
        with TemporaryDirectory() as folder:
            parts = _FILE.split(trial.example.text)
            for path, text in zip(parts[1::2], parts[2::2], strict=True):
                Path(folder, Path(path).name).write_text(text)
            return _compared(trial, _findings.__wrapped__(Path(folder)), "these logs")
    seen = _captures(trial, library)
    if seen is None:
        return "is not read as this pattern" if trial.expected else ""
    if not trial.expected:
        return "is read as this pattern"
    wrong = [f"{k} is {seen.get(k)!r}, not {v!r}" for k, v in trial.example.captures.items() if str(seen.get(k)) != v]
    return "; ".join(wrong)


def _captures(trial: Trial, library: Library) -> dict[str, Any] | None:
    from postmortem.blocks import read_text

    pattern, example = trial.pattern, trial.example
    kind = example.source or (pattern.sources[0] if pattern.sources else "")
    text = example.text
    if pattern.on == "exception" and "Traceback (most recent call last)" not in text:
        text = BLOCK + text  # such a pattern reads the last line of a traceback; the example may be that line alone
    for event in read_text(text, kind, library):
        if event.pattern == pattern.id:
            return dict(event.fields)
    return None


def _compared(trial: Trial, findings: frozenset[str], where: str) -> str:
    found = trial.pattern.id in findings
    return "" if found == trial.expected else f"is {'' if found else 'not '}found in {where}"


_FILE = re.compile(r"^==> (\S+) <==\n", re.MULTILINE)


@lru_cache(maxsize=64)
def _findings(logs: Path) -> frozenset[str]:
    from postmortem.analyze import analyze

    document = analyze([str(logs)]).document
    return frozenset(str(f["pattern"]) for f in document.get("findings", []))
