"""Rows of the store -> a table for notebooks and other tools, one row per incident.

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
TYPES: dict[str, Any] = {"world_size": "Int64", "attempts": "Int64", "hours": "float64", "lost_rank_hours": "float64"}
JOINED = ("hosts", "hosts_at_fault", "gpus_at_fault", "note")
PATHS = ("report", "logs")
PROSE = ("headline", *PATHS, "job", "code", "note")


def table(
    rows: Sequence[Mapping[str, Any]],
    involved: Sequence[Mapping[str, Any]],
    notes: Sequence[Mapping[str, Any]],
    names: Anonymizer | None = None,
) -> pd.DataFrame:
    """Return all columns of the store, `time` first (`happened`, else `filed`), and names joined by blanks. `names`
    replaces them by pseudonyms."""
    import pandas as pd

    joined: dict[str, dict[str, list[str]]] = defaultdict(lambda: {name: [] for name in JOINED})
    for each in involved:
        if each["kind"] == "host":
            joined[each["uid"]]["hosts"].append(each["name"])
        if each["fault"]:
            joined[each["uid"]][f"{each['kind']}s_at_fault"].append(each["name"])
    for each in notes:
        joined[each["uid"]]["note"].append(each["text"])
    plain = [
        {
            "time": row["when"],
            **row,
            **{n: ("\n" if n == "note" else " ").join(v) for n, v in joined[row["uid"]].items()},
        }
        for row in rows
    ]
    found = pd.DataFrame(_hidden(plain, involved, names) if names else plain).drop(columns="when", errors="ignore")
    for name in found.columns:
        if name in TIMES:
            found[name] = pd.to_datetime(found[name], utc=True, format="ISO8601", errors="coerce")
        else:
            found[name] = found[name].astype(TYPES.get(name, "object"))
    return found


def _hidden(
    rows: list[dict[str, Any]], involved: Sequence[Mapping[str, Any]], names: Anonymizer
) -> list[dict[str, Any]]:
    """Return the rows with pseudonyms, one per host in the whole table, and fingerprints without the hardware."""
    for each in involved:
        if each["kind"] == "host":
            names.learn(each["name"], "host")
    for row in rows:
        names.learn({name: row[name] for name in PROSE if row[name]})
    hidden = []
    for row in rows:
        found = {name: names.text(row[name]) for name in (*PROSE, *JOINED) if row[name]}
        found |= {name: names.path(row[name]) for name in PATHS if row[name]}
        hidden.append({**row, **found, "fingerprint": row["cause"]})
    return hidden


def written(found: pd.DataFrame, form: str) -> bytes:
    """Return the table as the content of a file: parquet, csv or ndjson."""
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
