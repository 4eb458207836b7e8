"""The results of a bundle on their way from a worker: events as columns, and equal values once.

    pickle.loads(pickle.dumps(Results(reads)))   ->   reads

Rows of 22 fields take twice as long, and ranks have words, frames and errors in common.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

from postmortem.model import Event, Where, event_of, once, where_of

_AT = {name: at for at, name in enumerate(Event._fields)}
_ALIKE = frozenset({"line", "stamp", "worked"})  # kinds of which many have the same few details: `{"by": "count"}`


class Results(list[Any]):
    """Results, of which each `Read` is pickled without its events, and those of all in columns."""

    def __reduce__(self) -> tuple[Any, ...]:
        counts = [len(getattr(one, "events", ())) for one in self]
        rests = [replace(one, events=()) if n else one for one, n in zip(self, counts, strict=True)]
        events = [e for one, n in zip(self, counts, strict=True) if n for e in one.events]
        columns: list[Any] = [[*map(itemgetter(at), events)] for at in range(len(_AT))]
        columns[_AT["where"]] = [[*map(itemgetter(at), columns[_AT["where"]])] for at in range(len(Where._fields))]
        known = dict[Any, Any]().setdefault
        for name in ("text", "host"):
            columns[_AT[name]] = [*map(known, columns[_AT[name]], columns[_AT[name]])]
        columns[_AT["context"]] = [tuple(map(known, lines, lines)) for lines in columns[_AT["context"]]]
        columns[_AT["fields"]] = [
            known(tuple(fields.items()), fields) if len(fields) < 3 and (kind in _ALIKE or not fields) else fields
            for kind, fields in zip(columns[_AT["kind"]], columns[_AT["fields"]], strict=True)
        ]
        return _of_columns, (rests, counts, columns)


def _of_columns(rests: list[Any], counts: list[int], columns: list[Any]) -> list[Any]:
    columns[_AT["where"]] = [*map(where_of, zip(*columns[_AT["where"]], strict=True))]
    for name in ("sigma", "at_sigma", "time", "rank", "where"):
        columns[_AT[name]] = once(columns[_AT[name]])
    events = map(event_of, zip(*columns, strict=True))
    return [replace(one, events=tuple(islice(events, n))) if n else one for one, n in zip(rests, counts, strict=True)]
