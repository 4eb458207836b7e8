"""Events -> Timeline: one clock for all hosts, with an error bound.

    node-a  2026-11-20 21:13:49,001 step 10            -> 21:13:49.001, the consensus of the job's clocks
    node-b  2026/11/20 04:14:26 PM  step 10          -> 21:13:49.1 ± 0.3 s: five hours west, 37 s fast
    node-b  [ 2240.704416] ... Killed process 29502  -> 21:13:48.7 ± 0.5 s: before the agent's report

Years first, then the logs' own clocks (see `estimate`), then the kernel's (see `kernel`), then the lines
without a stamp. Raw stamps stay as they are; the result is `Event.at` with `Event.at_sigma`, one standard
deviation. `sync` and `stamp` events are used up here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np
import pandas as pd

from postmortem.align import kernel, place
from postmortem.align.estimate import Estimates, Row, estimate
from postmortem.align.kernel import Bridge
from postmortem.align.owners import NO_JOBS, ClockId, Jobs, Owners
from postmortem.align.place import IN_ORDER, Correction, Line, Moment, Pieces
from postmortem.align.solve import Array
from postmortem.align.years import YEARLESS_END, note_on, with_years
from postmortem.model import Clock, Event, frame
from postmortem.model.frame import Extras

Members = Mapping[ClockId, Sequence[Event]]
_LAST = float("inf")


@dataclass(frozen=True, eq=False)
class Timeline:
    """All events on one clock, and the clocks they came from. `frame` has one row per event (see `model.frame`), in the
    order of time; lines of one file are in their order, and events without a time come last."""

    frame: pd.DataFrame
    extras: Extras
    clocks: tuple[Clock, ...] = ()
    corrections: tuple[Correction | None, ...] = ()  # of the clocks; None: the offset does not change or is not known
    jobs: Jobs = field(default_factory=dict)  # where the events are of several

    @classmethod
    def of(
        cls, events: Sequence[Event], clocks: tuple[Clock, ...] = (), corrections: tuple[Correction | None, ...] = ()
    ) -> Timeline:
        """The timeline of placed events: their `at` is their time."""
        rows, extras = frame.of_events(events)
        return cls(rows.take(_display_order(rows)), extras, clocks, corrections)

    @property
    def events(self) -> list[Event]:
        """Typed rows of the frame, made anew, in the order in which they were read."""
        return frame.to_events(self.frame.sort_index(), self.extras)

    def with_times(self, times: Mapping[Line, Moment]) -> Timeline:
        """The timeline with the times of these lines."""
        rows = self.frame.copy(deep=False)
        at, sigma = rows["time"].to_numpy().copy(), rows["sigma"].to_numpy().copy()
        for i, line in enumerate(zip(frame.plain(rows["source"]), frame.plain(rows["line"]), strict=True)):
            if line in times:
                at[i], sigma[i] = times[line]
        rows["time"], rows["sigma"] = at, sigma
        frame.bound(rows)
        return replace(self, frame=rows.take(_display_order(rows)))

    def with_processes(self, numbers: Mapping[Line, int]) -> Timeline:
        """The timeline with the numbers of the processes that wrote these lines."""
        lines = zip(frame.plain(self.frame["source"]), frame.plain(self.frame["line"]), strict=True)
        return replace(self, frame=self.frame.assign(process_id=frame.integers([*map(numbers.get, lines)])))

    def clocks_at(self, moment: float | None) -> tuple[Clock, ...]:
        """The clocks at a moment; at the job's last line where it is None."""
        if moment is None:
            return self.clocks
        return tuple(_at(c, moment, k) for c, k in zip_longest(self.clocks, self.corrections))


