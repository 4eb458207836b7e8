"""Kernel lines -> the job's time.

    [ 2240.704416] Memory cgroup out of memory: Killed process 29502             dmesg: seconds since boot
    [Fri Nov 20 21:13:48 2026] Memory cgroup out of memory: Killed process 29502  the same line, dmesg -T
    [    0.647614] rtc_cmos: setting system clock to 2026-11-20T20:36:27 UTC        at boot
    E1120 16:14:26.661000 29486 .../api.py:1037] failed (exitcode: -9) ... (pid: 29502)     the agent noticed

The same line in two forms gives boot time and zone. A kill comes before the agent's report of that pid and behind the
rank's last line; from these intervals the one is taken that most of them agree on. Where the kernel's wall time fits
them as it is, or with the host's own skew, it is taken so; the interval alone is weak. Without a kill, the clock's
setting at boot remains: the hardware's second, and the drift since.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median

from postmortem.align.owners import ClockId, Owners, is_kernel
from postmortem.align.zones import FARTHEST, QUARTER, snapped
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.system import forms

Process = tuple[str | None, int]  # host and pid
Window = tuple[float, float]  # in which (job time minus kernel time) lies
Place = Callable[[Event], tuple[float, float] | None]  # an event of the job -> its corrected time and sigma
Kernels = Mapping[ClockId, Sequence[Event]]
Skew = Callable[[float], float]  # a host's skew at a moment
Own = Mapping[str | None, tuple[float, Skew]]  # host -> zone of its own local stamps, and its skew

SLACK = 2.0  # dmesg's wall times lack adjustments of the clock since boot
AGENT_S = 5.0  # an agent looks at its workers this often at least (torchrun: 0.1 s, older and others up to 5 s)
UNSURE = 30.0  # sigma from which on a time bounds nothing
RTC_S, RTC_DRIFT = 1.5, 60e-6  # the hardware clock is read in whole seconds; quartzes differ
NEVER = -1e18
USER_PID = ("launcher-exit-code", "launcher-failure-block-exit")
_REGEXES = forms.regexes("align/kernel")


@dataclass(frozen=True)
class Bridge:
    """The correction of a kernel reading to the job's time: subtract `offset` (boot: minus the boot time)."""

    offset: float
    zone: float | None
    sigma: float
    events: int
    state: str
    reason: str
    own: bool = False  # read from the host's clock, whose correction holds


def body(text: str) -> str:
    """A kernel line without its stamps, which its copies in other formats share."""
    m = _REGEXES["stamps"].match(text)
    return text[m.end() if m else 0 :].strip()[:160]


def bridges(kernels: Kernels, events: Sequence[Event], owners: Owners, place: Place, own: Own) -> dict[ClockId, Bridge]:
    """Kernel clock -> how to correct it: from its own events, and from all."""
    if not kernels:
        return {}
    lines: dict[ClockId, dict[str, float]] = defaultdict(dict)
    for clock, members in kernels.items():
        for e in members:
            lines[clock].setdefault(body(e.text), e.time or 0.0)
    killed = {e.fields.get("pid", e.pid) for members in kernels.values() for e in members}
    hosts = {clock.host for clock in kernels}
    near = [e for e in events if (who := _ended(e)) is None or who in killed or owners.host(e) in hosts]
    ends, lasts, doubts = _ends(near, owners, place)
    windows = _windows(kernels, ends, lasts)
    found: dict[ClockId, Bridge] = {}
    for kind in ("absolute", "naive", "boot"):
        for clock in sorted((c for c in lines if c.kind == kind), key=str):
            bridge = _bridge(clock, lines, windows.get(clock, []), found, own.get(clock.host))
            if bridge is not None:
                doubt = doubts.get(clock.host, 0.0) if clock in windows else 0.0
                found[clock] = replace(bridge, sigma=math.hypot(bridge.sigma, doubt))
    return found


