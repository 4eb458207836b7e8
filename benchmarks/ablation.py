"""Measures reasoning without wording: every labeled case is analyzed again without the patterns that match the line
of its root, as if the library had never seen that message. Prints how many verdicts are still exact, how many claim
to be established and are wrong, and how many cases are called healthy.

    python benchmarks/ablation.py [--wrong] [FOLDER_OF_CASES...]

Cases without such a pattern are left out: their root is derived from several lines, or read by a generic pattern.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]


class Result(NamedTuple):
    case: Path
    removed: tuple[str, ...]
    document: dict[str, Any]


def without(case: Path) -> Result | None:
    """Analyze a case without the patterns of its root's line; None for a case without an incident or such a line."""
    from postmortem.analyze import Options, analyze
    from postmortem.library import Library, load, read
    from postmortem.scan import engine, gate_of
    from postmortem.system import pool

    pool.DEADLINE = 600.0  # a library of its own is compiled first
    if not {"incident", "recovered"} & set(json.loads((case / "truth.json").read_text())["outcomes"]):
        return None
    paths, options = [str(case / "logs")], Options(workers=1)
    incident, library = analyze(paths, options), load()
    verdict: Any = incident.document["verdict"]
    line = next(((e["source"], e["line"]) for e in verdict["evidence"]), None)
    rows = incident.timeline[["source", "line", "pattern"]].dropna()
    ids = {pattern for *place, pattern in rows.itertuples(index=False) if tuple(place) == line}
    known = (library.get(i) for i in ids | {verdict["pattern"]})
    ids = {p.id for p in known if p is not None and not p.derived and not p.generic}
    if not ids:
        return None
    rest = {i: p for i, p in library.patterns.items() if i not in ids}
    reduced = Library(rest, f"{library.digest} without {sorted(ids)}")
    gates = _gates()
    whole, read._load = read._load, lambda extra: reduced  # type: ignore[assignment]
    engine._gates = lambda signatures: [gates.get(s) or gate_of(s) for s in signatures]
    try:
        return Result(case, tuple(sorted(ids)), json.loads(json.dumps(analyze(paths, options).document)))
    finally:
        read._load = whole


@cache
def _gates() -> dict[Any, bytes]:
    """The gate of each signature: a smaller library would derive all again."""
    from postmortem.blocks import OPENERS
    from postmortem.library import load
    from postmortem.scan import engine

    signatures = [*load().signatures(), *OPENERS]
    return dict(zip(signatures, engine._gates(signatures), strict=True))


def main() -> int:
    from goldens import cases_in, exact  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", type=Path, default=[ROOT / "sample_logs"])
    parser.add_argument("--wrong", action="store_true", help="list the cases that are wrong")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    count: Counter[str] = Counter()
    with ProcessPoolExecutor(options.workers) as pool:
        for result in filter(None, pool.map(without, cases_in(options.cases))):
            truth, verdict = json.loads((result.case / "truth.json").read_text()), result.document["verdict"]
            right = exact(truth, result.document)
            sure = verdict["confidence"] == "established" and not right
            healthy = verdict["outcome"] == "healthy" and not right
            count.update(["cases", *["exact"] * right, *["wrong established"] * sure, *["healthy"] * healthy])
            if options.wrong and not right:
                answer = "/".join(str(verdict[k]) for k in ("outcome", "category", "pattern", "confidence"))
                print(f"{result.case.name}: without {', '.join(result.removed)}\n    {answer} {verdict['culprit']}")
                print(
                    f"    {verdict['headline']}\n    truth: {truth['outcomes']} {truth['categories']} {truth['ranks']}"
                )
    n = count["cases"] or 1
    print(f"{count['cases']} cases: exact {count['exact'] / n:.3f}, ", end="")
    print(f"wrong established {count['wrong established'] / n:.3f}, called healthy {count['healthy']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
