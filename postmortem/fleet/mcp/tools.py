"""Answers of the tools: a `Scope`, the arguments, and the cases that were read for them -> plain values.

    timeline(scope, {"severity": "error", "ranks": [3]}, case)
    -> {"rows": [{"time": "…", "where": "rank3.log:81", "text": "…"}], "found": 214, "left_out": 174, …}

Any answer may quote a log, and no log can pass for anything but a quotation: `sealed` marks the answer with a keyed
digest of it, with a random key of the server. The same answer has the same mark.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postmortem.errors import UsageError
from postmortem.fleet.history.rows import stamp
from postmortem.fleet.mcp import roots, window
from postmortem.fleet.mcp.cases import Case
from postmortem.fleet.mcp.roots import Roots
from postmortem.input.names import printable
from postmortem.privacy import Redactor
from postmortem.report import json as plain
from postmortem.report import text, view
from postmortem.report.events import SEVERITIES, Row
from postmortem.report.json import shortened
from postmortem.system.arguments import moment
from postmortem.workshop import catalogue

Arguments = Mapping[str, Any]
ROWS = 40  # default number of rows; tools.yaml has it too
SLACK = 0.001  # seconds to which times are printed
AROUND, LINES_MOST = 5, 200
PROOFS, BYTES = 5, 3000  # lines of proof in a brief, and its bytes
WIDE = 400  # characters of a log line in an answer
EXPLANATION = 10_000
COMPARED = {"differences": 40, "lines": 16}  # rows of a comparison
FILED = (
    "when", "outcome", "category", "pattern", "confidence", "headline", "fingerprint", "code", "job",
    "world_size", "lost_rank_hours", "report",
)  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """What a tool may use: the roots, folders of patterns, the history, and whether its call was cancelled."""

    roots: Roots
    patterns: tuple[Path, ...] = ()
    history: str | None = None
    stopped: Callable[[], bool] = lambda: False


def short(value: Any, wide: int = 300) -> Any:
    """Return a plain value with its texts cut, and without empty parts."""
    if isinstance(value, str):
        return text.line(value, wide)
    if isinstance(value, Mapping):
        parts = {str(name): short(item, wide) for name, item in value.items()}
        return {name: item for name, item in parts.items() if item not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [short(item, wide) for item in value]
    return value


def _page(rows: list[Any], asked: Arguments, show: Callable[[Any], Any] = short) -> Answer:
    """Return the rows that the arguments `after` and `limit` select, as `show` makes them."""
    first = asked.get("after", 0)
    return page(rows, first, fitting(map(show, rows[first:]), asked.get("limit", ROWS)))


def incidents(scope: Scope, asked: Arguments) -> Answer:
    folder = scope.roots.find(asked["path"]) if asked.get("path") else None
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{asked['path']} is a file", "ask `analyze` to read it, or `verdict` if it is a report")
    return _page(roots.rows(scope.roots, folder, scope.stopped), asked)


def analyze(scope: Scope, asked: Arguments, case: Case) -> Answer:
    files = len(view.rows(case.document.get("sources")))
    return {"brief": shortened(case.document, PROOFS, BYTES), "read": {"events": len(case.rows), "files": files}}


def verdict(scope: Scope, asked: Arguments) -> Answer:
    path = scope.roots.find(asked["path"])
    if path.is_dir():
        raise UsageError(f"{asked['path']} is a folder", "ask `analyze` to read its logs")
    return {"brief": shortened(roots.document(path), PROOFS, BYTES)}


def details(scope: Scope, asked: Arguments, case: Case) -> Answer:
    rows = _table(case, asked["part"])
    if asked["part"] == "ranks":  # the odd ones first, as in the report
        rows.sort(key=lambda row: (view.oddness(row), row["rank"]))
        wanted = set(asked.get("ranks", ()))
        rows = [row for row in rows if not wanted or row["rank"] in wanted]
    return {"part": asked["part"], **_page(rows, asked)}


def _table(case: Case, name: str) -> list[Any]:
    document = case.document
    if name == "skipped":
        return list(document["ledger"]["skipped"])
    if name == "chain":  # with addresses in place of numbers
        return [_step(step) for step in view.steps(document)]
    if name == "evidence":  # `lines` gives the lines around it
        context = {"context", "context_before"}
        return [{k: v for k, v in row.items() if k not in context} for row in document["verdict"]["evidence"]]
    found = document[name]
    return list(found) if isinstance(found, list | tuple) else [found]


def _step(step: view.Step) -> Answer:
    found = {
        "role": step.role,
        "who": step.who,
        "pattern": step.pattern,
        "because": text.sentence(step.because, WIDE),
        "evidence": [proof.address for proof in step.proofs[:2]],
    }
    return {name: value for name, value in found.items() if value}


def timeline(scope: Scope, asked: Arguments, case: Case) -> Answer:
    found = list(_matching(case.rows, asked))
    answer = _page(found, asked, _event)
    if not found:
        answer["instead"] = _span(case.rows)
    return answer | ({"incomplete": list(case.notes)} if case.notes else {})


def _matching(rows: Iterable[Row], asked: Arguments) -> Iterator[Row]:
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
            and (since is None or row.time >= since - SLACK)  # no comparison holds for an unknown time
            and (until is None or row.time <= until + SLACK)
            and (not words or words in row.text.casefold())
        ):
            yield row


def _event(row: Row) -> Answer:
    known = row.time == row.time
    found = {
        "time": stamp(row.time) if known else None,
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


def _span(rows: tuple[Row, ...]) -> str:
    times = [row.time for row in rows if row.time == row.time]
    if not times:
        return f"{len(rows):,} events, none of a known time"
    return f"{len(rows):,} events from {stamp(times[0])} to {stamp(times[-1])}; ask with fewer conditions"


def lines(scope: Scope, asked: Arguments, case: Case) -> Answer:
    redactor = case.redactor()
    request = window.wanted(asked["where"], asked.get("around", AROUND), LINES_MOST)
    found = window.lines_around(list(map(str, case.paths)), request, redactor.path, scope.stopped)
    cleaned: Any = redactor.document([printable(line) for line in found.lines])
    low, high = found.asked
    numbered = (f"{n}| {text.line(line, WIDE)}" for n, line in enumerate(cleaned, found.first) if low <= n <= high)
    rows = fitting(numbered, LINES_MOST, ROOM)
    last = low + len(rows) - 1
    answer: Answer = {"file": request.file, "lines": rows}
    if last < high or found.more:
        answer["next"] = {"where": f"{request.file}:{last + 1}-{max(high, request.last)}"}
    return answer | ({"incomplete": text.sentence(found.note, 300)} if found.note else {})


def history(scope: Scope, asked: Arguments) -> Answer:
    if not scope.history:
        raise UsageError("this server has no history", "a person may start it with --history FILE|URL")
    from postmortem.fleet.history.store import opened

    conditions = {name: asked[name] for name in ("category", "host", "job", "fingerprint") if name in asked}
    if "-" not in conditions.get("fingerprint", "-"):
        conditions["cause"] = conditions.pop("fingerprint")
    for name in ("since", "until"):
        if (at := moment(asked.get(name), name)) is not None:
            conditions[name] = stamp(at)
    with opened(scope.history, reads=True) as store:
        found, notes = store.rows(**conditions), store.notes(**conditions)

    def shown(row: Answer) -> Any:
        own = [f"{note['noted'][:10]}: {note['text']}" for note in notes if note["uid"] == row["uid"]]
        return Redactor().document(short({**{name: row[name] for name in FILED}, "notes": own[-3:]}))

    return _page(found, asked, shown)


def diff(scope: Scope, asked: Arguments, case: Case) -> Answer:
    """Return the comparison, with as many rows of its lists as fit."""
    found: Answer = {name: value for name, value in case.document.items() if name != "schema"}
    for side, path in zip("ab", case.paths, strict=True):
        found[side] = short({**found[side], "path": scope.roots.shown(path)}, WIDE)
    more = {}
    for name, most in COMPARED.items():
        rows = found[name]
        found[name] = fitting((short(row, WIDE) for row in rows), most, ROOM // 2)
        if left := len(rows) - len(found[name]):
            more[name] = left
    return found | ({"more": more} if more else {})


def explain(scope: Scope, asked: Arguments) -> Answer:
    pattern = catalogue.find(asked["pattern"], scope.patterns)
    explanation = catalogue.explain(pattern)
    cut = {"left_out": len(explanation) - EXPLANATION} if len(explanation) > EXPLANATION else {}
    return {"pattern": pattern.id, "explanation": explanation[:EXPLANATION], **cut}


FUNCTIONS = {f.__name__: f for f in (incidents, analyze, verdict, lines, timeline, details, history, diff, explain)}


# ── answers of bounded size ─────────────────────────────────────────────────────────────────────────────────

ROOM = 12_000  # bytes of the rows of one answer
Answer = dict[str, Any]


def sealed(answer: Mapping[str, Any], key: bytes) -> Answer:
    """Return the answer between two marks, with terminal control characters written out."""
    body = plain.harmless(plain.dump(answer, order=False))
    mark = f"quoted-{hmac.new(key, body.encode('utf-8', 'surrogatepass'), hashlib.sha256).hexdigest()[:12]}"
    return {"begin": mark, **json.loads(body), "end": mark}


def fitting(rows: Iterable[Any], most: int, room: int = ROOM) -> list[Any]:
    """Return the first rows, at most `most` and of at most `room` bytes."""
    shown: list[Any] = []
    for row in rows:
        room -= len(plain.dump(row, order=False).encode("utf-8", "surrogatepass")) + 1
        if room < 0 or len(shown) == most:
            break
        shown.append(row)
    return shown


def page(rows: Sequence[Any], first: int, shown: Sequence[Any]) -> Answer:
    """Return the shown rows from number `first` on, the number of all, and the arguments for the rest."""
    end = first + len(shown)
    rest = {"left_out": len(rows) - end, "next": {"after": end}} if end < len(rows) else {}
    return {"rows": list(shown), "found": len(rows), **rest}
