"""Text -> Stamp: every way in which the logs of a training job write a time.

    2026-11-20 21:01:43,548 INFO ...            python logging: local time, no zone
    [W1120 21:11:09.409017083 reducer.cpp:1529] c10: (M)MDD, no year; nine digits of another clock
    [Fri Nov 20 21:20:00 2026] ...              dmesg -T
    [ 2612.608042] ...                          dmesg: seconds since boot
    1795182042.135 rank42 step 58               `ts %.s`: seconds since 1970, also in brackets, to nanoseconds

A stamp without a year is placed in 1972 (a leap year long before any log); `align` finds the year. One
without a zone is read as UTC and marked naive. Nothing here looks at this machine's clock, zone or locale.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from functools import lru_cache

from postmortem.model import ClockKind, Stamp
from postmortem.system import lazy as late

NO_YEAR = 1972
MONTHS = {
    m: i + 1 for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
}
_CLOCK = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"

_HMS = late.regex(r"\d:\d\d:\d\d")  # stands in each of the forms below
_ISO = late.regex(
    rf"(?P<Y>\d{{4}})[-/](?P<M>\d\d)[-/](?P<D>\d\d)[T _]{_CLOCK}(?P<p> ?[AP]M\b)?"
    rf"(?P<z>Z| ?UTC|[+-]\d\d:?\d\d)?(?!\d)"
)
_GLOG = re.compile(rf"\b[IWEFDV](?P<M>\d{{1,2}}?)(?P<D>\d\d) {_CLOCK}")
_CTIME = late.regex(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<b>[A-Z][a-z]{{2}}) +(?P<D>\d\d?) {_CLOCK} (?P<Y>\d{{4}})")
_NAMED = late.regex(rf"(?P<b>[A-Z][a-z]{{2}}) +(?P<D>\d\d?) (?P<Y>\d{{4}}) {_CLOCK}")
_SYSLOG = late.regex(rf"(?P<b>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<D>\d\d?) {_CLOCK}")
_SHORT = late.regex(rf"(?<![\d/-])(?P<M>\d\d)[-/](?P<D>\d\d) \[?{_CLOCK}")
_PART = r"\.\d{1,9}|\d{3}(?:\d{3}){0,2}"  # of a second: `.135`, or the last digits of milli- to nanoseconds
_SECOND = r"1[4-9]\d{8}"  # since 1970: 2014 to 2033
_UNIX = late.regex(rf"\b(?:time|ts|timestamp)=\"?({_SECOND})({_PART})?\b")
# `ts %.s`; whole seconds only in brackets: a number of parameters may open a line, too
EPOCH = late.regex(rf"(?:\[({_SECOND})({_PART})?\]|({_SECOND})({_PART}))[:,]?(?: |$)")
_BOOT = late.regex(r"\[ {0,8}(?P<t>\d{1,9}\.\d{6})(?:\]|, *\d)")
_FORMS = (_ISO, _CTIME, _NAMED, _GLOG, _SYSLOG, _SHORT)
_BEFORE = ((_ISO, len("2026-11-20 2")), (_GLOG, len("W1120 2")))  # up to where _HMS begins


def find(text: str) -> Stamp | None:
    """Return the first time in the first 160 characters of `text`, or None."""
    head = text[:160]
    clock = _HMS.search(head)
    if clock is not None:
        for (
            form,
            date,
        ) in _BEFORE:  # where the first clock has such a date right before it, there is no other there
            if (at := clock.start() - date) >= 0 and (m := form.match(head, at)):
                return from_match(m)
    best: re.Match[str] | None = None
    for form in _FORMS if clock is not None else ():
        m = form.search(head, 0, len(head) if best is None else min(len(head), best.start() + 48))
        if m and (best is None or m.start() < best.start()):
            best = m
            if not m.start():
                break
    if best is not None:
        return from_match(best)
    return _since_1970(head) or boot(head)


def _since_1970(head: str) -> Stamp | None:
    m = EPOCH.match(head) if head[:1] in ("1", "[") else _UNIX.search(head) if "=" in head else None
    if m is None:
        return None
    second, part, *bare = m.groups()
    digits = (part or (bare and bare[1]) or "").lstrip(".")
    return Stamp(float(f"{second or bare[0]}.{digits or 0}"), "absolute", m[0].strip(), _sigma(digits, False))


def boot(text: str) -> Stamp | None:
    """Return a kernel stamp, seconds since boot."""
    m = _BOOT.search(text[:160]) if "[" in text else None
    return Stamp(float(m["t"]), "boot", m[0], 1e-6) if m else None


def from_match(m: re.Match[str]) -> Stamp | None:
    """Turn a match of one of this module's forms into a stamp;
    None where the digits are no date (month 13, 29 February 2023)."""
    g = m.groupdict()
    year = int(g["Y"]) if g.get("Y") else NO_YEAR
    month = MONTHS.get(g["b"], 0) if g.get("b") else int(g["M"])
    whole = epoch(year, month, int(g["D"]), _hour(int(g["h"]), g.get("p")), int(g["m"]), int(g["s"]))
    if whole is None:
        return None
    digits = g.get("f") or ""
    fraction = float(f"0.{digits}") if digits else 0.0
    zone, clock = _zone(g.get("z"))
    return Stamp(whole + fraction - zone, clock, m[0], _sigma(digits, m.re is _GLOG))  # so it is compiled at once


def epoch(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    """Seconds since 1970 in UTC. A leap second (:60) counts as the last moment of its minute."""
    extra = 0.0
    if second == 60:
        second, extra = 59, 0.999
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 60 and 1970 <= year < 2200):
        return None
    midnight = _midnight(year, month, day)
    return None if midnight is None else midnight + hour * 3600 + minute * 60 + second + extra


@lru_cache(maxsize=256)
def _midnight(year: int, month: int, day: int) -> int | None:
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, 0, 0, 0))


def _hour(hour: int, half: str | None) -> int:
    """Hour of the day of a twelve-hour clock: 12 AM is midnight."""
    if half is None or not 1 <= hour <= 12:
        return hour
    return hour % 12 + (12 if "P" in half else 0)


def _zone(text: str | None) -> tuple[int, ClockKind]:
    if not text:
        return 0, "naive"
    if text.strip() in ("Z", "UTC"):
        return 0, "absolute"
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60), "absolute"


def _sigma(digits: str, glog: bool) -> float:
    """Resolution as one standard deviation. The nine digits of c10 come from CLOCK_MONOTONIC while the
    seconds come from the wall clock, so such a stamp is good to a second only (torch
    c10/util/Logging.cpp)."""
    if not digits:
        return 0.3
    if glog and len(digits) == 9:
        return 0.5
    return max(10.0 ** -len(digits), 1e-4) * 0.3


Finder = Callable[[str], Stamp | None]
