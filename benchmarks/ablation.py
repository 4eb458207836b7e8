"""Measures reasoning without wording: every labeled case is analyzed again without the patterns that match the line
of its root, as if the library had never seen that message. Prints how many verdicts are still exact, how many claim
to be established and are wrong, and how many cases are called healthy; the same for a third of the cases, which
`--wrong` does not list, so that no rule is made for them.

    python benchmarks/ablation.py [--wrong] [FOLDER_OF_CASES...]

Cases without such a pattern are left out: their root is derived from several lines, or read by a generic pattern.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
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
    from postmortem import blocks
    from postmortem.analyze import Options, analyze
    from postmortem.library import Library, load, read

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
    reduced, whole = Library(rest, f"{library.digest} without {sorted(ids)}"), blocks.engine(library)
    saved = read._load, blocks.engine
    read._load = lambda extra: reduced  # type: ignore[assignment]
    blocks.engine = lambda library: whole  # the scan finds all patterns; the parsers leave out those without a file
    try:
        return Result(case, tuple(sorted(ids)), json.loads(json.dumps(analyze(paths, options).document)))
    finally:
        read._load, blocks.engine = saved


def held_out(case: Path) -> bool:
    """Return whether a case is of the third that `--wrong` does not list."""
    return zlib.crc32(case.name.encode()) % 3 == 0


def main() -> int:
    from goldens import cases_in, exact  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", type=Path, default=[ROOT / "sample_logs"])
    parser.add_argument("--wrong", action="store_true", help="list the cases that are wrong, but for those held out")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    all_, third = Counter[str](), Counter[str]()
    with ProcessPoolExecutor(options.workers) as pool:
        for result in filter(None, pool.map(without, cases_in(options.cases))):
            truth, verdict = json.loads((result.case / "truth.json").read_text()), result.document["verdict"]
            right = exact(truth, result.document)
            sure = verdict["confidence"] == "established" and not right
            healthy = verdict["outcome"] == "healthy" and not right
            for count in (all_, third)[: 1 + held_out(result.case)]:
                count.update(["cases", *["exact"] * right, *["wrong established"] * sure, *["healthy"] * healthy])
            if options.wrong and not right and not held_out(result.case):
                answer = "/".join(str(verdict[k]) for k in ("outcome", "category", "pattern", "confidence"))
                print(f"{result.case.name}: without {', '.join(result.removed)}\n    {answer} {verdict['culprit']}")
                print(
                    f"    {verdict['headline']}\n    truth: {truth['outcomes']} {truth['categories']} {truth['ranks']}"
                )
    for count, which in ((all_, "cases"), (third, "cases held out")):
        n = count["cases"] or 1
        print(f"{count['cases']} {which}: exact {count['exact'] / n:.3f}, ", end="")
        print(f"wrong established {count['wrong established'] / n:.3f}, called healthy {count['healthy']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
