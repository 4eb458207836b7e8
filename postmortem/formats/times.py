"""Times in the lines of a log: ISO, ctime, glog, syslog, seconds since 1970, seconds since boot.

A stamp without a year is placed in 1972 (a leap year long before any log); `align` finds the year. One
without a zone is read as UTC and marked naive. The clock, zone and locale of this machine are not used.
"""

from __future__ import annotations

import calendar
import re
from functools import lru_cache

from postmortem.model import ClockKind, Stamp
from postmortem.model.digits import uniform
from postmortem.system import forms

NO_YEAR = 1972
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_REGEXES = forms.regexes("formats/envelopes")
_CLOCK = _REGEXES["clock"]  # part of each form below
_ISO, _GLOG = _REGEXES["time-iso"], _REGEXES["time-glog"]
_FORMS = [_REGEXES[f"time-{name}"] for name in ("iso", "ctime", "named", "glog", "syslog", "short")]
_UNIX, _BOOT, _EPOCH = (_REGEXES[name] for name in ("time-unix", "time-boot", "epoch"))
_DATES = ((_ISO, len("2026-11-20 2")), (_GLOG, len("W1120 2")))  # the length up to where _CLOCK begins


def find(text: str) -> Stamp | None:
    """Return the first time in the first 160 characters of `text`, or None."""
    head = text[:160]
    place = _date(head)
    return _stamp(head, *place) if place is not None else _since_1970(head) or boot(head)


Places = dict[str, slice]  # of the parts of a date


@uniform
def _date(head: str) -> tuple[Places, bool] | None:
    """The places of the first date and of its parts, and whether it is glog's."""
    clock = _CLOCK.search(head)
    if clock is None:
        return None
    for form, date in _DATES:  # a date right before the first clock is the first time
        if (at := clock.start() - date) >= 0 and (m := form.match(head, at)):
            return _parts(m), form is _GLOG
    best: re.Match[str] | None = None
    glog = False
    for form in _FORMS:
        m = form.search(head, 0, len(head) if best is None else min(len(head), best.start() + 48))
        if m and (best is None or m.start() < best.start()):
            best, glog = m, form is _GLOG
            if not m.start():
                break
    return (_parts(best), glog) if best is not None else None


def _parts(m: re.Match[str]) -> Places:
    return {name: slice(*m.span(name)) for name, part in m.groupdict().items() if part} | {"": slice(*m.span())}


def _since_1970(head: str) -> Stamp | None:
    m = _EPOCH.match(head) if head[:1] in ("1", "[") else _UNIX.search(head) if "=" in head else None
    if m is None:
        return None
    second, part, *bare = m.groups()
    digits = (part or (bare and bare[1]) or "").lstrip(".")
    return Stamp(float(f"{second or bare[0]}.{digits or 0}"), "absolute", m[0].strip(), _sigma(digits, False))


def boot(text: str) -> Stamp | None:
    """Return a kernel stamp, seconds since boot."""
    m = _BOOT.search(text[:160]) if "[" in text else None
    return Stamp(float(m["t"]), "boot", m[0], 1e-6) if m else None


def _stamp(head: str, places: Places, glog: bool) -> Stamp | None:
    """The stamp of a date; None where the digits are none (month 13, 29 February 2023)."""
    g = {name: head[place] for name, place in places.items()}
    year = int(g.get("Y") or NO_YEAR)
    month = int(g["M"]) if g.get("M") else _MONTHS.index(g["b"]) + 1 if g["b"] in _MONTHS else 0
    hour, minute, second, extra = int(g["h"]), int(g["m"]), int(g["s"]), 0.0
    if g.get("p") and 1 <= hour <= 12:  # 12 AM is midnight
        hour = hour % 12 + (12 if "P" in g["p"] else 0)
    if second == 60:  # a leap second counts as the last moment of its minute
        second, extra = 59, 0.999
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 60 and 1970 <= year < 2200):
        return None
    midnight = _midnight(year, month, int(g["D"]))
    if midnight is None:
        return None
    digits = g.get("f") or ""
    zone, clock = _zone(g.get("z"))
    time = midnight + hour * 3600 + minute * 60 + second + extra + float(f"0.{digits or 0}") - zone
    return Stamp(time, clock, g[""], _sigma(digits, glog))


@lru_cache(maxsize=256)
def _midnight(year: int, month: int, day: int) -> int | None:
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, 0, 0, 0))


def _zone(text: str | None) -> tuple[int, ClockKind]:
    """Seconds east of UTC."""
    if not text:
        return 0, "naive"
    if text.strip() in ("Z", "UTC"):
        return 0, "absolute"
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60), "absolute"


def _sigma(digits: str, glog: bool) -> float:
    """Resolution as one standard deviation. The nine digits of c10 come from CLOCK_MONOTONIC and its seconds
    from the wall clock, so such a stamp is good to a second only (c10/util/Logging.cpp)."""
    if not digits:
        return 0.3
    if glog and len(digits) == 9:
        return 0.5
    return max(10.0 ** -len(digits), 1e-4) * 0.3