def align(events: Sequence[Event], jobs: Jobs = NO_JOBS) -> Timeline:
    """Put all events on one clock. Lines of two of these `jobs` are never the same moment."""
    dated = with_years(events)
    owners = Owners(dated, jobs)
    estimates = estimate(dated, owners)
    members = owners.grouped(dated)
    shown = [e for e in dated if e.kind != "sync"]
    clocks = [clock for e, clock in zip(dated, owners.clocks, strict=True) if e.kind != "sync"]
    pieces = {clock: found.pieces for clock, found in estimates.items()}
    bridges = _kernel(shown, owners, members, pieces, estimates)
    pieces |= {clock: _bridged(clock, bridge, estimates) for clock, bridge in bridges.items()}
    unknown = Pieces((Correction(),), {})
    pieces = {clock: unknown for clock in members if clock.kind != "boot"} | pieces
    rows, extras = frame.of_events(shown)
    place.correct(rows, clocks, pieces)
    rows = rows[rows["kind"] != "stamp"]
    table = _table(members, _last_time(rows), estimates, bridges)
    inferred: dict[str, list[float]] = defaultdict(list)
    for before, after in zip(events, dated, strict=True):
        if after is not before:
            inferred[after.where.source].append(after.time or 0.0)
    known = tuple(_with_years(c, inferred) for c, _ in table), tuple(k for _, k in table)
    return Timeline(rows.take(_display_order(rows)), extras, *known, jobs)


def _last_time(rows: pd.DataFrame) -> float | None:
    """The job's last moment that is known to a minute; None where no line has a year."""
    known = rows["time"][(rows["time"] > YEARLESS_END) & (rows["sigma"] < 60)]
    return None if known.empty else float(known.max())


def _with_years(clock: Clock, inferred: Mapping[str, Sequence[float]]) -> Clock:
    """The clock with a note on inferred years in its reason."""
    times = (t for source in clock.sources for t in inferred.get(source, ()))
    note = note_on(times) if clock.kind == "naive" else ""
    return replace(clock, reason=f"{clock.reason}; {note}") if note else clock


def _kernel(
    shown: Sequence[Event], owners: Owners, members: Members, pieces: Mapping[ClockId, Pieces], estimates: Estimates
) -> dict[ClockId, Bridge]:
    """The kernels' clocks, placed by the job's own logs."""
    kernels = {
        clock: lines
        for clock, found in members.items()
        if clock.kernel and (lines := [e for e in found if e.kind != "sync"])
    }
    own: dict[str | None, tuple[float, Callable[[float], float]]] = {}
    for clock in sorted(estimates, key=lambda c: c.kind, reverse=True):  # naive first: its zone is the host's
        correction = estimates[clock].rows[-1].correction
        if clock.host is not None or len(estimates) <= 2:
            own.setdefault(clock.host, (correction.shift, correction.offset_at))
    found = kernel.bridges(kernels, shown, owners, lambda e: place.corrected(e, owners.of(e), pieces), own)
    return {clock: _doubted(clock, bridge, estimates) for clock, bridge in found.items()}


def _doubted(clock: ClockId, bridge: Bridge, estimates: Estimates) -> Bridge:
    """A kernel log that only lines of a refused clock join to the job is refused too."""
    rows = [row for c, e in estimates.items() if c.host == clock.host for row in e.rows]
    if not rows or any(row.state != "refused" for row in rows) or clock.kind == "absolute":
        return bridge
    sigma = max(bridge.sigma, *(row.correction.floor for row in rows), *(row.correction.var**0.5 for row in rows))
    why = f"{bridge.reason}; but that comes from a rejected clock"
    return replace(bridge, state="refused", sigma=sigma, reason=why)


def _bridged(clock: ClockId, bridge: Bridge, estimates: Estimates) -> Pieces:
    host = next((e for c, e in estimates.items() if c.host == clock.host), None) if bridge.own else None
    if host is None:
        return Pieces((Correction(offset=bridge.offset, floor=bridge.sigma),), {})
    return Pieces((host.rows[-1].correction._replace(shift=bridge.zone or 0.0, floor=bridge.sigma),), {})


