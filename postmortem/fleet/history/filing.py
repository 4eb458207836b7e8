"""The end of an analysis: its verdict is filed, and the document says how often the same was seen before.

Whatever is wrong with the store costs one sentence: never the verdict, its exit code, or more than a few
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postmortem.errors import HistoryError, ours
from postmortem.fleet.history.place import Place, place
from postmortem.fleet.history.rows import Row, row
from postmortem.model.contract.incident import Seen
from postmortem.report.text import line
from postmortem.system import output

if TYPE_CHECKING:
    from postmortem.fleet.history.store import Store

PATIENCE_S = 10.0
NOTE = 400  # characters of a note that a verdict quotes


def filed(incident: Any, where: str, report: Path | None, paths: Sequence[str], hide: bool) -> Any:
    """The incident with `history` in its document, filed; the incident itself where that cannot be done."""
    try:
        return replace(incident, document=_filed(incident.document, where, report, paths, hide))
    except HistoryError as error:
        output.say(f"postmortem: not filed in the history: {line(error.message)}")
        output.say(f"  {line(error.hint)}")
    except Exception as error:  # it is about the verdict, which is there
        output.say(f"postmortem: not filed in the history: {line(ours(error))}")
    return incident


def _filed(
    document: Mapping[str, Any], where: str, report: Path | None, paths: Sequence[str], hide: bool
) -> dict[str, Any]:
    from postmortem.fleet.history.store import opened

    at = place(where)
    if at.network:
        output.say(f"postmortem: {warning(at)}")
    target = str(report.absolute()) if report else ""
    logs = " ".join(paths)
    kept, real = _named(document, at, target, logs) if hide else (row(document, target, logs), {})
    with opened(where, make=True, patience=PATIENCE_S) as store:
        store.file(kept)
        found = seen(store, kept)
    if "host" in found:
        found["host"] = real.get(found["host"], found["host"])
    return {**document, "history": found}


def _named(document: Mapping[str, Any], at: Place, report: str, logs: str) -> tuple[Row, dict[str, str]]:
    """The row with pseudonyms, and who they are."""
    from postmortem.fleet.history.pseudonyms import Keyed, hidden, key

    names = Keyed(key(at))
    found = row(hidden(document, names), names.path(report), " ".join(map(names.path, logs.split())))
    culprit = document["verdict"]["culprit"]
    return found, {names.text(host): host for host in culprit["hosts"]}


def warning(at: Place) -> str:
    """What is to be said of a file on a network's file system."""
    return (
        f"{at.shown} is on {at.network}, where SQLite is not safe for writers on several hosts; "
        "use a PostgreSQL URL, or write --format json there and file the documents from one host "
        "(postmortem history add)"
    )


def seen(store: Store, own: Row) -> Seen:
    """How often the same failure was filed, beside this one."""
    count, since = store.span()
    told: Seen = {"incidents": max(count - 1, 0), "times": 0}
    if since:
        told["since"] = since
    if own.cause is None:
        return told
    if other := store.incomparable():
        told["incomparable"] = other
    times, first, host = store.same(own.cause, own.uid)
    if not times or first is None:
        return told
    last = next(r for r in store.rows(cause=own.cause, limit=2) if r["uid"] != own.uid)
    told |= {"times": times, "since": first, "last": last["when"], "id": last["uid"][:12]}
    if host and times > 1:
        told |= {"host": host[0], "there": host[1]}
    if written := store.notes(cause=own.cause):
        told |= {"note": line(written[-1]["text"], NOTE), "noted": written[-1]["noted"]}
    return told
