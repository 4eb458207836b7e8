"""Flight-recorder dumps: the last collectives of each rank, recorded by torch.distributed before any network.

    {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}, ...
     "entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 19, ...
                  "profiling_name": "gloo:all_reduce", "input_sizes": [[26122]], "state": "scheduled", ...}]}

In: one dump, JSON or pickle (FlightRecorder.hpp, versions 2.x). Out: one event of kind `recorder`, or
`unreadable` with the reason. Only the pickle has stack frames.

NCCL moves `state` from scheduled over started to completed. gloo leaves it at scheduled and sets `retired`, also
on a collective that failed. pg_status counts sends and receives too, so it is used only without entries; with
gloo pg_config has one entry without a name, whose ranks are valid only while there is one group.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from postmortem.documents.plain_pickle import PlainPickleError, loads
from postmortem.formats import plain_json
from postmortem.formats.excerpt import decode, source_event, timed
from postmortem.formats.frames import stack_fields
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import MARKS, Counts, Details
from postmortem.model.digits import whole
from postmortem.privacy import cut
from postmortem.system import forms

MOST_ENTRIES = 2000  # entries of a dump; the default size of torch's own buffer
MAX_JSON = 32 << 20
_FIELDS = ("entries", "pg_status", "pg_config")
_COUNTS = ("enqueued", "started", "completed")
_REGEXES = forms.regexes("formats/exceptions")

Table = dict[object, object]


class _Entry(NamedTuple):
    """One collective. On the first four fields all ranks of its group have to agree."""

    group: str
    seq: int
    name: str
    detail: str
    done: bool
    state: str
    created: int
    discovered: int  # when its end was noticed; 0 with gloo
    frames: object


class _Group(NamedTuple):
    key: str
    desc: str
    ranks: tuple[int, ...]


Groups = dict[tuple[str, str], _Group]  # by name and description
Status = dict[str, Counts]  # by group


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """Read one dump."""
    try:
        document = _read(content)
    except PlainPickleError as error:
        text = f"The flight-recorder dump cannot be read: {error}."
        yield source_event(source, "unreadable", text, severity="warning")
        return
    rows = [row for row in _row(document.get("entries"), 20 * MOST_ENTRIES) if isinstance(row, dict)]
    groups = _find_groups(document, rows)
    entries = [one for row in rows if (one := _entry(row, groups.get(_named(row)))) is not None]
    rank = source.rank if source.rank is not None else _rank(source.path, document, groups)
    base = source_event(source, "recorder", "", rank=rank, host=source.host or _word(document.get("host_name")) or None)
    last = entries[-MOST_ENTRIES:]
    fields: Details = {
        "status": _status(document, rows, groups, entries),
        "groups": {g.key: {"desc": g.desc, "ranks": g.ranks} for g in groups.values()},
        "version": _word(document.get("version"), 40),
        # nothing was overwritten: the entries start with the first one
        "whole": bool(rows) and _number(rows[0].get("record_id")) == 0 and len(entries) <= MOST_ENTRIES,
    }
    yield _event(base, last, fields)
    yield from _marks(base, last)


def _read(content: bytes) -> Table:
    """The dump as plain data; raises a PlainPickleError, for JSON too."""
    document = loads(content) if content.startswith(b"\x80") else _json(content)
    if not isinstance(document, dict) or not any(field in document for field in _FIELDS):
        raise PlainPickleError("it has none of the recorder's fields", 0)
    return document


def _json(content: bytes) -> object:
    if len(content) > MAX_JSON:
        raise PlainPickleError(f"it is longer than {MAX_JSON >> 20} MiB", MAX_JSON)
    try:
        return plain_json.loads(content)
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", getattr(error, "start", 0))
        raise PlainPickleError(plain_json.reason(error), at) from None


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────


def _word(value: object, most: int = 300) -> str:
    """Text that may be shown. Surrogates and controls do not leave here as they are."""
    if not isinstance(value, str):
        return ""
    text = decode(cut(value, most).encode("utf-8", "backslashreplace"))
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _number(value: object) -> int | None:
    if isinstance(value, str) and _REGEXES["integer"].fullmatch(value):
        value = whole(value)
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def _natural(value: object) -> int:
    """A number that is not negative; 0 for all else."""
    return max(0, _number(value) or 0)


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _row(value: object, most: int) -> list[object]:
    return list(value[-most:]) if isinstance(value, list | tuple) else []


def _ranks(value: object) -> tuple[int, ...]:
    """pg_config writes ranks as text: `[0, 1, 2]`."""
    text = isinstance(value, str)
    found = _REGEXES["rank-number"].findall(str(value)[: 1 << 20]) if text else _row(value, 1 << 17)
    return tuple(sorted({n for x in found if (n := _number(x)) is not None and n >= 0}))


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────


def _named(raw: Table) -> tuple[str, str]:
    """Name and description of an entry's group. Before version 2 there was only a name."""
    pair = raw.get("process_group", raw.get("pg_name"))
    if isinstance(pair, list | tuple) and pair:
        return _word(pair[0]), _word(pair[1]) if len(pair) > 1 else ""
    return _word(pair) or _word(str(_number(raw.get("pg_id")) or 0)), ""


