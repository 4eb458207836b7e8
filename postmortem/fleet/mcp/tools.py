"""What each tool answers: questions of a `Desk` and of the cases that were read for it -> plain values.

    timeline(desk, {"severity": "error", "ranks": [3]}, case)
    -> {"rows": [{"time": "…", "where": "rank3.log:81", "text": "…"}], "found": 214, "left_out": 174, …}

All of it may quote a log; `answers.sealed` marks it for that on the way out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from postmortem.errors import UsageError
from postmortem.fleet.mcp import answers, lists, window
from postmortem.fleet.mcp.answers import ROOM, Answer
from postmortem.fleet.mcp.cases import Case
from postmortem.fleet.mcp.roots import Roots
from postmortem.input.names import printable
from postmortem.privacy import Redactor
from postmortem.report import text, view
from postmortem.report.brief import render_brief
from postmortem.report.events import SEVERITIES, Row
from postmortem.system.arguments import moment
from postmortem.workshop import catalogue

Asked = Mapping[str, Any]
ROWS, ROWS_MOST = 40, 500
TOLD = 0.001  # seconds to which times are told
AROUND, LINES_MOST = 5, 200
LEAST = {"evidence": 5, "chain": 0, "missing": 3}  # rows of a brief's lists
WIDE = 400  # characters of a log line in an answer
EXPLANATION = 10_000
COMPARED = {"differences": 40, "lines": 16}  # rows of a comparison


@dataclass(frozen=True)
class Desk:
    """What a tool may use: the roots, folders of patterns, and whether nobody waits any more."""

    roots: Roots
    patterns: tuple[Path, ...] = ()
    history: str | None = None
    stopped: Callable[[], bool] = lambda: False


# ── what is there, and the verdict ──────────────────────────────────────────────────────────────────────────


def incidents(desk: Desk, asked: Asked) -> Answer:
    given = asked.get("path", "")
    folder = desk.roots.find(given) if given else None
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{given} is a file", "ask `analyze` to read it, or `verdict` if it is a report")
    found = lists.rows(desk.roots, folder, desk.stopped)
    first = asked.get("after", 0)
    return answers.page("rows", found, first, answers.fitting(map(answers.short, found[first:]), ROWS))


def analyze(desk: Desk, asked: Asked, case: Case) -> Answer:
    brief = _verdict(case)
    events = {"events": len(case.rows), "files": len(view.rows(case.document.get("sources")))}
    return {"brief": brief, "read": events}


def verdict(desk: Desk, asked: Asked) -> Answer:
    path = desk.roots.find(asked["path"])
    if path.is_dir():
        raise UsageError(f"{asked['path']} is a folder", "ask `analyze` to read its logs")
    found = SimpleNamespace(document=lists.document(path), timeline=None)
    return {"brief": _verdict(found)}


def _verdict(incident: view.Incident) -> Answer:
    """The brief with its strongest lines, and without the chain, which repeats them with the words of
    `explain`: half of its bytes."""
    brief: Answer = json.loads(render_brief(incident))
    more = brief.pop("more", {})
    for name, most in LEAST.items():
        kept = brief.get(name, [])
        if left := max(0, len(kept) - most) + more.get(name, 0):
            more[name] = left
        if kept:
            brief[name] = kept[:most]
    return {name: value for name, value in {**brief, "more": more}.items() if value not in ([], {})}


# ── what is behind it ───────────────────────────────────────────────────────────────────────────────────────

PARTS = (
    "ranks", "stacks", "evidence", "chain", "attempts", "alternatives", "unexplained", "findings", "clocks",
    "sources", "skipped", "job", "other_jobs", "trace",
)  # fmt: skip


def details(desk: Desk, asked: Asked, case: Case) -> Answer:
    name, first = asked["part"], asked.get("after", 0)
    rows = _table(case, name)
    if name == "ranks":  # the odd ones first, as in the report
        rows.sort(key=lambda row: (view.oddness(row), row["rank"]))
        wanted = set(asked.get("ranks", ()))
        rows = [row for row in rows if not wanted or row["rank"] in wanted]
    kept = answers.fitting(map(answers.short, rows[first:]), asked.get("limit", ROWS))
    return {"part": name, **answers.page("rows", rows, first, kept)}


def _table(case: Case, name: str) -> list[Any]:
    document = case.document
    if name == "skipped":
        return list(document["ledger"]["skipped"])
    if name == "chain":  # with addresses in place of numbers
        return list(json.loads(render_brief(case)).get("chain", ()))
    if name == "evidence":  # `lines` gives the lines around it
        context = {"context", "context_before"}
        return [{k: v for k, v in row.items() if k not in context} for row in document["verdict"]["evidence"]]
    found = document[name]
    return list(found) if isinstance(found, list | tuple) else [found]


def timeline(desk: Desk, asked: Asked, case: Case) -> Answer:
    found = list(_chosen(case.rows, asked))
    first = asked.get("after", 0)
    kept = answers.fitting(map(_shown, found[first:]), asked.get("limit", ROWS))
    answer = answers.page("rows", found, first, kept)
    if not found:
        answer["instead"] = _span(case.rows)
    return answer | ({"incomplete": list(case.notes)} if case.notes else {})


def _chosen(rows: Iterable[Row], asked: Asked) -> Iterator[Row]:
    since, until = moment(asked.get("since"), "since"), moment(asked.get("until"), "until")
    least = SEVERITIES.index(asked.get("severity", SEVERITIES[0]))
    ranks, hosts, kinds = (set(asked.get(name, ())) for name in ("ranks", "hosts", "kinds"))
    words, pattern = asked.get("text", "").casefold(), asked.get("pattern", "")
    for row in rows:
        if (
            SEVERITIES.index(row.severity) >= least
            and (not ranks or row.rank in ranks)
            and (not hosts or row.host in hosts)
            and (not kinds or row.kind in kinds)
            and (not pattern or row.pattern == pattern)
            and (since is None or row.time >= since - TOLD)  # no comparison holds for an unknown time
            and (until is None or row.time <= until + TOLD)
            and (not words or words in row.text.casefold())
        ):
            yield row


def _shown(row: Row) -> Answer:
    known = row.time == row.time
    found = {
        "time": _iso(row.time) if known else None,
        "uncertainty_s": round(row.sigma, 3) if known and row.sigma >= 0.05 else None,
        "rank": row.rank,
        "host": row.host,
        "severity": row.severity if row.severity != "info" else None,
        "kind": row.kind if row.kind not in ("pattern", "line") else None,
        "pattern": row.pattern,
        "where": row.address,
        "text": text.line(row.text, WIDE),
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _iso(at: float) -> str:
    return text.utc(at, "%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _span(rows: tuple[Row, ...]) -> str:
    times = [row.time for row in rows if row.time == row.time]
    if not times:
        return f"{len(rows):,} events, none of a known time"
    return f"{len(rows):,} events from {_iso(times[0])} to {_iso(times[-1])}; ask with fewer conditions"


def lines(desk: Desk, asked: Asked, case: Case) -> Answer:
    redactor = case.redactor()
    what = window.wanted(asked["where"], asked.get("around", AROUND), LINES_MOST)
    paths = [str(path) for path in case.paths]
    seen = window.lines_around(paths, what, redactor.path, desk.stopped)
    cleaned = redactor.document([printable(line) for line in seen.lines])
    assert isinstance(cleaned, list)
    low, high = seen.asked
    rows = [
        f"{number}| {text.line(said, WIDE)}" for number, said in enumerate(cleaned, seen.first) if low <= number <= high
    ]
    kept = answers.fitting(rows, LINES_MOST, ROOM)
    last = low + len(kept) - 1
    found: Answer = {"file": what.file, "lines": kept}
    if last < high or seen.more:
        found["next"] = {"where": f"{what.file}:{last + 1}-{max(high, what.last)}"}
    return found | ({"incomplete": text.sentence(seen.note, 300)} if seen.note else {})


FILED = (
    "when", "outcome", "category", "pattern", "confidence", "headline", "fingerprint", "code", "job",
    "world_size", "lost_rank_hours", "report",
)  # fmt: skip


def history(desk: Desk, asked: Asked) -> Answer:
    if not desk.history:
        raise UsageError("this server has no history", "a person may start it with --history FILE|URL")
    from postmortem.fleet.history.store import opened

    conditions = {name: asked[name] for name in ("category", "host", "job", "fingerprint") if name in asked}
    if "-" not in conditions.get("fingerprint", "-"):
        conditions["cause"] = conditions.pop("fingerprint")
    for name in ("since", "until"):
        if (at := moment(asked.get(name), name)) is not None:
            conditions[name] = _iso(at)
    with opened(desk.history, reads=True) as store:
        found, written = store.rows(**conditions), store.notes(**conditions)
    said: dict[str, list[str]] = {}
    for note in written:
        said.setdefault(note["uid"], []).append(f"{note['noted'][:10]}: {note['text']}")
    first = asked.get("after", 0)
    told = ({**{name: row[name] for name in FILED}, "notes": said.get(row["uid"], [])[-3:]} for row in found[first:])
    kept = answers.fitting(map(answers.short, told), asked.get("limit", ROWS))
    return answers.page("rows", found, first, [_clean(row) for row in kept])


def _clean(row: Answer) -> Answer:
    cleaned = Redactor().document(row)
    assert isinstance(cleaned, dict)
    return cleaned


def diff(desk: Desk, asked: Asked, case: Case) -> Answer:
    """The comparison: of its two lists what fits, the most telling first."""
    found: Answer = dict(case.document)
    del found["schema"]
    for side, path in zip("ab", case.paths, strict=True):
        found[side] = answers.short({**found[side], "path": desk.roots.shown(path)}, WIDE)
    more = {}
    for name, most in COMPARED.items():
        rows = found[name]
        found[name] = answers.fitting((answers.short(row, WIDE) for row in rows), most, ROOM // 2)
        if left := len(rows) - len(found[name]):
            more[name] = left
    return found | ({"more": more} if more else {})


def explain(desk: Desk, asked: Asked) -> Answer:
    pattern = catalogue.find(asked["pattern"], desk.patterns)
    said = catalogue.explain(pattern)
    cut = {"left_out": len(said) - EXPLANATION} if len(said) > EXPLANATION else {}
    return {"pattern": pattern.id, "explanation": said[:EXPLANATION], **cut}
