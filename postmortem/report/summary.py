"""One-line summaries of parts of the document: its confidence, attempts, the collective of the verdict, the history.

attempt 0, 22:40:30 to 22:40:33: Rank 2 raised OSError: … in train.py:23; exit code 1
ALLREDUCE #8120 in the default group, 1,048,576 elements: 3 of 4 ranks entered, rank 2 had completed
#8119; timed out after 600 s
seen 6 times since 12 November 2026, 4 of them on gpu-017; last on 20 November 2026 (9c0e11d2ab34);
last time: fixed by …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from postmortem.model.digits import whole
from postmortem.model.vocabulary import OF_THE_GROUP
from postmortem.report import bars, labels, text, view

MAX_ATTEMPTS = 12
FEW_HOSTS = 3  # that are named
MAX_GROUPS = 4  # groups of ranks in other places whose place is stated
UNDECIDED = "which came first is not determined"  # a reason that is none
CALLS = {"backward": "the all-reduce of backward", "init": "init_process_group"}

# ── the confidence, and the other causes ────────────────────────────────────────────────────────────────────────────


def confidence(document: view.Document) -> tuple[str, int, str]:
    """Return the word, its number of dots out of three, and its meaning; empty where no cause is named."""
    verdict = view.part(document, "verdict")
    word = view.known(verdict.get("confidence"))
    if verdict.get("outcome") in ("healthy", "undetermined") or word not in labels.CONFIDENCE:
        return "", 0, ""
    dots, meaning = labels.CONFIDENCE[word]
    if word == "supported":
        return word, dots, _supported(document, verdict)
    return word, dots, meaning if view.blamed(document) else meaning.partition(",")[0]


def _supported(document: view.Document, verdict: dict[str, Any]) -> str:
    """Return what lacks for an established verdict."""
    if not view.blamed(document):
        return "no line shows which rank or host failed"
    if view.known(verdict.get("category")) in OF_THE_GROUP:
        return "by a comparison of the ranks; no line states it"
    if any(row.get("end_stated_by") == _at(verdict) for row in view.rows(document.get("processes"))):
        return "the end of the process is known, not its reason"
    if any(view.known(row.get("why_not")).startswith(UNDECIDED) for row in view.rows(document.get("alternatives"))):
        return "an alternative remains"
    return "one witness only" if len(view.rows(verdict.get("evidence"))) == 1 else labels.CONFIDENCE["supported"][1]


def _at(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return the address of the decisive line."""
    first = next(iter(view.rows(verdict.get("evidence"))), {})
    return {name: first.get(name) for name in ("source", "line")}


def alternatives(document: view.Document) -> list[str]:
    """Return the other causes, each as a sentence with the reason against it."""
    return [_alternative(item) for item in view.rows(document.get("alternatives"))]


def _alternative(item: dict[str, Any]) -> str:
    name = view.known(item.get("title")) or view.known(item.get("pattern") or item.get("category")).replace("-", " ")
    why, where, ranks = view.known(item.get("why_not")), view.known(item.get("where")), view.numbers(item.get("ranks"))
    of = "; ".join(filter(None, (text.ranks(ranks) if ranks else "", where if where not in why else "")))
    return f"{name or 'another reading'}{of and f' ({of})'}: {why or 'no reason is recorded'}"


# ── the job ─────────────────────────────────────────────────────────────────────────────────────────────────────


def facts(document: view.Document) -> list[str]:
    """Return the job in a few words: `job 42221`, `8 ranks`, `node-a, node-b`, its first and last time, versions."""
    found = view.part(document, "job")
    world, lives = view.whole(found.get("world_size")), view.whole(found.get("attempts")) or 0
    hosts, seen = view.words(found.get("hosts")), len(view.rows(document.get("ranks")))
    words = [
        view.job(document),
        text.plural(world, "rank") if world is not None else f"{text.plural(seen, 'rank')} seen" if seen else "",
        ", ".join(hosts) if len(hosts) <= FEW_HOSTS else text.plural(len(hosts), "host"),
        text.plural(lives, "attempt") if lives > 1 else "",
        span(document),
        *(f"{label} {found[name]}" for name, label in (("torch", "torch"), ("nccl", "NCCL")) if found.get(name)),
    ]
    return [text.line(word, 200) for word in words if word]