def _find_groups(document: Table, rows: list[Table]) -> Groups:
    config = {_word(name): _table(row) for name, row in list(_table(document.get("pg_config")).items())[:4096]}
    names = list(dict.fromkeys(map(_named, rows)))
    names += [(n, d) for n, row in config.items() if n and (n, d := _word(row.get("desc"))) not in names]
    single = config[""] if set(config) == {""} and len(names) == 1 else {}
    found = {}
    for name, desc in names[:8192]:
        ranks = _ranks(config.get(name, single).get("ranks"))
        found[name, desc] = _Group(_key(name, desc, ranks), desc, ranks)
    return found


def _key(name: str, desc: str, ranks: tuple[int, ...]) -> str:
    """The name of a group, the same on all its ranks. split_group gives the parts of a group one name, so the
    ranks belong to it."""
    if desc == "default_pg":
        return desc
    few = len(ranks) <= 16
    shown = ", ".join(map(str, ranks)) if few else f"{ranks[0]}, {ranks[1]} … {ranks[-1]}: {len(ranks)} ranks"
    parts = (name, desc if desc != "undefined" else "", f"[{shown}]" if ranks else "")
    return " ".join(filter(None, parts)) or "unnamed"


# ── entries ─────────────────────────────────────────────────────────────────────────────────────────────────


def _entry(row: Table, group: _Group | None) -> _Entry | None:
    """One collective; None for sends and receives, which have no number that the ranks share."""
    name = _word(row.get("profiling_name"), 120)
    seq = _number(row.get("collective_seq_id", row.get("seq_id")))
    if group is None or seq is None or row.get("is_p2p") is True or _REGEXES["p2p"].search(name):
        return None
    state = _word(row.get("state"), 20)
    return _Entry(
        sys.intern(group.key),  # a thousand dumps repeat the same few
        seq,
        sys.intern(name),
        sys.intern(_detail(name, row)),
        state == "completed" or (state != "started" and row.get("retired") is True),
        state,
        _natural(row.get("time_created_ns")),
        _natural(row.get("time_discovered_completed_ns")),
        row.get("frames"),
    )


def _detail(name: str, row: Table) -> str:
    """Sizes and types that all ranks must agree on in this operation: `[26122] Float`."""
    side = "output" if _REGEXES["one-input"].search(name) else "input"
    sizes, types = row.get(f"{side}_sizes"), row.get(f"{side}_dtypes")
    tensors = sizes if isinstance(sizes, list | tuple) else ()
    kinds = [_word(t, 20) for t in types[:8]] if isinstance(types, list | tuple) else []
    if _REGEXES["own-sizes"].search(name):
        return ", ".join(dict.fromkeys(kinds))
    shown = []
    for i, dims in enumerate(tensors[:8]):
        text = "[" + ", ".join(str(_number(d)) for d in _row(dims, 16)) + "]"
        shown.append(f"{text} {kinds[i]}" if i < len(kinds) else text)
    if len(tensors) > 8:
        total = sum(math.prod(_number(d) or 0 for d in _row(dims, 16)) for dims in tensors[:4096])
        shown.append(f"… {len(tensors)} tensors, {total} elements")
    return ", ".join(shown)


