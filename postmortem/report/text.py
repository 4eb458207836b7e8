"""Any text -> text that is safe and short to show: log lines, names, times, sizes, rank lists.

    b"\\x1b]0;pwned\\x07loss nan" decoded  ->  \\x1b]0;pwned\\x07loss nan      (as characters one can see)
    [0, 1, 2, 5]                          ->  0–2, 5
    "2026-11-20T21:13:48.704416Z"         ->  21:13:48.704

Log text may hold terminal escapes, bidirectional overrides, NUL or halves of surrogate pairs. Nothing here
removes them: an engineer should see that they are there. They are written as Python would write them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime

# C0 without tab, DEL and C1, invisible and direction-changing characters,
# halves of surrogate pairs, tag characters.
# Joiners (U+200C, U+200D) stay: emoji and several scripts need them, and they move nothing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

BROAD = 30.0  # seconds of error from which on a line has no place on the clock; the headlines say "about 11:17"


def visible(text: str) -> str:
    """Return `text` with every character that acts instead of showing written out.
    Tabs stay; line ends do not."""
    return _UNSEEN.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x0A:
        return "\\n"
    if code == 0x0D:
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def line(text: object, limit: int = 2000) -> str:
    """Return `text` as one safe line of at most `limit` characters and a note of what was cut."""
    shown = str(text)
    if not (shown.isascii() and shown.isprintable()):  # nearly all are: log lines in English
        shown = visible(shown).expandtabs(4)
    if len(shown) <= limit:
        return shown
    return f"{shown[:limit]} … (+{len(shown) - limit:,} characters)"


def sentence(text: object, limit: int = 1000) -> str:
    """Return prose on one line, without control characters, cut between two words where it is too long."""
    shown = visible(" ".join(str(text).split()))
    return shown if len(shown) <= limit else f"{shown[:limit].rsplit(' ', 1)[0]} …"


def plural(count: int, noun: str, many: str = "") -> str:
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def ranges(numbers: Iterable[int], most: int = 0) -> str:
    """Join numbers to spans: [0, 1, 2, 5] -> "0–2, 5"; of more than `most` spans the first, and a count."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    kept = spans[:most] if most else spans
    rest = sum(b - a + 1 for a, b in spans[len(kept) :])
    said = ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in kept)
    return f"{said} and {rest:,} more" if rest else said


def size(count: object) -> str:
    """1536 -> "1.5 KiB"."""
    value = float(count) if isinstance(count, int | float) and math.isfinite(count) else 0.0
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: object) -> str:
    """0.004 -> "4 ms", 37.01 -> "37 s", 4000 -> "1 h 6 min"."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return ""
    number = abs(float(value))
    if number < 0.0005:
        return "0 s" if number == 0 else "under 1 ms"
    if number < 0.0995:
        return f"{number * 1000:.0f} ms"
    if number < 120:
        return f"{number:.{2 if number < 0.995 else 1}f}".rstrip("0").rstrip(".") + " s"
    whole = round(number)
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    hours, minutes = divmod(round(number / 60), 60)
    if hours < 48:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{round(hours / 24)} days"


def epoch(stamp: object) -> float | None:
    """Read an ISO 8601 stamp of the document; None where there is none or it cannot be read."""
    if not isinstance(stamp, str):
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def day_and_time(stamp: object) -> tuple[str, str]:
    """Day and time of day in UTC, `2026-11-20` and `21:13:48.704`; nothing for what is no time."""
    moment = epoch(stamp)
    return ("", "") if moment is None else (day(moment), clock(moment))


def moment(stamp: object, sigma: object = None) -> str:
    """The time of a line as well as it is known: `21:13:48.704 UTC ± 4 ms`, `21:13:48 UTC ± 5 s`."""
    at = epoch(stamp)
    if at is None:
        return ""
    error = float(sigma) if isinstance(sigma, int | float) else 0.0
    return f"{mark(at, error)} UTC" + (f" ± {seconds(error)}" if 0.0005 <= error < BROAD else "")


def mark(at: float, sigma: float) -> str:
    """A time of day with no more digits than are known: `21:13:48.704`, `21:13:48`, `about 21:13`."""
    if sigma >= BROAD:
        return f"about {utc(at, '%H:%M')}"
    return clock(at) if sigma < 1 else utc(at, "%H:%M:%S")


def utc(moment: float, form: str) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime(form)


def day(moment: float) -> str:
    """Stamps without a year stand in 1972, stamps since boot in 1970: what nobody wrote is not shown."""
    return utc(moment, "%Y-%m-%d" if moment >= 4e8 else "%m-%d") if moment >= 6.3e7 else ""


def clock(moment: float, digits: int = 3) -> str:
    """Time of day in UTC with `digits` decimals, none where they are all zero."""
    scale = 10**digits
    whole, part = divmod(round(moment * scale), scale)
    base = utc(float(whole), "%H:%M:%S")
    return f"{base}.{part:0{digits}d}" if digits and part else base


def cells(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    wide = sum(1 for char in text if unicodedata.east_asian_width(char) in "WF")
    return (
        len(text) + wide - sum(1 for char in text if unicodedata.combining(char) or char in "\u200c\u200d\ufe0e\ufe0f")
    )
