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

from postmortem.errors import PathMissing, UsageError
from postmortem.library import Library, load
from postmortem.model import Example, Pattern
from postmortem.system import resources
from postmortem.system.arguments import own_patterns
from postmortem.system.output import write_file
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


# ── the skeleton of a pattern file ──────────────────────────────────────────────────────────────────────────

NAME = re.compile(r"(?P<family>[a-z0-9]+(?:-[a-z0-9]+)*)/(?P<id>[a-z0-9]+(?:-[a-z0-9]+)*)")
# prefixes of torchrun's tee and of ranks: the regex searches, so it needs none of them
PREFIX = re.compile(r"^(?:\[(?:rank|default)?\d+\]:\s*|\d+:\s+)+")
VARYING = re.compile(r"(?P<hex>0x[0-9a-fA-F]+)|(?P<number>\d+)|[\\.^$*+?{}\[\]|()]")


def write(name: str, line: str, folder: Path | None) -> Path:
    """Write the skeleton of pattern `name` (family/id), always as a new file; return its path."""
    found = NAME.fullmatch(name)
    if not found:
        raise UsageError(f"{name} is not FAMILY/ID in small letters", "for example: nccl/nccl-remote-process-exited")
    if folder is None:  # the library of a checkout; that of an installed package cannot be added to
        folder = own_patterns() if (resources.PACKAGE / "_data").is_dir() else resources.folder("patterns")
    path = folder / found["family"] / f"{found['id']}.yaml"
    if path.exists():
        raise UsageError(f"{path} exists", "choose another id, or edit that file")
    text, origin = _line(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    title = found["id"].replace("-", " ").capitalize()
    quoted = {"regex": regex_of(text), "line": text, "origin": origin}
    fields = {name: "'" + value.replace("'", "''") + "'" for name, value in quoted.items()}
    write_file(path, Path(__file__).with_name("skeleton.txt").read_text().format(id=found["id"], title=title, **fields))
    return path


def _line(text: str) -> tuple[str, str]:
    name, _, number = text.rpartition(":")
    if not (name and number.isdigit() and Path(name).is_file()):
        if re.fullmatch(r"\S+:\d+", text) or Path(text).is_file():
            raise PathMissing(
                f"{text} is not a line of a file", "--from takes FILE:LINE, or the text of the line in quotes"
            )
        return text, ""
    with Path(name).open("rb") as file:
        for count, raw in enumerate(file, 1):
            if count == int(number):
                line = raw.rstrip(b"\r\n")[:4096].decode("utf-8", "backslashreplace")
                return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]", "", line), text
    raise UsageError(f"{name} has no line {number}", "--from takes FILE:LINE, counted from 1")


def regex_of(line: str) -> str:
    """Return a regex for lines like this one: prefixes gone, numbers free."""
    core = PREFIX.sub("", line).strip()[:300]
    return VARYING.sub(lambda m: "0x[0-9a-fA-F]+" if m["hex"] else r"\d+" if m["number"] else "\\" + m[0], core)