def span(document: view.Document) -> str:
    """Return the first and the last time of the job: `2026-11-20 13:05:01 to 13:18:45 UTC`, `until 2026-11-20 …` where
    its beginning is not in the logs."""
    lives = view.rows(document.get("attempts"))
    stamps = [row.get(name) for row in lives for name in ("begin", "end")]
    stamps += [row.get("first_seen") for row in view.rows(document.get("processes"))]
    times = map(text.day_and_time, stamps)
    days = [(day, time.partition(".")[0]) for day, time in sorted(times) if time]
    if not days:
        return ""
    if len({day for day, _ in days}) == 1 and days[0][0] in view.lead(document)[0]:  # the title has the date
        days = [("", time) for _, time in days]
    (first, begin), (last, end) = days[0], days[-1]
    if not (lives and lives[0].get("begin")):
        return " ".join(filter(None, ("until", last, end, "UTC")))
    until = f" to {end}" if last == first else f" to {last} {end}"
    return f"{first} {begin}{until if (first, begin) != (last, end) else ''} UTC".strip()


# ── attempts ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the job. `why` names the rank that failed; it is empty where none did."""

    number: str
    begin: str
    end: str
    category: str
    why: str
    ended: str

    @property
    def line(self) -> str:
        """All in one line, for a terminal."""
        span = f"{self.begin} to {self.end}" if self.begin and self.end else self.end and f"until {self.end}"
        reasons = "; ".join(part.rstrip(".") for part in (self.why, self.ended) if part)
        return f"attempt {self.number}{f', {span}' if span else ''}: {reasons or 'not known how it ended'}"


def attempts(document: view.Document) -> list[Attempt]:
    """Return the last attempts, oldest first; empty where there was only one. A repeated reason is not repeated."""
    rows = view.rows(document.get("attempts"))
    found = [_attempt(row) for row in rows[-MAX_ATTEMPTS:]] if len(rows) > 1 else []
    first: dict[str, str] = {}
    for attempt in found:
        first.setdefault(attempt.why, attempt.number)
    return [
        replace(attempt, why=f"The same as attempt {first[attempt.why]}.")
        if attempt.why and first[attempt.why] != attempt.number
        else attempt
        for attempt in found
    ]


def _attempt(row: dict[str, Any]) -> Attempt:
    category, ended = view.known(row.get("category")), view.known(row.get("ended"))
    # to the second: the begin of an attempt is not known better
    begin, end = (text.day_and_time(row.get(name))[1].partition(".")[0] for name in ("begin", "end"))
    return Attempt(
        number=view.known(row.get("number")) or "?",
        begin=begin,
        end=end,
        category=labels.CATEGORIES.get(category, category),
        why=view.known(row.get("why")) if row.get("outcome") != "healthy" else "",
        ended="" if ended.removeprefix("the others ") in view.known(row.get("why")) else ended,
    )


# ── the collective ──────────────────────────────────────────────────────────────────────────────────────────────


def collective(document: view.Document) -> str:
    """Return a sentence on the collective that the ranks were stuck in; empty where the logs show no wait."""
    row = view.part(view.part(document, "verdict"), "collective")
    limit, waited = _seconds(row.get("timeout_s")), _seconds(row.get("waited_s"))
    wait = f"timed out after {limit}" if limit else f"waited for {waited}" if waited else ""
    if not (wait or any(row.get(name) for name in ("seq", "missing", "elsewhere"))):
        return ""
    return f"{_call(row)}: {', '.join(_places(row))}" + (f"; {wait}" if wait else "")


def _call(row: dict[str, Any]) -> str:
    op = view.known(row.get("op")) or "a collective"
    seq, group = view.whole(row.get("seq")), view.known(row.get("group")).partition(" [")[0]
    call = CALLS.get(op, op) + (f" #{seq}" if seq is not None else "")
    if group:
        call += " in the default group" if group == "default_pg" else f" in group {group}"
    numel, dtype = view.whole(row.get("numel_in")), view.known(row.get("dtype"))
    if numel is not None:
        call += f", {text.plural(numel, f'{dtype} element' if dtype else 'element')}"
    return call


