"""Two runs -> the rows of their differences, the most significant first: verdict, versions, world, settings, steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from postmortem.diagnose.wording import listed, ranks_text
from postmortem.fleet.diff.run import Named, Run, Values
from postmortem.model.contract.comparison import Differs
from postmortem.model.vocabulary import DIFFERENCES
from postmortem.privacy import Redactor
from postmortem.report import labels, text

MOST_ROWS = 100
SLOWER = 1.3  # minimum ratio of step times
SLEEPY = 0.05  # seconds by which a busy machine delays a small step
SHOWN = 80
OUTCOMES = {"healthy": "ended well", "recovered": "recovered", "incident": "failed"}
KINDS = {
    "kernel": "kernel log",
    "scheduler": "log of the scheduler",
    "slurm": "table of Slurm",
    "ras": "report of NCCL RAS",
    "flight-recorder": "flight recorder dump",
    "stack": "stack of a rank",
    "agent": "log of the launcher",
    "gpu-report": "report of the GPUs",
    "environment": "environment",
}
Pair = tuple[str | None, str | None]


def differences(a: Run, b: Run) -> list[Differs]:
    rows = [
        *_verdict(a, b),
        *_unequal("version", a.versions, b.versions),
        *_world(a, b),
        *_unequal("setting", a.settings, b.settings),
        *_one_sided(a, b),
        *_steps(a, b),
        *_hosts(a, b),
        *_missing(a, b),
    ]
    rows.sort(key=lambda row: (not row["matters"], DIFFERENCES.index(row["kind"])))  # stable
    return rows[:MOST_ROWS]


def _row(kind: str, name: str, pair: Pair, sentence: str, matters: bool = True) -> Differs:
    sentence = sentence[:1].upper() + sentence[1:] + "."
    return {"kind": kind, "name": name, "a": pair[0], "b": pair[1], "matters": matters, "text": sentence}


def ended(run: Run) -> str:
    """Return `failed (host memory)`, `ended well`."""
    category = labels.CATEGORIES.get(run.document["verdict"].get("category") or "", "")
    outcome = OUTCOMES.get(run.outcome, "left no verdict")
    return f"{outcome} ({category})" if category and run.outcome != "healthy" else outcome


def same_failure(a: Run, b: Run) -> bool:
    """Return whether both failed of the same cause."""
    mark = a.document.get("fingerprint")
    return mark is not None and mark == b.document.get("fingerprint")


def _verdict(a: Run, b: Run) -> Iterator[Differs]:
    first, second = a.document["verdict"], b.document["verdict"]
    if all(first.get(name) == second.get(name) for name in ("outcome", "category", "pattern")):
        return
    sentence = f"B {ended(b)} where A {ended(a)}"
    if ended(a) == ended(b):
        sentence = f"both {ended(a)}, A of `{first.get('pattern')}`, B of `{second.get('pattern')}`"
    yield _row("verdict", "verdict", (ended(a), ended(b)), sentence)


def _unequal(kind: str, a: Named, b: Named) -> Iterator[Differs]:
    sign = " " if kind == "version" else "="
    for name in sorted(a.keys() & b.keys()):
        if not _alike(a[name], b[name]):
            first, second = _shown(name, a[name]), _shown(name, b[name])
            yield _row(kind, name, (first, second), f"B has {name}{sign}{second} where A has {first}")


def _alike(a: Values, b: Values) -> bool:
    """Return whether values are equal; `2.21.5` equals `2.21.5+cuda12.4`."""
    if a.keys() == b.keys() or len(a) != 1 or len(b) != 1:
        return a.keys() == b.keys()
    short, long = sorted((*a, *b), key=len)
    return long.startswith(f"{short}+")


def _shown(name: str, values: Values) -> str:
    """Return `2.5.1`, or `2.5.1 (ranks 0–2) and 2.6.0 (rank 3)` where ranks differ."""
    clean = {_safe(name, value): ranks for value, ranks in values.items()}
    if len(clean) == 1:
        return next(iter(clean))
    parts = []
    for value, ranks in list(clean.items())[:3]:
        known = [rank for rank in ranks if rank is not None]
        parts.append(f"{value} ({ranks_text(known)})" if known else value)
    return listed(parts)


def _safe(name: str, value: str) -> str:
    """Return a value unless it is a secret by its name or its form."""
    pair = f"{name}={value}"
    return text.line(value if Redactor().text(pair) == pair else "[REDACTED]", SHOWN)


def _one_sided(a: Run, b: Run) -> Iterator[Differs]:
    """Yield variables that only one has, if the environment of both was collected."""
    if a.lines is None or b.lines is None or "environment" not in a.lines.kinds & b.lines.kinds:
        return
    for name in sorted(a.settings.keys() ^ b.settings.keys()):
        if name.isupper():
            has, side, lacks = (b.settings, "B", "A") if name in b.settings else (a.settings, "A", "B")
            value = _shown(name, has[name])
            yield _row("setting", name, _only(side, value), f"{side} has {name}={value}, which {lacks} does not set")


def _only(side: str, value: str) -> Pair:
    return (value, None) if side == "A" else (None, value)


def _world(a: Run, b: Run) -> Iterator[Differs]:
    first, second = a.document["job"], b.document["job"]
    sizes = [(job.get("world_size") or 0, len(job.get("hosts") or ())) for job in (first, second)]
    for name, noun, one, other in zip(("world_size", "hosts"), ("rank", "host"), *sizes, strict=True):
        if one and other and one != other:
            pair = text.plural(one, noun), text.plural(other, noun)
            yield _row("world", name, pair, f"B has {pair[1]} where A has {pair[0].split()[0]}")


def _hosts(a: Run, b: Run) -> Iterator[Differs]:
    """Yield the difference in hosts. It matters if a host at fault is new."""
    first, second = (set(run.document["job"].get("hosts") or ()) for run in (a, b))
    if not first or not second or first == second:
        return
    new, gone = second - first, first - second
    blamed = set(b.document["verdict"].get("culprit", {}).get("hosts") or ()) & new
    sentence = f"B did not run on {_some(gone)}, where A did"
    if new:
        sentence = f"B ran on {_some(new)}, where A ran on {_some(gone) if gone else 'fewer hosts'}"
    yield _row("hosts", "hosts", (_some(first), _some(second)), sentence, bool(blamed))


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    return listed(known) if len(known) <= 4 else f"{', '.join(known[:3])} and {len(known) - 3} more"


def _steps(a: Run, b: Run) -> Iterator[Differs]:
    """Yield the difference in step time if most steps are slower, not only one that waited."""
    if a.steps is None or b.steps is None:
        return
    fast, slow = sorted((a.steps, b.steps), key=lambda steps: steps.median)
    if slow.median < SLOWER * fast.median or slow.low <= fast.high:
        return
    one, other = text.seconds(a.steps.median), text.seconds(b.steps.median)
    sentence = f"a step of B takes {other} where one of A takes {one}"
    yield _row("step-time", "step", (one, other), sentence, slow.median - fast.median >= SLEEPY)


def _missing(a: Run, b: Run) -> Iterator[Differs]:
    """Yield logs that only one has, and unread files: they may hold the difference."""
    kinds = [{source.get("kind") for source in run.document.get("sources") or ()} for run in (a, b)]
    for kind in sorted((kinds[0] ^ kinds[1]) & KINDS.keys()):
        has, lacks = ("A", "B") if kind in kinds[0] else ("B", "A")
        sentence = f"{lacks} has no {KINDS[kind]}, which {has} has"
        yield _row("missing", KINDS[kind], _only(has, "there"), sentence, False)
    for run, side in ((a, "A"), (b, "B")):
        lost = sum(bool(item.get("lost")) for item in run.document["ledger"].get("skipped") or ())
        if lost:
            sentence = f"{text.plural(lost, 'file')} of {side} could not be read completely"
            yield _row("missing", "unread", _only(side, f"{lost} lost"), sentence, False)
