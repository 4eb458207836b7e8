"""Two runs -> the rows of what differs, the most telling first: verdict, versions, world, settings, steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from postmortem.diagnose.wording import listed, ranks_text
from postmortem.fleet.diff.run import Run
from postmortem.fleet.diff.settings import Told, Values
from postmortem.model.contract.comparison import Differs
from postmortem.model.vocabulary import DIFFERENCES
from postmortem.privacy import Redactor
from postmortem.report import labels, text

MOST = 100
SLOWER = 1.3  # how much longer a step has to take
SLEEPY = 0.05  # seconds: what a busy machine does to a small step is no difference that matters
SHOWN = 80
Pair = tuple[str | None, str | None]


def differences(a: Run, b: Run) -> list[Differs]:
    """All rows."""
    rows = [
        *_verdict(a, b),
        *_told("version", a.versions, b.versions),
        *_world(a, b),
        *_told("setting", a.settings, b.settings),
        *_one_sided(a, b),
        *_steps(a, b),
        *_hosts(a, b),
        *_missing(a, b),
    ]
    rows.sort(key=lambda row: (not row["matters"], DIFFERENCES.index(row["kind"])))  # stable
    return rows[:MOST]


def row(kind: str, name: str, pair: Pair, said: str, matters: bool = True) -> Differs:
    """One row; `said` is its sentence without the end."""
    sentence = said[:1].upper() + said[1:] + "."
    return {"kind": kind, "name": name, "a": pair[0], "b": pair[1], "matters": matters, "text": sentence}


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────


def ended(document: Mapping[str, Any]) -> str:
    """`failed (host memory)`, `ended well`."""
    verdict = document["verdict"]
    category = labels.CATEGORIES.get(verdict.get("category") or "", "")
    how = {
        "healthy": "ended well",
        "recovered": "recovered",
        "incident": "failed",
        "undetermined": "left no verdict",
    }.get(verdict.get("outcome"), "left no verdict")
    return f"{how} ({category})" if category and how != "ended well" else how


def same_failure(a: Run, b: Run) -> bool:
    """Whether both failed, and of the same cause."""
    prints = a.document.get("fingerprint"), b.document.get("fingerprint")
    return prints[0] is not None and prints[0] == prints[1]


def _verdict(a: Run, b: Run) -> Iterator[Differs]:
    first, second = a.document["verdict"], b.document["verdict"]
    if all(first.get(name) == second.get(name) for name in ("outcome", "category", "pattern")):
        return
    said = f"B {ended(b.document)} where A {ended(a.document)}"
    if ended(a.document) == ended(b.document):
        said = f"both {ended(a.document)}, A of `{first.get('pattern')}`, B of `{second.get('pattern')}`"
    yield row("verdict", "verdict", (ended(a.document), ended(b.document)), said)


# ── what it was started with ────────────────────────────────────────────────────────────────────────────────


def _told(kind: str, a: Told, b: Told) -> Iterator[Differs]:
    for name in sorted(a.keys() & b.keys()):
        if not _alike(a[name], b[name]):
            first, second = _shown(name, a[name]), _shown(name, b[name])
            yield row(kind, name, (first, second), f"B has {_of(kind, name, second)} where A has {first}")


def _of(kind: str, name: str, value: str) -> str:
    return f"{name} {value}" if kind == "version" else f"{name}={value}"


def _alike(a: Values, b: Values) -> bool:
    """Whether they say the same; `2.21.5` and `2.21.5+cuda12.4` do, by who tells less."""
    if a.keys() == b.keys():
        return True
    return len(a) == len(b) == 1 and _less(next(iter(a)), next(iter(b)))


def _less(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and long[len(short)] in "+" if short != long else True


def _shown(name: str, values: Values) -> str:
    """`2.5.1`, or `2.5.1 (ranks 0–2) and 2.6.0 (rank 3)` where ranks differ."""
    clean = {_safe(name, value): ranks for value, ranks in values.items()}
    if len(clean) == 1:
        return next(iter(clean))
    parts = []
    for value, ranks in list(clean.items())[:3]:
        known = [rank for rank in ranks if rank is not None]
        parts.append(f"{value} ({ranks_text(known)})" if known else value)
    return listed(parts)


def _safe(name: str, value: str) -> str:
    """A value without what is a secret by its name or by its looks."""
    redacted = Redactor().text(f"{name}={value}")
    kept = value if redacted == f"{name}={value}" else "[REDACTED]"
    return text.line(kept, SHOWN)


def _one_sided(a: Run, b: Run) -> Iterator[Differs]:
    """Of the environment: what one has set and the other has not, where both tell their environment."""
    if a.heard is None or b.heard is None or not {"environment"} <= a.heard.kinds & b.heard.kinds:
        return
    for name in sorted(a.settings.keys() ^ b.settings.keys()):
        if name.isupper():
            has, side, lacks = (b.settings, "B", "A") if name in b.settings else (a.settings, "A", "B")
            value = _shown(name, has[name])
            pair: Pair = (None, value) if side == "B" else (value, None)
            yield row("setting", name, pair, f"{side} has {name}={value}, which {lacks} has not set")


# ── the world ───────────────────────────────────────────────────────────────────────────────────────────────


def _world(a: Run, b: Run) -> Iterator[Differs]:
    first, second = a.document["job"], b.document["job"]
    for name, said in (("world_size", _ranks), ("hosts", _host_count)):
        one, other = said(first), said(second)
        if one and other and one != other:
            few = one.split()[0]
            yield row("world", name, (one, other), f"B has {other} where A has {few}")


def _ranks(job: Mapping[str, Any]) -> str:
    return text.plural(job["world_size"], "rank") if job.get("world_size") else ""


def _host_count(job: Mapping[str, Any]) -> str:
    return text.plural(len(job["hosts"]), "host") if job.get("hosts") else ""


def _hosts(a: Run, b: Run) -> Iterator[Differs]:
    """On which hosts. It matters where the one at fault is one that the other run was not on."""
    first, second = (set(run.document["job"].get("hosts") or ()) for run in (a, b))
    if not first or not second or first == second:
        return
    blamed = set(b.document["verdict"].get("culprit", {}).get("hosts") or ()) & (second - first)
    ran = f"B ran on {_some(second - first)}" if second - first else f"B did not run on {_some(first - second)}"
    said = f"{ran}, where A ran on {_some(first - second) if first - second else 'fewer hosts'}"
    if not second - first:
        said = f"{ran}, where A did"
    yield row("hosts", "hosts", (_some(first), _some(second)), said, bool(blamed))


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    return listed(known) if len(known) <= 4 else f"{', '.join(known[:3])} and {len(known) - 3} more"


# ── how it ran, and what is not there ───────────────────────────────────────────────────────────────────────


def _steps(a: Run, b: Run) -> Iterator[Differs]:
    """A step takes longer where most of its steps do, not where one stood still."""
    if a.steps is None or b.steps is None:
        return
    first, second = a.steps, b.steps
    slow, fast = (second, first) if second.median > first.median else (first, second)
    if slow.median < SLOWER * fast.median or slow.low <= fast.high:
        return
    felt = slow.median - fast.median >= SLEEPY
    shown = text.seconds(first.median), text.seconds(second.median)
    yield row("step-time", "step", shown, f"a step of B takes {shown[1]} where one of A takes {shown[0]}", felt)


def _missing(a: Run, b: Run) -> Iterator[Differs]:
    """Logs that one has and the other has not: what cannot be compared may hold the difference."""
    kinds = [{source.get("kind") for source in run.document.get("sources") or ()} for run in (a, b)]
    for kind in sorted(filter(None, kinds[0] ^ kinds[1])):
        if kind in labels_of_kinds:
            has, lacks = ("A", "B") if kind in kinds[0] else ("B", "A")
            pair: Pair = ("there", None) if has == "A" else (None, "there")
            said = f"{lacks} has no {labels_of_kinds[kind]}, which {has} has"
            yield row("missing", labels_of_kinds[kind], pair, said, False)
    for run, name in ((a, "A"), (b, "B")):
        lost = [item for item in run.document["ledger"].get("skipped") or () if item.get("lost")]
        if lost:
            said = f"of {name} {text.plural(len(lost), 'file')} could not be read as a whole"
            pair = (f"{len(lost)} lost", None) if name == "A" else (None, f"{len(lost)} lost")
            yield row("missing", "unread", pair, said, False)


labels_of_kinds = {
    "kernel": "kernel log",
    "scheduler": "log of the scheduler",
    "flight-recorder": "flight recorder dump",
    "stack": "stack of a rank",
    "agent": "log of the launcher",
    "gpu-report": "report of the GPUs",
    "environment": "environment",
}