def _bridge(
    clock: ClockId,
    lines: Mapping[ClockId, Mapping[str, float]],
    windows: Sequence[Window],
    found: Mapping[ClockId, Bridge],
    own: tuple[float, Skew] | None,
) -> Bridge | None:
    if (twin := _by_twins(clock, lines, found)) is not None:
        return twin
    host_zone, skew_at = own or (0.0, lambda _: 0.0)
    if clock.kind == "boot":
        return _by_kills(windows) or _by_boot(lines[clock], skew_at)
    skew = skew_at(max(lines[clock].values()) - (host_zone if clock.kind == "naive" else 0.0))
    zones = [0.0] if clock.kind == "absolute" else _zones(windows, host_zone, skew)
    for zone in zones:
        for offset in dict.fromkeys((skew, 0.0)):
            fits = sum(lo - SLACK <= -(offset + zone) <= hi + SLACK for lo, hi in windows)
            if windows and fits * 2 > len(windows):
                why = "its kills are between the process's last line and the launcher's report"
                same = own is not None and offset == skew
                return Bridge(offset + zone, zone, 0.5, len(windows), "aligned", why, same)
    if (bridge := _by_kills(windows)) is not None:
        zone = snapped(bridge.offset) if clock.kind == "naive" else 0.0
        if abs(bridge.offset - zone) < QUARTER / 4 and abs(zone) <= FARTHEST:
            return Bridge(bridge.offset, zone, bridge.sigma, bridge.events, "weak", bridge.reason)
    if clock.kind == "absolute":
        why = "its timestamps have a time zone; set by the host's clock"
        return Bridge(skew, 0.0, 1.0, 0, "weak", why, own is not None)
    why = "read in the time zone of the host's other logs"
    return Bridge(skew + host_zone, host_zone, 1.0, 0, "weak", why, True) if own else None


def _zones(windows: Sequence[Window], host_zone: float, skew: float) -> list[float]:
    """Zones that may put the kills into their windows, the likeliest first."""
    found = {snapped(-(lo + hi) / 2 - s) for lo, hi in windows for s in (skew, 0.0)}
    return [z for z in dict.fromkeys((host_zone, 0.0, *sorted(found, key=abs))) if abs(z) <= FARTHEST]


def _by_twins(
    clock: ClockId, lines: Mapping[ClockId, Mapping[str, float]], found: Mapping[ClockId, Bridge]
) -> Bridge | None:
    """The same lines in a form that is understood already."""
    for other in sorted((c for c in found if c.host == clock.host and c != clock), key=lambda c: c.kind):
        gaps = [t - lines[other][text] for text, t in lines[clock].items() if text in lines[other]]
        if not gaps:
            continue
        apart, bridge = median(gaps), found[other]
        if clock.kind == "boot":
            sigma, why = max(bridge.sigma, 0.3), "the same lines also have wall time"
            return Bridge(apart + bridge.offset, None, sigma, len(gaps), bridge.state, why)
        zone = snapped(apart)
        if abs(apart - zone) <= SLACK:
            sigma, why = max(bridge.sigma, 0.5), "the same lines also have a time zone"
            return Bridge(bridge.offset + zone, (bridge.zone or 0.0) + zone, sigma, len(gaps), bridge.state, why)
    return None


def _by_boot(lines: Mapping[str, float], skew_at: Skew) -> Bridge | None:
    """From the hardware clock at boot, which is as fast or slow as the host's own, or both are right."""
    found = [(whole(m[1]) - t, t) for text, t in lines.items() if (m := _REGEXES["clock_set"].search(text))]
    if not found:
        return None
    (boot, set_at), last = found[-1], max(lines.values())
    sigma = RTC_S + RTC_DRIFT * max(last - set_at, 0.0)
    why = "set from the hardware clock at boot, which has whole seconds, and drifts from then on"
    return Bridge(skew_at(boot + last) - boot, None, sigma, 1, "weak", why)