def _display_order(rows: pd.DataFrame) -> Array:
    """The order of the rows by time, where a line is not before an earlier line of its file that is only a little
    later. Rows without a time come last."""
    time = rows["time"].fillna(_LAST).to_numpy().copy()
    line: Array = rows["line"].astype("float64").fillna(_LAST).to_numpy()
    source = rows["source"].cat.codes.to_numpy()
    order = np.lexsort((np.where(np.isinf(line), 0, line), source))
    order = order[np.isfinite(time[order])]
    files, moments = source[order], time[order]
    back = (files[1:] == files[:-1]) & (moments[1:] < moments[:-1])
    found = np.unique(files[1:][back])
    bounds: Array = np.searchsorted(files, [found, found + 1])
    for first, end in bounds.T.tolist():
        reached = -_LAST
        for i in order[first:end].tolist():
            if time[i] < reached <= time[i] + IN_ORDER:
                time[i] = reached
            reached = time[i]
    return np.lexsort((line, source, time))


def _table(
    members: Members, last: float | None, estimates: Estimates, bridges: dict[ClockId, Bridge]
) -> list[tuple[Clock, Correction | None]]:
    """One entry for each host, kind and segment, the job's own clocks before the kernel's."""
    sources = {clock: {e.where.source for e in found} for clock, found in members.items()}
    for clock in [c for c in sources if c.kernel]:
        if (same := _same_as(clock, sources, estimates, bridges)) is not None:
            sources[same] |= sources.pop(clock)
    out: list[tuple[Clock, Correction | None]] = []
    for clock in sorted(sources, key=lambda c: (c.host or "", c.kernel, c.kind, c.group)):
        files = tuple(sorted(sources[clock]))
        if clock in estimates:
            rows = estimates[clock].rows
            out += ((_shown(clock, row, last, files), row.correction if row.known else None) for row in rows)
        else:
            out.append((_shown_kernel(clock, bridges.get(clock), last, files), None))
    return out


def _same_as(
    clock: ClockId, sources: Iterable[ClockId], estimates: Estimates, bridges: dict[ClockId, Bridge]
) -> ClockId | None:
    """The clock of which a kernel log's wall times are readings: the host's own, or that of its seconds since boot."""
    bridge = bridges.get(clock)
    if clock.kind == "boot" or bridge is None:
        return None
    for own, found in estimates.items():
        if (own.host, own.kind) != (clock.host, clock.kind):
            continue
        c = found.rows[-1].correction
        total = c.shift + c.offset_at(c.origin + c.centre)
        if abs(total - bridge.offset) < 1 if c.origin else c.shift == bridge.offset:
            return own
    return next((c for c in sources if c.host == clock.host and c.kind == "boot"), None)


def _at(clock: Clock, moment: float, correction: Correction | None) -> Clock:
    if correction is None:
        return replace(clock, at=moment)
    sigma = round(correction.sigma_at(moment), 6)
    return replace(clock, at=moment, offset=correction.offset_at(moment), uncertainty=sigma)


def _shown(clock: ClockId, row: Row, last: float | None, files: tuple[str, ...]) -> Clock:
    c = row.correction
    return Clock(
        host=clock.host,
        kind=clock.kind,
        zone=row.zone,
        offset=c.offset_at(last or c.origin) if row.known else None,
        drift_ppm=round(c.drift * 1e6, 3) if row.drift else None,
        at=last,
        uncertainty=round(c.sigma_at(last or c.origin), 6) if row.state != "refused" or row.known else None,
        events=row.events,
        state=row.state,
        reason=row.reason,
        sources=files,
    )


def _shown_kernel(clock: ClockId, bridge: Bridge | None, last: float | None, files: tuple[str, ...]) -> Clock:
    if bridge is None:
        state, why = "weak", "timestamps without a time zone; read as UTC"
        if clock.kind == "boot":
            state, why = "refused", "no line of this kernel log has a wall time, and none matches the job's logs"
        return Clock(clock.host, clock.kind, None, None, None, last, None, 0, state, why, files)
    offset, sigma = bridge.offset - (bridge.zone or 0.0), round(bridge.sigma, 3)
    found = (bridge.events, bridge.state, bridge.reason)
    return Clock(clock.host, clock.kind, bridge.zone, offset, None, last, sigma, *found, files)


__all__ = ["Timeline", "align"]
