"""Compare whole incident documents of labeled cases before and after a change.

    python scripts/goldens.py save    CASES...    analyze every case and store the documents
    python scripts/goldens.py compare CASES...    analyze again, list what moved, and score both sides
    python scripts/goldens.py score   CASES...    score the working tree only

CASES are folders of cases: CASES/<id>/logs/ with CASES/<id>/truth.json, as in sample_logs/. Without CASES:
sample_logs. Documents are stored under build/goldens (`--store`). Aligned timelines are cached there too,
keyed by the source code and the patterns that reading depends on, so that a change of `diagnose` alone takes
seconds. `--profile FILE` writes the functions that ran, for a search of dead code.

The exit code is 1 where a case that was right is wrong now, or where a case failed with an exception.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import re
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# Rooms that cannot change an aligned timeline.
BEHIND_ALIGN = ("diagnose", "causes", "say", "report", "replay", "cli", "fleet", "live", "workshop")
Facts = dict[str, Any]


def cases_in(folders: list[Path]) -> list[Path]:
    found = [p.parent for folder in folders for p in sorted(folder.glob("*/truth.json"))]
    return [case for case in found if (case / "logs").exists()]


def reading_key() -> str:
    """A digest of all that an aligned timeline depends on, but for the logs themselves."""
    digest = hashlib.sha256(sys.version.encode())
    package = ROOT / "postmortem"
    files = [p for p in sorted(package.rglob("*.py")) if p.relative_to(package).parts[0] not in BEHIND_ALIGN]
    for path in [
        *files,
        *sorted(p for p in (ROOT / "patterns").rglob("*.yaml") if "causes" not in p.parts),
        *sorted(p for p in (ROOT / "postmortem").rglob("*.yaml") if "causes" not in p.parts),
    ]:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def document_of(case: Path, cache: Path | None) -> Facts:
    from postmortem.analyze import Options, aligned, concluded

    options = Options(workers=1)
    saved_evidence = cache / f"{case.parent.name}-{case.name}.pickle" if cache else None
    try:
        if saved_evidence and saved_evidence.exists():
            evidence = pickle.loads(saved_evidence.read_bytes())  # our own file
        else:
            evidence = aligned([str(case / "logs")], options)
            if saved_evidence:
                saved_evidence.write_bytes(pickle.dumps(evidence, protocol=5))
        document: Facts = json.loads(json.dumps(concluded(evidence, options).document))
        return document
    except Exception:
        return {"error": traceback.format_exc()}


def facts(document: Facts) -> Facts:
    """Return the facts of a document, without its sentences."""
    if "error" in document:
        return {"error": document["error"].strip().rpartition("\n")[2]}
    verdict = document["verdict"]
    evidence = [f"{e['source']}:{e['line']}" for e in verdict["evidence"]]
    return {
        **{key: verdict.get(key) for key in ("outcome", "category", "pattern", "confidence", "culprit")},
        "evidence": evidence,
        "times": [(e["time"], e.get("uncertainty_s")) for e in verdict["evidence"]],
        "chain": [(c["pattern"], c["role"], c["entity"], c["explains"]) for c in document["chain"]],
        "ranks": [(r["rank"], r["host"], r["pid"], r["state"], r["exit"], r["last_step"]) for r in document["ranks"]],
        "job": document["job"],
    }


def texts(document: Facts) -> Facts:
    if "error" in document:
        return {}
    found = {key: document["verdict"].get(key) for key in ("headline", "because", "actions", "missing")}
    found["alternatives"] = document["alternatives"]
    found["why"] = [r["why"] for r in document["ranks"]]
    found["trace"] = document.get("trace")
    return found


# ── the score: outcome, category and culprit against the labels ─────────────────────────────────────────────


def named_right(named: list[Any] | None, true: list[Any] | None) -> bool:
    if not true:
        return not named
    have, want = {str(x).lower() for x in named or []}, {str(x).lower() for x in true}
    hits = {n for n in have if any(n == t or (len(t) > 6 and (t in n or n in t)) for t in want)}
    return bool(hits) and (hits == have or (len(hits) >= 2 and len(have) - len(hits) <= 1))


def exact(truth: Facts, document: Facts) -> bool:
    """Whether outcome, category and culprit agree with the labels."""
    if "error" in document:
        return False
    verdict = document["verdict"]
    right: bool = verdict["outcome"] in truth["outcomes"]
    if not right or not set(truth["outcomes"]) & {"incident", "recovered"}:
        return right
    excused = verdict["outcome"] in ("undetermined", "recovered", "healthy")
    culprit = verdict["culprit"]
    lists = ("ranks", "hosts", "gpus")
    blamed = all(named_right(culprit.get(k), truth[k]) for k in lists if truth.get(k) is not None)
    if excused and not any(culprit.get(k) for k in lists):
        blamed = True
    return (verdict["category"] in truth["categories"] or excused) and blamed


def score(cases: list[Path], documents: dict[str, Facts]) -> dict[str, str]:
    """Right of all, and right of those called established, by folder."""
    tables: dict[str, Counter[str]] = {}
    for case in cases:
        truth, document = json.loads((case / "truth.json").read_text()), documents[name_of(case)]
        count = tables.setdefault(case.parent.name, Counter())
        ok = exact(truth, document)
        count.update(["cases", *(["exact"] if ok else [])])
        if "verdict" in document and document["verdict"]["confidence"] == "established":
            count.update(["sure", *(["sure and exact"] if ok else [])])
    return {
        folder: f"exact {n['exact']}/{n['cases']} = {n['exact'] / n['cases']:.4f}, "
        f"established {n['sure and exact']}/{n['sure']}"
        for folder, n in tables.items()
    }


# ── before and after ────────────────────────────────────────────────────────────────────────────────────────


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


def moved(before: Facts, after: Facts) -> tuple[list[str], list[str]]:
    """The facts and the texts that differ, each as a line."""
    old, new = facts(before), facts(after)
    by_fact = [
        f"{k}: {short(old.get(k))} -> {short(new.get(k))}"
        for k in dict.fromkeys([*old, *new])
        if old.get(k) != new.get(k)
    ]
    old, new = texts(before), texts(after)
    by_text = [
        f"{k}: {short(old.get(k))}\n        -> {short(new.get(k))}"
        for k in dict.fromkeys([*old, *new])
        if old.get(k) != new.get(k)
    ]
    return by_fact, by_text


def short(value: object, most: int = 260) -> str:
    text = re.sub(r"\s+", " ", json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= most else text[: most - 1] + "…"


def solve_all(cases: list[Path], cache: Path | None, workers: int) -> dict[str, Facts]:
    if workers == 1:
        return {name_of(case): document_of(case, cache) for case in cases}
    with ProcessPoolExecutor(workers) as pool:
        documents = pool.map(partial(document_of, cache=cache), cases, chunksize=4)
        return dict(zip(map(name_of, cases), documents, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["save", "compare", "score"])
    parser.add_argument("cases", nargs="*", type=Path)
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "goldens")
    parser.add_argument("--only", default="", help="regular expression on the names of the cases")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-cache", action="store_true", help="read the logs again")
    parser.add_argument("--facts", action="store_true", help="list no changes of texts")
    parser.add_argument("--wrong", action="store_true", help="list the cases that are wrong now")
    parser.add_argument("--profile", type=Path, help="write a line per function that ran; implies one worker")
    options = parser.parse_args()
    cases = [c for c in cases_in(options.cases or [ROOT / "sample_logs"]) if re.search(options.only, name_of(c))]
    cache = None if options.no_cache else options.store / "timelines" / reading_key()
    if cache and not cache.exists():
        for stale in sorted((options.store / "timelines").glob("*"))[:-3]:
            for file in stale.iterdir():
                file.unlink()
            stale.rmdir()
        cache.mkdir(parents=True)
    ran: Counter[str] = Counter()
    if options.profile:
        watch(ran)
    documents = solve_all(cases, cache, 1 if options.profile else options.workers)
    if options.profile:
        sys.setprofile(None)
        options.profile.write_text("".join(f"{n}\t{where}\n" for where, n in sorted(ran.items())))
    store = options.store / "documents.json"
    saved = json.loads(store.read_text()) if store.exists() else {}
    if options.action == "save":
        store.parent.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps({**saved, **documents}))
    return report(cases, documents, saved if options.action == "compare" else {}, options)


def report(cases: list[Path], documents: dict[str, Facts], saved: dict[str, Facts], options: argparse.Namespace) -> int:
    failed = lost = 0
    counts: Counter[str] = Counter()
    for case in cases:
        name, truth = name_of(case), json.loads((case / "truth.json").read_text())
        after = documents[name]
        right = exact(truth, after)
        failed += "error" in after
        if "error" in after:
            print(f"{name}: FAILED\n{after['error']}")
        if name in saved:
            by_fact, by_text = moved(saved[name], after)
            was = exact(truth, saved[name])
            lost += was and not right
            grade = "" if was == right else "  LOST" if was else "  GAINED"
            counts.update(key.partition(":")[0] for key in [*by_fact, *by_text])
            shown = by_fact + ([] if options.facts else by_text)
            if shown or grade:
                print(f"{name}{grade}")
                print("".join(f"    {line}\n" for line in shown), end="")
        if options.wrong and not right and "verdict" in after:
            verdict = after["verdict"]
            answer = "/".join(str(verdict[k]) for k in ("outcome", "category", "pattern", "confidence"))
            want = f"{truth['outcomes']}/{truth['categories']} ranks={truth['ranks']} hosts={truth['hosts']}"
            print(f"{name}: WRONG\n    {answer} {short(verdict['culprit'])}\n    {verdict['headline']}")
            print(f"    truth: {want}: {truth['story']}")
    if saved:
        print("moved:", ", ".join(f"{key} {n}" for key, n in counts.most_common()) or "nothing")
        known = [c for c in cases if name_of(c) in saved]
        for folder, line in score(known, saved).items():
            print(f"before  {folder}: {line}")
    for folder, line in score(cases, documents).items():
        print(f"now     {folder}: {line}")
    return int(bool(failed or lost))


def watch(ran: Counter[str]) -> None:
    """Count the calls of the package's functions."""
    package = str(ROOT / "postmortem")

    def called(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            ran[f"{code.co_filename[len(package) + 1 :]}:{code.co_firstlineno}:{code.co_qualname}"] += 1

    sys.setprofile(called)


if __name__ == "__main__":
    sys.exit(main())