def _places(row: dict[str, Any]) -> Iterator[str]:
    """Yield the ranks that had entered, and the places of the others."""
    entered, size = view.numbers(row.get("entered")), view.whole(row.get("size"))
    completed, others = view.part(row, "completed"), view.part(row, "elsewhere")
    seq = view.whole(row.get("seq"))
    done = [r for r in entered if seq is not None and (view.whole(completed.get(str(r))) or 0) >= seq]
    if done and len(done) < len(entered):
        yield f"{text.ranks([r for r in entered if r not in done], view.SPANS)} entered and did not complete it"
        yield f"{text.ranks(done, view.SPANS)} completed it"
    elif size is not None and entered:
        all_ranks = "both ranks" if size == 2 else f"all {size:,} ranks"
        yield f"{all_ranks if len(entered) == size else f'{len(entered):,} of {size:,} ranks'} entered"
    elif entered:
        yield f"{text.ranks(entered)} entered"
    places: dict[str, list[int]] = {}
    for rank in view.numbers(row.get("missing")):
        n = view.whole(completed.get(str(rank)))
        places.setdefault(f"had completed #{n}" if n is not None else "did not", []).append(rank)
    for name, call in others.items():
        if name.isdecimal():
            places.setdefault(f"in {CALLS.get(str(call), str(call))}", []).append(whole(name))
    for place, ranks in list(places.items())[:MAX_GROUPS]:
        was = ("was " if len(ranks) == 1 else "were ") if place.startswith("in ") else ""
        yield f"{text.ranks(ranks)} {was}{place}"


def _seconds(value: object) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        return ""
    return f"{value:.0f} s" if value >= 10 else f"{float(f'{value:.1f}'):g} s"


def numbers(document: view.Document) -> list[str]:
    """Return who waits for whom, the ranks that are slow, and the memory of an OOM, each in a sentence."""
    found = view.part(document, "quantities")
    waits = "" if collective(document) else view.known(view.part(document, "hang").get("text"))
    slow = [view.known(row.get("text")) for row in view.rows(view.part(found, "pace").get("stragglers"))]
    full = [f"{bar.label}: {bar.number} ({bar.at})." for bar in bars.memory(document)[:1]]
    return [sentence for sentence in (waits, *slow, *full) if sentence]


# ── the history ─────────────────────────────────────────────────────────────────────────────────────────────────


def history(document: view.Document) -> str:
    """Return how often the same was seen before; empty where the verdict was not filed."""
    seen = view.part(document, "history")
    times, filed = view.whole(seen.get("times")), view.whole(seen.get("incidents"))
    if times is None or filed is None:
        return ""
    since, other = day(seen.get("since")), view.whole(seen.get("incomparable"))
    incomparable = f"; {other:,} filed with another version's fingerprints cannot be compared" if other else ""
    if not times:
        others = f"{text.plural(filed, 'filed job')} since {since}" if filed and since else "it begins with this one"
        return f"not seen before in the history ({others}{incomparable}){weighed(document)}"
    found = f"seen {'once' if times == 1 else f'{times} times'}"
    if since:
        found += f" since {since}" if times > 1 else f", on {since}"
    if (there := view.whole(seen.get("there")) or 0) > 1 and seen.get("host"):
        found += f", {'all of them' if there == times else f'{there} of them'} on {text.line(seen['host'], 80)}"
    if times > 1 and (last := day(seen.get("last"))):
        found += f"; last on {last}"
    if seen.get("id"):
        found += f" ({text.line(seen['id'], 80)})"
    found += incomparable + weighed(document)
    return f"{found}; last time: {text.line(seen['note'], 400)}" if seen.get("note") else found


def weighed(document: view.Document) -> str:
    """Return the number of resolved incidents that the usual causes are weighed by."""
    count = view.whole(view.part(document, "history").get("resolved"))
    return f"; usual causes weighed by {text.plural(count, 'resolved incident')} of this site" if count else ""


def changes(document: view.Document) -> list[str]:
    """Return sentences on what changed since the last report of the job; empty without a history."""
    return view.words(view.part(document, "history").get("changes"))


def day(stamp: object) -> str:
    """`12 November 2026`."""
    at = text.epoch(stamp)
    return text.utc(at, "%d %B %Y").lstrip("0") if at is not None else ""