def _status(document: Table, rows: list[Table], groups: Groups, entries: list[_Entry]) -> Status:
    """The last collective enqueued, started and completed in each group: by the entries, else by pg_status."""
    by_id = {str(_number(row.get("pg_id"))): groups[_named(row)].key for row in rows if _named(row) in groups}
    by_id = by_id or {"0": next((g.key for g in groups.values() if g.desc == "default_pg"), "default_pg")}
    found: Status = {}
    for pg_id, row in list(_table(document.get("pg_status")).items())[:4096]:
        if (key := by_id.get(_word(pg_id))) is not None:
            last = (_number(_table(row).get(f"last_{name}_collective")) for name in _COUNTS)
            enqueued, started, completed = (n if n is not None and n >= 0 else None for n in last)
            found[key] = {"enqueued": enqueued, "started": started, "completed": completed}
    recorded: dict[str, list[_Entry]] = {}
    for e in entries:
        recorded.setdefault(e.group, []).append(e)
    for key, own in recorded.items():
        found[key] = {
            "enqueued": max(e.seq for e in own),
            "started": max((e.seq for e in own if e.state in ("started", "completed")), default=None),
            "completed": max((e.seq for e in own if e.done), default=min(e.seq for e in own) - 1),
        }
    return found


# ── the event ───────────────────────────────────────────────────────────────────────────────────────────────


def _event(base: Event, entries: list[_Entry], fields: Details) -> Event:
    pending = [e for e in entries if not e.done]
    decisive = next(reversed(pending or entries), None)
    stack = stack_fields(_frames(decisive.frames) if decisive else [])
    del stack["collective"]
    last_ns = max((e.created for e in entries), default=0)
    fields |= {"entries": tuple(e[:4] for e in entries), "pending": tuple(e[:4] for e in pending)}
    text = _summary(entries, fields["status"], decisive)
    event = base._replace(text=text if base.rank is None else f"rank {base.rank}: {text}", fields=fields | stack)
    return timed(event, Stamp(last_ns / 1e9, "absolute", str(last_ns)) if last_ns else None)


def _marks(base: Event, entries: list[_Entry]) -> Iterator[Event]:
    """Marks to compare clocks by (see `counters`): the ranks of a group end collective 812 together."""
    for name in dict.fromkeys(e.group for e in entries):
        own = [e for e in entries if e.group == name and (e.discovered or e.created)][-MARKS:]
        ended = [e for e in own if e.discovered]
        marks = ended or own
        if len(marks) > 1:
            times = array("d", [(e.discovered or e.created) / 1e9 for e in marks])
            fields: Details = {
                "family": f"recorder {'ended' if ended else 'enqueued'} {name}",
                "columns": 2,
                "values": array("q", [n for e in marks for n in (0, e.seq)]),
                "times": times,
                "lines": array("q", [0] * len(marks)),
            }
            yield base._replace(kind="sync", fields=fields, time=times[0], clock="absolute")


def _summary(entries: list[_Entry], status: Status, decisive: _Entry | None) -> str:
    if decisive is None:
        counts = [f"{c['enqueued']} of {key}" for key, c in sorted(status.items()) if c["enqueued"] is not None]
        return f"last enqueued collective {', '.join(counts[:4])}; no entries" if counts else "no collective recorded"
    numbers = status[decisive.group]
    last = next(e for e in reversed(entries) if e.group == decisive.group and e.seq == numbers["enqueued"])
    operation = f"{last.name} {last.detail}".strip()
    text = f"last enqueued collective {last.seq} of {last.group} ({operation}), {numbers['completed']} completed"
    waits: dict[str, int] = {}
    for e in entries:
        if not e.done and (e.group, e.seq) != (last.group, last.seq):
            waits.setdefault(e.group, e.seq)
    others = [f"{seq} of {group}" for group, seq in sorted(waits.items())]
    return text + (f"; waiting in {', '.join(others[:3])} too" if others else "")


def _frames(value: object) -> list[tuple[str, int, str]]:
    """The frames of a collective, most recent first."""
    rows = value[:60] if isinstance(value, list | tuple) else ()
    frames = [frame for frame in rows if isinstance(frame, dict)]
    found = [(_word(f.get("filename"), 400), _natural(f.get("line")), _word(f.get("name"), 200)) for f in frames]
    return [frame for frame in found if frame[0]]


def _rank(path: str, document: Table, groups: Groups) -> int | None:
    """The rank of a dump: a field, or the number that torch appends to TORCH_FR_DUMP_TEMP_FILE."""
    for field in ("rank", "global_rank"):
        if (value := _number(document.get(field))) is not None and value >= 0:
            return value
    known = {rank for g in groups.values() for rank in g.ranks}
    m = _REGEXES["trailing-number"].search(path)
    return whole(m[1]) if m and whole(m[1]) in known else None
