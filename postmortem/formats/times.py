"""Times in the lines of a log: ISO, ctime, glog, syslog, seconds since 1970, seconds since boot.

A stamp without a year is placed in 1972 (a leap year long before any log); `align` finds the year. One
without a zone is read as UTC and marked naive. The clock, zone and locale of this machine are not used.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from postmortem.model import ClockKind, Stamp
from postmortem.model.digits import uniform
from postmortem.system import forms

NO_YEAR = 1972
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_REGEXES = forms.regexes("formats/envelopes")
_CLOCK = _REGEXES["clock"]  # part of each form below
_ISO, _GLOG = _REGEXES["time-iso"], _REGEXES["time-glog"]
_FORMS = [_REGEXES[f"time-{name}"] for name in ("iso", "ctime", "named", "glog", "syslog", "short", "month-first")]
_UNIX, _BOOT, _EPOCH = (_REGEXES[name] for name in ("time-unix", "time-boot", "epoch"))
_DATES = ((_ISO, len("2026-11-20 2")), (_GLOG, len("W1120 2")))  # the length up to where _CLOCK begins


def find(text: str) -> Stamp | None:
    """Return the first time in the first 160 characters of `text`, or None."""
    head = text[:160]
    date = _date(head)
    return _stamp(head, date) if date is not None else _since_1970(head) or boot(head)


def reader(alike: str) -> Callable[[str], Stamp | None] | None:
    """Return what reads the first time of the lines that are this one, with zeros for digits; None without a time."""
    date = _date(alike[:160])
    if date is not None:
        return lambda text: _stamp(text, date)
    return find if _MAY_COUNT.search(alike, 0, 160) else boot if boot(alike) else None


_MAY_COUNT = re.compile(r"(?:^\[?|\b(?:time|ts|timestamp)=\"?)0{10}")  # seconds since 1970
_MINUTE = ("Y", "M", "b", "D", "h", "m", "p", "z")  # the parts of a date, but for its second


class _Date(NamedTuple):
    """The places of a date and of its parts."""

    minute: tuple[slice, ...]
    second: slice
    fraction: slice
    whole: slice
    glog: bool


@uniform
def _date(head: str) -> _Date | None:
    clock = _CLOCK.search(head)
    if clock is None:
        return None
    for form, date in _DATES:  # a date right before the first clock is the first time
        if (at := clock.start() - date) >= 0 and (m := form.match(head, at)):
            return _places(m, form is _GLOG)
    best: re.Match[str] | None = None
    glog = False
    for form in _FORMS:
        m = form.search(head, 0, len(head) if best is None else min(len(head), best.start() + 48))
        if m and (best is None or m.start() < best.start()):
            best, glog = m, form is _GLOG
            if not m.start():
                break
    return _places(best, glog) if best is not None else None


def _places(m: re.Match[str], glog: bool) -> _Date:
    parts = {name: slice(*m.span(name)) for name, part in m.groupdict().items() if part}
    minute = tuple(parts.get(name, slice(0)) for name in _MINUTE)
    return _Date(minute, parts["s"], parts.get("f", slice(0)), slice(*m.span()), glog)


def _since_1970(head: str) -> Stamp | None:
    m = _EPOCH.match(head) if head[:1] in ("1", "[") else _UNIX.search(head) if "=" in head else None
    if m is None:
        return None
    second, part, *bare = m.groups()
    digits = (part or (bare and bare[1]) or "").lstrip(".")
    return Stamp(float(f"{second or bare[0]}.{digits or 0}"), "absolute", m[0].strip(), _sigma(len(digits), False))


def boot(text: str) -> Stamp | None:
    """Return a kernel stamp, seconds since boot."""
    m = _BOOT.search(text[:160]) if "[" in text else None
    return Stamp(float(m["t"]), "boot", m[0], 1e-6) if m else None


def _stamp(head: str, date: _Date) -> Stamp | None:
    """The stamp of a date; None where the digits are none (month 13, 29 February 2023)."""
    found, second, extra = _minute(*[head[part] for part in date.minute]), int(head[date.second]), 0.0
    if second == 60:  # a leap second counts as the last moment of its minute
        second, extra = 59, 0.999
    if found is None or second >= 60:
        return None
    minute, zone, clock = found
    digits = head[date.fraction]
    time = minute + second + extra + float(f"0.{digits or 0}") - zone
    return Stamp(time, clock, head[date.whole], _sigma(len(digits), date.glog))


@lru_cache(maxsize=4096)
def _minute(
    year: str, number: str, name: str, day: str, hours: str, minutes: str, half: str, zone: str
) -> tuple[int, int, ClockKind] | None:
    """The seconds to a minute, its zone, and its clock."""
    y, hour, minute = int(year or NO_YEAR), int(hours), int(minutes)
    month = int(number) if number else _MONTHS.index(name) + 1 if name in _MONTHS else 0
    if half and 1 <= hour <= 12:  # 12 AM is midnight
        hour = hour % 12 + (12 if "P" in half else 0)
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and 1970 <= y < 2200):
        return None
    if not 1 <= int(day) <= calendar.monthrange(y, month)[1]:
        return None
    return calendar.timegm((y, month, int(day), hour, minute, 0)), *_zone(zone)


def _zone(text: str) -> tuple[int, ClockKind]:
    """Seconds east of UTC."""
    if not text:
        return 0, "naive"
    if text.strip() in ("Z", "UTC"):
        return 0, "absolute"
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60), "absolute"


@lru_cache(maxsize=64)
def _sigma(digits: int, glog: bool) -> float:
    """Resolution as one standard deviation. The nine digits of c10 come from CLOCK_MONOTONIC and its seconds
    from the wall clock, so such a stamp is good to a second only (c10/util/Logging.cpp)."""
    if not digits:
        return 0.3
    if glog and digits == 9:
        return 0.5
    return float(max(10.0**-digits, 1e-4) * 0.3)
