"""What the history told -> one sentence for all outputs.

seen 6 times since 12 November 2026, 4 of them on gpu-017; last on 20 November 2026 (9c0e11d2ab34);
last time: fixed by …
"""

from __future__ import annotations

from postmortem.report import text, view


def sentence(document: view.Document) -> str:
    """How often the same was seen before; nothing where the verdict was not filed."""
    seen = view.part(document, "history")
    times, all_ = view.whole(seen.get("times")), view.whole(seen.get("incidents"))
    if times is None or all_ is None:
        return ""
    since, other = day(seen.get("since")), _incomparable(seen)
    if not times:
        others = f"{text.plural(all_, 'filed job')} since {since}" if all_ and since else "it begins with this one"
        return f"not seen before in the history ({others}{other})"
    told = f"seen {_times(times)} since {since}" if since and times > 1 else f"seen {_times(times)}"
    if times == 1 and since:
        told += f", on {since}"
    if (there := view.whole(seen.get("there")) or 0) > 1 and seen.get("host"):
        which = "all of them" if there == times else f"{there} of them"
        told += f", {which} on {text.line(seen['host'], 80)}"
    if times > 1 and (last := day(seen.get("last"))):
        told += f"; last on {last}"
    if seen.get("id"):
        told += f" ({text.line(seen['id'], 80)})"
    told += other
    return f"{told}; last time: {text.line(seen['note'], 400)}" if seen.get("note") else told


def _incomparable(seen: view.Document) -> str:
    """What is not known: incidents that another version filed may be of the same cause."""
    count = view.whole(seen.get("incomparable"))
    return f"; {count:,} filed with another version's fingerprints cannot be compared" if count else ""


def day(stamp: object) -> str:
    """`12 November 2026`."""
    at = text.epoch(stamp)
    return text.utc(at, "%d %B %Y").lstrip("0") if at is not None else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
