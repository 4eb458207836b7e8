"""How often each confidence is right, on folders of labelled cases.

    python benchmarks/calibration.py [FOLDER ...] [--list]

A case is a folder with logs/ and a truth.json, as in sample_logs. A verdict is right if its outcome,
category and ranks are among those of the truth, as tests/test_golden.py judges; hosts and gpus are held
against it where the truth names some. Prints the table in docs/confidence.md; with --list also each wrong
verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.analyze import Options, analyze
from postmortem.errors import PostmortemError
from postmortem.model import Confidence

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "sample_logs", ROOT / "tests" / "incidents" / "synthetic")
WORDS: tuple[str, ...] = get_args(Confidence)
FAILED = ("incident", "recovered")
Truth = Mapping[str, Any]


class Judged(NamedTuple):
    """One case: the answer, and which parts of it are right; None where the truth names nothing."""

    name: str
    confidence: str
    verdict: bool
    hosts: bool | None
    gpus: bool | None
    headline: str


def judge(name: str, truth: Truth, answer: Mapping[str, Any]) -> Judged:
    who = answer["culprit"]
    right = answer["outcome"] in truth["outcomes"] and _category(truth, answer) and _ranks(truth, who["ranks"])
    hosts, gpus = (_named(truth.get(what), who[what]) for what in ("hosts", "gpus"))
    return Judged(name, answer["confidence"], right, hosts, gpus, answer["headline"])


def _category(truth: Truth, answer: Mapping[str, Any]) -> bool:
    return answer["outcome"] not in FAILED or answer["category"] in truth["categories"]


def _ranks(truth: Truth, ranks: list[int]) -> bool:
    """The ranks named are at fault, and if the truth names some, the answer does."""
    wanted = truth.get("ranks")
    if wanted is None or truth["outcomes"] == ["healthy"]:
        return True
    return set(ranks) <= set(wanted) and bool(ranks) == bool(wanted)


def _named(wanted: list[str] | None, named: list[str]) -> bool | None:
    return set(named) <= set(wanted) if wanted and named else None


def judged(folders: Iterable[Path]) -> Iterator[Judged]:
    for folder in folders:
        for file in sorted(folder.glob("*/truth.json")):
            try:
                document = analyze([str(file.parent / "logs")], Options(workers=1)).document
            except PostmortemError as e:
                print(f"{file.parent.name}: {e}", file=sys.stderr)
                continue
            yield judge(file.parent.name, json.loads(file.read_text()), document["verdict"])


def table(rows: Iterable[Judged]) -> str:
    """Return how often each confidence was given, and how often the answer was right."""
    answer, right = Counter[str](), Counter[tuple[str, str]]()
    for row in rows:
        answer[row.confidence] += 1
        for part in ("verdict", "hosts", "gpus"):
            found = getattr(row, part)
            right[row.confidence, part] += bool(found)
            right[row.confidence, f"{part} named"] += found is not None
    lines = ["| confidence | answers | right | hosts right | gpus right |", "|---|---|---|---|---|"]
    for word in WORDS:
        parts = [_share(right[word, p], right[word, f"{p} named"]) for p in ("verdict", "hosts", "gpus")]
        lines.append(f"| {word} | {answer[word]} | {' | '.join(parts)} |")
    return "\n".join(lines)


def _share(good: int, of: int) -> str:
    return f"{good} of {of}" if of else "none named"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS)
    parser.add_argument("--list", action="store_true", help="print each wrong verdict too")
    given = parser.parse_args()
    rows = list(judged(given.folders))
    print(table(rows))
    if given.list:
        for row in rows:
            if not row.verdict or False in (row.hosts, row.gpus):
                print(f"wrong: {row.name}: {row.confidence}: {row.headline}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
