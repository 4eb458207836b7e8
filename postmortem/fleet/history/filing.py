"""The end of an analysis: file its verdict, and add to the document how often the failure was seen before.

An error of the store prints a warning and takes a few seconds at most; the verdict and the exit code are unaffected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from postmortem.errors import HistoryError, ours
from postmortem.fleet.history.place import Place, place
from postmortem.fleet.history.rows import row
from postmortem.report.text import line
from postmortem.system import output

PATIENCE_S = 10.0


Counts = Mapping[str, Mapping[str, int]]  # by category and cause


def counts(where: str) -> Counts:
    """Return how often each usual cause was the true one here; nothing where that cannot be read: filing says why."""
    try:
        from postmortem.fleet.history.store import opened

        with opened(where, reads=True, patience=PATIENCE_S) as store:
            from postmortem.fleet.history import resolved

            return resolved.counts(store)
    except Exception:  # an old or a new store; the verdict must still be printed
        return {}


def filed(
    incident: Any, where: str, report: Path | None, paths: Sequence[str], hide: bool, known: Counts | None = None
) -> Any:
    """File the incident. Return it with `history` in its document; unchanged if filing failed. `known` are the counts
    by which its usual causes were weighed."""
    try:
        of_category = (known or {}).get(incident.document["verdict"]["category"] or "", {})
        found = _filed(incident.document, where, report, paths, hide, sum(of_category.values()))
        return replace(incident, document=found)
    except HistoryError as error:
        output.say(f"postmortem: not filed in the history: {line(error.message)}")
        output.say(f"  {line(error.hint)}")
    except Exception as error:  # the verdict must still be printed
        output.say(f"postmortem: not filed in the history: {line(ours(error))}")
    return incident


def _filed(
    document: Mapping[str, Any], where: str, report: Path | None, paths: Sequence[str], hide: bool, count: int
) -> dict[str, Any]:
    from postmortem.fleet.history.store import opened

    at = place(where)
    warn_of_network(at)
    target, logs, real = str(report.absolute()) if report else "", " ".join(paths), dict[str, str]()
    if hide:
        from postmortem.fleet.history.pseudonyms import Keyed, hidden, key

        names = Keyed(key(at))
        own = row(hidden(document, names), names.path(target), " ".join(map(names.path, logs.split())))
        real = {names.text(host): host for host in document["verdict"]["culprit"]["hosts"]}
    else:
        own = row(document, target, logs)
    with opened(where, make=True, patience=PATIENCE_S) as store:
        from postmortem.fleet.history import resolved

        changed = resolved.changed(store, own)
        store.file(own)
        found = store.seen(own.uid, own.cause)
    if changed:
        found["changes"] = changed
    if count and document.get("causes"):
        found["resolved"] = count
    if "host" in found:
        found["host"] = real.get(found["host"], found["host"])
    return {**document, "history": found}


def warn_of_network(at: Place) -> None:
    """Warn if the store is a file on a network file system."""
    if at.network:
        output.say(
            f"postmortem: {at.shown} is on {at.network}, where SQLite is not safe for writers on several hosts; "
            "use a PostgreSQL URL, or write --format json there and file the documents from one host "
            "(postmortem history add)"
        )
