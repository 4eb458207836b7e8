"""Safe and short forms of any text: log lines, names, times, sizes, rank lists.

    b"\\x1b]0;pwned\\x07loss nan" decoded  ->  \\x1b]0;pwned\\x07loss nan      (as visible characters)
    [0, 1, 2, 5]                          ->  0–2, 5
    "2026-11-20T21:13:48.704416Z"         ->  21:13:48.704

Log text may have terminal escapes, bidirectional overrides, NUL or halves of surrogate pairs. They are not removed but
written as Python would write them, so that an engineer sees them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

# C0 without tab, DEL and C1, invisible and direction-changing characters, halves of surrogate pairs, tag characters.
# Joiners (U+200C, U+200D) remain: emoji and several scripts need them, and they move nothing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

AROUND = 60  # characters of a long line that are shown on each side of its decisive part, at least
BROAD = 30.0  # seconds of error from which on a time is only approximate; the headlines have "about 11:17"


def visible(text: str) -> str:
    """Return `text` with every invisible character but tabs written out, line ends too."""
    return _UNSEEN.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x0A:
        return "\\n"
    if code == 0x0D:
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def line(text: object, limit: int = 2000) -> str:
    """Return `text` as one safe line of at most `limit` characters and a count of the others."""
    shown = str(text)
    if not (shown.isascii() and shown.isprintable()):  # nearly all are: log lines in English
        shown = visible(shown).expandtabs(4)
    if len(shown) <= limit:
        return shown
    return f"{shown[:limit]} … (+{len(shown) - limit:,} characters)"


def around(text: object, part: str, limit: int = 600) -> tuple[str, str, str]:
    """Return a safe line in three: before `part`, the part itself, and behind it; the ends of a long line are left out,
    not the part. Without the part, the line is the first of the three."""
    shown, part = line(state(str(text), part), 1 << 20), line(part, 1 << 20)
    at = shown.find(part) if part else -1
    if at < 0:
        return (line(shown, limit), "", "")
    room = max(limit - len(part), 2 * AROUND)
    before, after = shown[:at], shown[at + len(part) :]
    if len(before) + len(part) + len(after) > limit:
        before = before if len(before) <= room // 2 else f"… {before[-room // 2 :]}"
        after = line(after, max(room - len(before), AROUND))
    return (before, line(part, limit), after)


def state(text: str, part: str = "") -> str:
    """Return the visible state of a line that a progress bar rewrote with carriage returns, or the one with `part`."""
    states = [state for state in text.split("\r") if state.strip()]
    return next((state for state in states if part and part in state), states[-1]) if states else text


def sentence(text: object, limit: int = 1000) -> str:
    """Return prose on one line without control characters, cut between two words if it is too long."""
    shown = visible(" ".join(str(text).split()))
    return shown if len(shown) <= limit else f"{shown[:limit].rsplit(' ', 1)[0]} …"


def plural(count: int, noun: str, many: str = "") -> str:
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def ranges(numbers: Iterable[int], most: int = 0) -> str:
    """[0, 1, 2, 5] -> "0–2, 5"; at most `most` spans and a count of the other numbers."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = spans[:most] if most else spans
    rest = sum(b - a + 1 for a, b in spans[len(shown) :])
    joined = ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in shown)
    return f"{joined} and {rest:,} more" if rest else joined


def ranks(numbers: Sequence[int], most: int = 0) -> str:
    """[3] -> "rank 3", [0, 1, 2] -> "ranks 0–2"."""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {ranges(numbers, most)}"


def number(value: object) -> float:
    """Return a number of the document as a float, infinity where that is too small for it; NaN if it is none."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.inf


def finite(value: object) -> float:
    """Return a number of the document as a float; 0.0 if it is none."""
    found = number(value)
    return found if math.isfinite(found) else 0.0


def size(count: object) -> str:
    """1536 -> "1.5 KiB"."""
    value = finite(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: object) -> str:
    """0.004 -> "4 ms", 37.01 -> "37 s", 4000 -> "1 h 6 min"."""
    found = abs(number(value))
    if not math.isfinite(found):
        return ""
    if found < 0.0005:
        return "0 s" if found == 0 else "under 1 ms"
    if found < 0.0995:
        return f"{found * 1000:.0f} ms"
    if found < 120:
        return f"{found:.{2 if found < 0.995 else 1}f}".rstrip("0").rstrip(".") + " s"
    whole = round(found)
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    hours, minutes = divmod(round(found / 60), 60)
    if hours < 48:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{round(hours / 24)} days"


def epoch(stamp: object) -> float | None:
    """Parse an ISO 8601 time of the document; None if it is not one."""
    if not isinstance(stamp, str):
        return None
    try:
        moment = datetime.fromisoformat(stamp)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def day_and_time(stamp: object) -> tuple[str, str]:
    """Return day and time of day in UTC, `2026-11-20` and `21:13:48.704`; two empty strings if it is no time."""
    moment = epoch(stamp)
    return ("", "") if moment is None else (day(moment), clock(moment))


def moment(stamp: object, sigma: object = None) -> str:
    """Return a time as precisely as it is known: `21:13:48.704 UTC ± 4 ms`, `21:13:48 UTC ± 5 s`."""
    at = epoch(stamp)
    if at is None:
        return ""
    error = number(sigma)
    error = 0.0 if math.isnan(error) else error
    return f"{mark(at, error)} UTC" + (f" ± {seconds(error)}" if 0.0005 <= error < BROAD else "")


def mark(at: float, sigma: float) -> str:
    """Return a time of day with no more digits than are known: `21:13:48.704`, `21:13:48`, `about 21:13`."""
    if sigma >= BROAD:
        return f"about {utc(at, '%H:%M')}"
    return clock(at) if sigma < 1 else utc(at, "%H:%M:%S")


def utc(moment: float, form: str) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime(form)


def day(moment: float) -> str:
    """Return the date. Times without a year are in 1972, times since boot in 1970: made-up parts are omitted."""
    return utc(moment, "%Y-%m-%d" if moment >= 4e8 else "%m-%d") if moment >= 6.3e7 else ""


def clock(moment: float, digits: int = 3) -> str:
    """Return the time of day in UTC with `digits` decimals, without them if they are all zero."""
    scale = 10**digits
    whole, part = divmod(round(moment * scale), scale)
    base = utc(float(whole), "%H:%M:%S")
    return f"{base}.{part:0{digits}d}" if digits and part else base


def cells(text: str) -> int:
    """Return the columns that `text` takes on a terminal."""
    wide = sum(1 for char in text if unicodedata.east_asian_width(char) in "WF")
    return (
        len(text) + wide - sum(1 for char in text if unicodedata.combining(char) or char in "\u200c\u200d\ufe0e\ufe0f")
    )