def _by_kills(windows: Sequence[Window]) -> Bridge | None:
    """The interval most windows agree on (Marzullo), and its middle; near the report if it has no lower bound."""
    if not windows:
        return None
    lo, hi, votes = marzullo(windows)
    if hi - lo > 2 * AGENT_S:
        lo = hi - AGENT_S / 2
    sigma = max((hi - lo) / 12**0.5, 0.3)
    state = "aligned" if votes >= 3 and votes * 2 > len(windows) else "weak"
    why = f"between a process's last line and the launcher's report of its end, for {votes} of {len(windows)} kills"
    return Bridge(-(lo + hi) / 2, None, sigma, votes, state, why)


def marzullo(intervals: Sequence[Window]) -> tuple[float, float, int]:
    """The smallest interval that lies in the most intervals, and in how many (NTP's selection)."""
    edges = sorted([(lo, -1) for lo, _ in intervals] + [(hi, 1) for _, hi in intervals])
    depths = list(accumulate(-kind for _, kind in edges))
    best = depths.index(max(depths))
    return edges[best][0], edges[best + 1][0], depths[best]


def _ends(
    events: Sequence[Event], owners: Owners, place: Place
) -> tuple[dict[Process, float], dict[Process, float], dict[str | None, float]]:
    """The latest end of each process by its launcher, the last line of its rank, and its host clock's error, which
    moves both alike and makes no interval wider."""
    doubts: dict[str | None, float] = defaultdict(float)
    ends: dict[Process, float] = defaultdict(lambda: math.inf)
    pid_rank: dict[Process, int] = {}
    for e in events:
        who = _ended(e)
        at = place(e) if who is not None and not is_kernel(e) else None
        if who is None or at is None or at[1] > UNSURE:
            continue
        host = owners.host(e)
        ends[host, who] = min(ends[host, who], at[0] + 2 * max(e.sigma, 0.1))
        doubts[host] = max(doubts[host], math.sqrt(max(at[1] ** 2 - e.sigma**2, 0.0)))
        if e.rank is not None:
            pid_rank.setdefault((host, who), e.rank)
    last = _last_lines(events, owners, place, {(host, rank) for (host, _), rank in pid_rank.items()})
    return ends, {(host, pid): last[host, rank] for (host, pid), rank in pid_rank.items()}, doubts


def _last_lines(
    events: Sequence[Event], owners: Owners, place: Place, ranks: Collection[tuple[str | None, int]]
) -> dict[tuple[str | None, int], float]:
    """When these ranks were alive at least."""
    numbers = {rank for _, rank in ranks}
    found: dict[tuple[str | None, int], float] = defaultdict(lambda: NEVER)
    for e in events:
        if e.rank is None or e.rank not in numbers or e.kind not in ("line", "progress", "identity") or is_kernel(e):
            continue
        key = (owners.host(e), e.rank)
        if key in ranks and _ended(e) is None and (at := place(e)) is not None and at[1] <= UNSURE:
            found[key] = max(found[key], at[0] - 2 * e.sigma)
    return found


def _windows(
    kernels: Kernels, ends: Mapping[Process, float], lasts: Mapping[Process, float]
) -> dict[ClockId, list[Window]]:
    """Kernel clock -> for each kill the interval of (job time minus kernel time)."""
    hosts_of: dict[int, list[str | None]] = defaultdict(list)
    for host, pid in ends:
        hosts_of[pid].append(host)
    found: dict[ClockId, dict[int, Window]] = defaultdict(dict)
    for clock, members in kernels.items():
        for e in members:
            killed = e.fields.get("pid", e.pid)
            if killed is None or e.time is None:
                continue
            key: Process = (clock.host, killed)
            if key not in ends and len(hosts_of[killed]) == 1:
                key = (hosts_of[killed][0], killed)
            if key in ends:
                hi = ends[key] - e.time
                lo = max(lasts.get(key, NEVER) - e.time, hi - 900)
                found[clock].setdefault(killed, (min(lo, hi), hi))
    return {clock: list(kills.values()) for clock, kills in found.items()}


def _ended(e: Event) -> int | None:
    """The pid of the process that an event reports as ended."""
    return e.pid if e.kind == "exit" else e.fields.get("pid") if e.pattern in USER_PID else None
