"""The usual causes of filed incidents: which one was the true one, and what changed since the last report of a job.

    resolve(store, uid, "host-memory", "anna")
    counts(store)   ->  {"external-signal": {"host-memory": 7, "killed-by-person": 1}}
    table(store)    ->  [{"cause": "host-memory", "true": 7, "first": 11, "both": 6}, …]

The counts are all that a site adds to the weights of its usual causes (`postmortem.causes.weigh`).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from postmortem.fleet.history.rows import Row, Usual, stamp
from postmortem.fleet.history.schema import incidents, inputs, resolutions, usual
from postmortem.report import text
from postmortem.report.summary import day

if TYPE_CHECKING:
    from postmortem.fleet.history.store import Store  # imported first: its error names the missing extra

REPORTS = 50  # of one job
CONFIRMS = {  # the usual causes that an established verdict of the category is the proof of
    "host-oom": ("host-memory", "memory-limit", "low-memory-master"),
    "gpu-oom": ("batch-too-large",),
    "gpu-hardware": ("bad-hardware", "gpu-stuck"),
    "network": ("network-loss", "transport-first", "nccl-transport"),
    "scheduler": ("scheduler-stop",),
    "node": ("node-lost",),
    "storage": ("disk-full", "quota", "permission", "network-filesystem", "path-on-one-host"),
    "native-crash": ("crash-elsewhere", "silent-death"),
    "python-exception": ("exception-above", "import-or-arguments"),
}


def resolve(store: Store, uid: str, cause: str, author: str | None = None) -> int:
    """Record the true cause of an incident, or another one, in all reports of this job. Return their number."""
    values = {"cause": cause, "resolved": stamp(time.time()), "author": author}
    (own,) = store.rows(uid=uid)
    digests = [each["digest"] for each in store.read(sa.select(inputs.c.digest).where(inputs.c.uid == uid))]
    reports = store.read(_same_job(uid, digests, own["job"], own["begun"]).limit(REPORTS))
    query = store.insert(resolutions).on_conflict_do_update(index_elements=["uid"], set_=values)
    with store.begun() as c:
        c.execute(query, [{"uid": each["uid"], **values} for each in reports])
    return len(reports)


def of(store: Store, uid: str) -> str | None:
    """Return the true cause of an incident, if it is recorded."""
    found = store.read(sa.select(resolutions.c.cause).where(resolutions.c.uid == uid))
    return found[0]["cause"] if found else None


def counts(store: Store) -> dict[str, dict[str, int]]:
    """Return how often each cause was the true one, by the category of the verdict."""
    number = sa.func.count().label("n")
    query = sa.select(incidents.c.category, resolutions.c.cause, number).join(incidents)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for each in store.read(query.group_by(incidents.c.category, resolutions.c.cause)):
        found[each["category"] or ""][each["cause"]] = each["n"]
    return dict(found)


def table(store: Store) -> list[dict[str, Any]]:
    """Return for each cause how often it was the true one, how often it was first on the list, and how often both;
    of resolved incidents."""
    first = sa.and_(usual.c.uid == resolutions.c.uid, usual.c.place == 1)
    pairs = store.read(sa.select(resolutions.c.cause, usual.c.cause.label("first")).outerjoin(usual, first))
    true, listed = (Counter(each[name] for each in pairs if each[name]) for name in ("cause", "first"))
    both = Counter(each["cause"] for each in pairs if each["cause"] == each["first"])
    rows = ({"cause": c, "true": true[c], "first": listed[c], "both": both[c]} for c in {*true, *listed})
    return sorted(rows, key=lambda row: (-row["true"], -row["first"], row["cause"]))


# ── the last report of the same job ─────────────────────────────────────────────────────────────────────────


def changed(store: Store, row: Row) -> list[str]:
    """Return sentences on what changed since the last report of the job of `row`, which is not filed yet."""
    before = store.read(_same_job(row.uid, row.inputs, row.job, row.begun).limit(1))
    if not before:
        return []
    query = sa.select(usual.c.cause, usual.c.title).where(usual.c.uid == before[0]["uid"]).order_by(usual.c.place)
    listed = [Usual(each["cause"], each["title"]) for each in store.read(query)]
    found = list(changes(before[0], listed, row))
    if not found and before[0]["uid"] != row.uid:
        return [f"Nothing since the report of {day(before[0]['filed'])}: the other logs do not decide more."]
    return found


def _same_job(uid: str, digests: Sequence[str], job: str | None, begun: str | None) -> sa.Select[Any]:
    """Reports with these logs, with some of them, or with more; or of the same job with the same begin; the latest
    first."""
    shared = (
        sa.select(inputs.c.uid, sa.func.count().label("n"))
        .where(inputs.c.digest.in_(digests))
        .group_by(inputs.c.uid)
        .subquery()
    )
    total = sa.select(sa.func.count()).where(inputs.c.uid == shared.c.uid).correlate(shared).scalar_subquery()
    logs = sa.select(shared.c.uid).where(sa.or_(shared.c.n == len(digests), shared.c.n == total))
    same = [incidents.c.uid == uid, incidents.c.uid.in_(logs)]
    if job and begun:
        same.append(sa.and_(incidents.c.job == job, incidents.c.begun == begun))
    return sa.select(incidents).where(sa.or_(*same)).order_by(incidents.c.filed.desc(), incidents.c.uid)


def changes(before: Mapping[str, Any], listed: list[Usual], now: Row) -> Iterator[str]:
    """Yield what differs between a report and the next one of the same job: the verdict, and the usual causes."""
    if before["headline"] != now.headline:
        was = text.sentence(before["headline"], 200).rstrip(".")
        yield f"The verdict was: {was} ({before['confidence'] or 'open'})."
    elif before["confidence"] != now.confidence:
        yield f"The verdict is {now.confidence or 'open'}; it was {before['confidence'] or 'open'}."
    ids, known = {each.cause for each in now.usual}, {each.cause for each in listed}
    sure = now.confidence == "established" and before["confidence"] != "established"
    confirmed = [u.title for u in listed if sure and u.cause in CONFIRMS.get(now.category or "", ())]
    lists = [("Confirmed", confirmed[:1])]
    if before["category"] == now.category:  # else it is the list of another symptom
        lists += [("No longer listed", [u.title for u in listed if u.cause not in ids])]
        lists += [("New on the list", [u.title for u in now.usual if u.cause not in known])]
        if listed and now.usual and listed[0].cause != now.usual[0].cause:
            lists += [("Now the first", [now.usual[0].title])]
    yield from (f"{what}: {'; '.join(titles)}." for what, titles in lists if titles)
