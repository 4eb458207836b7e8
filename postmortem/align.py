"""Events -> Timeline: one clock for all hosts, first version.

Years are inferred from dated lines; a naive stamp's zone from the epoch seconds of error files and from the steps that
all ranks print; kernel time from lines that stand in two forms, or from the agent's exit report; a line without a stamp
gets the interval between its neighbours in the file. Raw stamps stay as they are; the result is `Event.at`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from postmortem.model import Clock, Event
from postmortem.parsers.times import NO_YEAR

if TYPE_CHECKING:
    import pandas as pd

YEARLESS_END = 4e8  # stamps before 1982 have no year of their own
QUARTER = 900.0
YEAR_S = 365.2425 * 86400

Key = tuple[str | None, str]  # host, clock kind


@dataclass(frozen=True, slots=True)
class Timeline:
    """All events on one clock, in the order of their time where it is known, and the clocks they came from."""

    events: tuple[Event, ...]
    clocks: tuple[Clock, ...]

    def frame(self) -> pd.DataFrame:
        """The events as a frame: time (corrected epoch seconds, NaN if unknown), sigma, host, rank, kind, severity, pattern, text,
        source, line, clock."""
        import pandas as pd

        rows = [
            (e.at, e.at_sigma, e.host, e.rank, e.kind, e.severity, e.pattern, e.text, e.where.source, e.where.line, e.clock)
            for e in self.events
        ]
        names = ["time", "sigma", "host", "rank", "kind", "severity", "pattern", "text", "source", "line", "clock"]
        frame = pd.DataFrame(rows, columns=names)
        frame["time"] = pd.to_numeric(frame["time"], errors="coerce")
        frame["rank"] = frame["rank"].astype("Int64")
        return frame.sort_values(["time", "source", "line"], kind="stable", na_position="last", ignore_index=True)


def align(events: Sequence[Event]) -> Timeline:
    """Put all events on one clock."""
    dated = _with_years(events)
    boots = _boot_offsets(dated)
    placed = [_place(e, boots) for e in dated]
    zones = _zones(placed)
    placed = [e._replace(at=e.at - zones[e.host]) if e.at is not None and e.clock == "naive" and e.host in zones else e for e in placed]
    return Timeline(tuple(_fill_gaps(placed)), tuple(_clocks(placed, zones, boots)))


def _with_years(events: Sequence[Event]) -> list[Event]:
    """Give stamps without a year the year that puts them next to the dated ones."""
    dated = [e.time for e in events if e.time is not None and e.time > YEARLESS_END and e.clock in ("naive", "absolute")]
    if not dated:
        return list(events)
    reference = median(dated)
    return [e._replace(time=_nearest_year(e.time, reference)) if _yearless(e) and e.time is not None else e for e in events]


def _yearless(e: Event) -> bool:
    return e.time is not None and e.clock == "naive" and e.time < YEARLESS_END


def _nearest_year(time: float, reference: float) -> float:
    """Move a stamp of 1972 into the year in which it lies nearest to `reference` (New Year's Eve works both ways)."""
    import calendar
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(int(time), UTC)
    fraction = time - int(time)
    year = datetime.fromtimestamp(reference, UTC).year
    best = time
    for candidate in (year - 1, year, year + 1):
        if moment.month == 2 and moment.day == 29 and not calendar.isleap(candidate):
            continue
        there = calendar.timegm((candidate, moment.month, moment.day, moment.hour, moment.minute, moment.second)) + fraction
        if best < YEARLESS_END or abs(there - reference) < abs(best - reference):
            best = there
    return best


def _body(text: str) -> str:
    """A kernel line without its stamp: what its copies in other formats share."""
    at = max(text.rfind("] "), text.rfind("kernel: ") + 6)
    return text[at + 1 :].strip()[:160]


def _boot_offsets(events: Iterable[Event]) -> dict[str | None, tuple[float, float, str, int]]:
    """Host -> (wall minus boot, sigma, how, number of events)."""
    wall: dict[tuple[str | None, str], float] = {}
    boot: dict[tuple[str | None, str], float] = {}
    exits: dict[tuple[str | None, int], float] = {}
    kills: list[tuple[str | None, int, float]] = []
    for e in events:
        if e.time is None:
            continue
        if e.fields.get("kernel"):
            bucket = boot if e.clock == "boot" else wall
            bucket.setdefault((e.host, _body(e.text)), e.time)
        pid = e.fields.get("pid", e.pid)
        if e.kind == "exit" and e.pid is not None:
            exits.setdefault((e.host, e.pid), e.time)
        elif e.clock == "boot" and isinstance(pid, str) and pid.isdigit():
            kills.append((e.host, int(pid), e.time))
    found: dict[str | None, list[float]] = defaultdict(list)
    for key, seconds in boot.items():
        if key in wall and wall[key] > YEARLESS_END:
            found[key[0]].append(wall[key] - seconds)
    offsets = {host: (median(values), 0.6, "the same lines with wall time", len(values)) for host, values in found.items()}
    for host, pid, seconds in kills:
        exit_time = exits.get((host, pid), exits.get((None, pid)))
        if host not in offsets and exit_time is not None:
            offsets[host] = (exit_time - seconds, 1.5, "the launcher's report of the same process", 1)
    return offsets


def _place(e: Event, boots: dict[str | None, tuple[float, float, str, int]]) -> Event:
    if e.time is None:
        return e
    if e.clock == "boot":
        if e.host not in boots:
            return e
        offset, sigma, _, _ = boots[e.host]
        return e._replace(at=e.time + offset, at_sigma=sigma)
    return e._replace(at=e.time, at_sigma=e.sigma)


def _zones(events: Sequence[Event]) -> dict[str | None, float]:
    """Host -> seconds to take off its naive stamps: the zone, snapped to a quarter of an hour, and the skew against the first host.

    A rank's error file has epoch seconds where its console has local time; and all ranks print the same step at the same moment.
    """
    zones: dict[str | None, float] = {}
    absolute = {(e.host, e.rank, e.fields.get("local_rank")): e.at for e in events if e.fields.get("reported_by") == "error-file" and e.at}
    for e in events:
        key = (e.host, e.rank, e.fields.get("local_rank"))
        if e.kind == "exit" and e.clock == "naive" and e.at is not None and e.at > YEARLESS_END and key in absolute and e.host not in zones:
            off = e.at - (absolute[key] or 0.0)
            zone = round(off / QUARTER) * QUARTER
            if abs(off - zone) < 120 and abs(zone) <= 14 * 3600:
                zones[e.host] = zone
    steps: dict[str | None, dict[object, float]] = defaultdict(dict)
    for e in events:
        if e.kind == "progress" and e.at is not None:
            steps[e.host].setdefault(e.fields.get("step"), e.at - (zones.get(e.host, 0.0) if e.clock == "naive" else 0.0))
    hosts = sorted((h for h in steps if h is not None), key=str)
    for host in hosts[1:]:
        common = [steps[host][s] - steps[hosts[0]][s] for s in steps[host] if s in steps[hosts[0]]]
        if common:
            zones[host] = zones.get(host, 0.0) + median(common)
    return {host: zone for host, zone in zones.items() if abs(zone) > 0.001}


def _fill_gaps(events: Sequence[Event]) -> list[Event]:
    """Give events without a stamp the interval between their neighbours in the file: its middle, and half of it as uncertainty."""
    by_source: dict[str, list[int]] = defaultdict(list)
    for i, e in enumerate(events):
        if e.where.line is not None:
            by_source[e.where.source].append(i)
    out = list(events)
    for indices in by_source.values():
        indices.sort(key=lambda i: out[i].where.line or 0)
        before: float | None = None
        for n, i in enumerate(indices):
            e = out[i]
            if e.at is not None:
                before = e.at
            elif e.clock == "none":
                after = next((out[k].at for k in indices[n + 1 :] if events[k].at is not None), None)
                if before is not None and after is not None and after >= before:
                    out[i] = e._replace(at=(before + after) / 2, at_sigma=max((after - before) / 2, 0.5))
                elif before is not None:
                    out[i] = e._replace(at=before, at_sigma=60.0)
                elif after is not None:
                    out[i] = e._replace(at=after, at_sigma=60.0)
    return out


def _clocks(events: Sequence[Event], zones: dict[str | None, float], boots: dict[str | None, tuple[float, float, str, int]]) -> list[Clock]:
    groups: dict[Key, list[Event]] = defaultdict(list)
    for e in events:
        if e.time is not None and e.clock != "none":
            groups[(e.host, e.clock)].append(e)
    last = max((e.at for e in events if e.at is not None and e.at > YEARLESS_END), default=None)
    order: Callable[[Key], tuple[str, str]] = lambda key: (key[0] or "", key[1])  # noqa: E731
    clocks = []
    for host, kind in sorted(groups, key=order):
        sources = tuple(sorted({e.where.source for e in groups[(host, kind)]}))
        if kind == "boot":
            offset, sigma, how, n = boots.get(
                host, (None, None, "no line of this kernel log has a wall time, and none joins the job's logs", 0)
            )
            state = "aligned" if offset is not None else "refused"
            clocks.append(Clock(host, kind, None, None if offset is None else -offset, None, last, sigma, n, state, how, sources))
        elif kind == "absolute":
            clocks.append(
                Clock(
                    host,
                    kind,
                    0.0,
                    0.0,
                    None,
                    last,
                    0.0,
                    len(groups[(host, kind)]),
                    "weak",
                    "stamps carry their zone; not compared with other hosts",
                    sources,
                )
            )
        else:
            total = zones.get(host)
            zone = round((total or 0.0) / QUARTER) * QUARTER
            state = "aligned" if total is not None else "weak"
            why = "epoch seconds of error files and common steps" if total is not None else "no zone in the stamps; read as UTC"
            clocks.append(
                Clock(
                    host,
                    kind,
                    zone if total is not None else None,
                    (total or 0.0) - zone if total is not None else None,
                    None,
                    last,
                    0.5,
                    len(groups[(host, kind)]),
                    state,
                    why,
                    sources,
                )
            )
    return clocks


__all__ = ["NO_YEAR", "Timeline", "align"]
