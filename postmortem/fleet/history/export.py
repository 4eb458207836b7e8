"""Rows of the store -> a table for notebooks and other tools, a row for each incident.

time                     outcome   category  …  hosts            hosts_at_fault  note
2026-11-21 13:18:36.950  incident  host-oom     node-a node-b    node-b          batch of 8 fits
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from postmortem.errors import UsageError
from postmortem.privacy.anonymize import Anonymizer

if TYPE_CHECKING:
    import pandas as pd

TIMES = ("time", "filed", "happened", "begun", "ended")
COUNTS = ("world_size", "attempts")
NUMBERS = ("hours", "lost_rank_hours")
JOINED = ("hosts", "hosts_at_fault", "gpus_at_fault", "note")


def table(
    rows: Sequence[Mapping[str, Any]],
    involved: Sequence[Mapping[str, Any]],
    notes: Sequence[Mapping[str, Any]],
    names: Anonymizer | None = None,
) -> pd.DataFrame:
    """All columns of the store, `time` first (`happened`, else `filed`), and names joined by blanks. With
    `names`, in pseudonyms."""
    import pandas as pd

    more = _joined(involved, notes)
    plain = [{"time": r["when"], **r, **{c: more[c].get(r["uid"], "") for c in JOINED}} for r in rows]
    for row in plain:
        del row["when"]
    found = pd.DataFrame(_hidden(plain, involved, names) if names else plain)
    for name in found.columns:
        if name in TIMES:
            found[name] = pd.to_datetime(found[name], utc=True, format="ISO8601", errors="coerce")
        elif name in COUNTS:
            found[name] = found[name].astype("Int64")
        elif name in NUMBERS:
            found[name] = found[name].astype("float64")
        else:
            found[name] = found[name].astype("object")
    return found


def _joined(involved: Sequence[Mapping[str, Any]], notes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    lists: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in JOINED}
    for each in involved:
        if each["kind"] == "host":
            lists["hosts"][each["uid"]].append(each["name"])
        if each["fault"]:
            lists[f"{each['kind']}s_at_fault"][each["uid"]].append(each["name"])
    for each in notes:
        lists["note"][each["uid"]].append(each["text"])
    sep = {"note": "\n"}
    return {name: {uid: sep.get(name, " ").join(v) for uid, v in own.items()} for name, own in lists.items()}


def _hidden(
    rows: list[dict[str, Any]], involved: Sequence[Mapping[str, Any]], names: Anonymizer
) -> list[dict[str, Any]]:
    """One key for all rows, so that a host has one pseudonym in the whole table. A fingerprint loses the
    part that tells the hardware."""
    for each in involved:
        if each["kind"] == "host":
            names.learn(each["name"], "host")
    prose = ("headline", "report", "logs", "job", "code", "note")
    for row in rows:
        names.learn({name: row[name] for name in prose if row[name]})
    texts = (*prose, *JOINED[:3])
    told = []
    for row in rows:
        hidden = {name: names.text(row[name]) if row[name] else row[name] for name in texts}
        hidden |= {name: names.path(row[name]) if row[name] else row[name] for name in ("report", "logs")}
        told.append({**row, **hidden, "fingerprint": row["cause"]})
    return told


def written(found: pd.DataFrame, form: str) -> bytes:
    """The table as a file: parquet, csv or ndjson."""
    if form == "parquet":
        try:
            return bytes(found.to_parquet(index=False))
        except ImportError:
            hint = "pip install pyarrow, or name a .csv or .ndjson file"
            raise UsageError("Parquet needs pyarrow", hint) from None
    if form == "csv":
        return found.to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%S.%fZ").encode()
    if form == "ndjson":
        return found.to_json(orient="records", lines=True, date_format="iso").encode() if len(found) else b""
    raise UsageError(f"no such table: .{form}", "name a .parquet, .csv or .ndjson file")
