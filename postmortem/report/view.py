"""The incident document -> what every output shows of it: proofs, steps, notices.

In goes the fixed JSON document, with absent keys or nulls wherever nothing is known; out come small frozen
values whose texts still hold what the logs held. Whoever prints them makes them safe (`text.visible`,
autoescape, fences).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from postmortem.library.titles import entitled
from postmortem.model.vocabulary import NO_LOGS, WINDOW
from postmortem.report import text
from postmortem.report.labels import ACTIONS, CATEGORIES, CONFIDENCE

Document = Mapping[str, Any]

STATES = ("cause", "silent", "unknown", "victim", "healthy")  # the odd ones first
LOOKS = {"cause": "cause", "symptom": "victim", "confirms": "confirms", "context": "unknown"}
MAX_CONTEXT = 5
SPANS = 8  # of a list of ranks; where all are wanted, they stand in a fold


class Frames(Protocol):
    """A timeline: anything that gives its events as the columns of `align.COLUMNS`."""

    def columns(self, ordered: bool = True) -> Sequence[Sequence[Any]]: ...


class Incident(Protocol):
    """What a report is made from: the document, and the events if they are still at hand."""

    @property
    def document(self) -> Mapping[str, Any]: ...

    @property
    def timeline(self) -> Frames | None: ...


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an excerpt; `number` is None in binary and JSON files."""

    number: int | None
    text: str
    decisive: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """One piece of evidence with its surroundings.
    `look` is the state of its rank, which is told by colour too."""

    index: int
    address: str
    text: str
    lines: tuple[Line, ...]
    time: object
    moment: str
    rank: int | None
    host: str
    pattern: str
    attempt: int | None
    look: str


@dataclass(frozen=True, slots=True)
class Step:
    """A link of the causal chain; `said` is the pattern's title with the name of whom it speaks."""

    id: str
    role: str
    look: str
    pattern: str
    said: str
    count: int
    who: str
    moment: str
    explains: tuple[str, ...]
    leads: str  # the same as a reader is told: `steps 3–6`
    because: str
    proofs: tuple[Proof, ...]


def rows(value: object) -> list[dict[str, Any]]:
    """The mappings of a list; nothing where there is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []


def part(document: Document, name: str) -> dict[str, Any]:
    """The mapping under `name`; an empty one where there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def words(value: object) -> list[str]:
    """The items of a list as text; nothing where there is no list."""
    return [str(item) for item in value if item is not None] if isinstance(value, list | tuple) else []


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def known(value: object) -> str:
    return "" if value is None else str(value)


def address(item: Mapping[str, Any]) -> str:
    """`path:line`, the only form in which evidence is cited; the path alone in binary and JSON files."""
    number = whole(item.get("line"))
    source = known(item.get("source"))
    return source if number is None else f"{source}:{number}"


def headline(document: Document) -> str:
    given = text.sentence(known(part(document, "verdict").get("headline")), 600)
    return given or "The logs were read, and no verdict was reached."


def category(document: Document) -> str:
    name = known(part(document, "verdict").get("category"))
    return CATEGORIES.get(name, name)


def confidence(document: Document) -> tuple[str, int, str]:
    """The word, how many of three dots, and what the word means.
    Empty for healthy runs, which blame nobody."""
    verdict = part(document, "verdict")
    word = known(verdict.get("confidence"))
    if verdict.get("outcome") == "healthy" or word not in CONFIDENCE:
        return "", 0, ""
    dots, meaning = CONFIDENCE[word]
    return word, dots, meaning if blamed(document) else meaning.partition(",")[0]


def blamed(document: Document) -> bool:
    """Whether somebody is to blame; of a cut network it is only known where it was noticed."""
    found = part(part(document, "verdict"), "culprit")
    return any(found.get(key) for key in ("ranks", "hosts", "gpus", "pids"))


def culprit(document: Document) -> list[tuple[str, str]]:
    """Label and value of each thing that is known about the culprit, most telling first."""
    verdict = part(document, "verdict")
    found = part(verdict, "culprit")
    ranks = [rank for rank in (whole(r) for r in found.get("ranks") or []) if rank is not None]
    facts = [("rank" if len(ranks) == 1 else "ranks", text.ranges(ranks, SPANS))]
    for key, one in (("hosts", "host"), ("gpus", "GPU"), ("pids", "pid")):
        names = words(found.get(key))
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        facts.append((one if len(names) == 1 else f"{one}s", shown))
    facts.append(("code", known(found.get("code"))))
    attempt = whole(verdict.get("attempt"))
    if attempt is not None and (attempt > 0 or (whole(part(document, "job").get("attempts")) or 0) > 1):
        facts.append(("attempt", str(attempt)))
    return [(label, value) for label, value in facts if value]


def when(document: Document) -> str:
    """Day and time of the decisive line, as well as they are known."""
    found = proofs(document)
    return ", ".join(filter(None, [text.day_and_time(found[0].time)[0], found[0].moment])) if found else ""


def todo(document: Document) -> list[tuple[str, str]]:
    """What to do now: the kind in words, and the sentence; no kind where the sentence begins with it."""
    found = []
    for item in rows(part(document, "verdict").get("actions")):
        kind, said = known(item.get("kind")), known(item.get("text"))
        lead = "" if kind == "none" else ACTIONS.get(kind, kind)
        if said:
            found.append(("" if said.split()[:1] == lead.split()[:1] else lead, said))
    return found


def proofs(document: Document) -> list[Proof]:
    """The evidence, strongest first. The first line speaks of the cause even where it names no rank."""
    verdict = part(document, "verdict")
    cited = rows(verdict.get("evidence"))
    named = {whole(item.get("rank")) for item in cited}
    state = {
        item.get("rank"): STATES[oddness(item)] for item in rows(document.get("ranks")) if item.get("rank") in named
    }
    first = "cause" if verdict.get("outcome") in ("incident", "recovered") else ""
    return [
        _proof(index, item, (first if index == 0 else "") or state.get(whole(item.get("rank")), "unknown"))
        for index, item in enumerate(cited)
    ]


def _proof(index: int, item: dict[str, Any], look: str) -> Proof:
    return Proof(
        index=index,
        address=address(item),
        text=known(item.get("text")),
        lines=tuple(_excerpt(item)),
        time=item.get("time"),
        moment=text.moment(item.get("time"), item.get("uncertainty_s")),
        rank=whole(item.get("rank")),
        host=known(item.get("host")),
        pattern=known(item.get("pattern")),
        attempt=whole(item.get("attempt")),
        look=look,
    )


def _excerpt(item: dict[str, Any]) -> list[Line]:
    """The decisive line between its neighbours. Numbers are given only where the file has countable lines."""
    number = whole(item.get("line"))
    before, after = _context(item)
    start = None if number is None else number - len(before)
    lines = [Line(None if start is None else start + i, content) for i, content in enumerate(before)]
    lines.append(Line(number, known(item.get("text")), decisive=True))
    lines += [Line(None if number is None else number + 1 + i, content) for i, content in enumerate(after)]
    return lines


def _context(item: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Lines before and after. `context` holds the decisive line too, behind `context_before` others."""
    every = words(item.get("context"))
    cut = min(max(whole(item.get("context_before")) or 0, 0), len(every))
    return every[:cut][-MAX_CONTEXT:], every[cut + 1 :][:MAX_CONTEXT]


def steps(document: Document, key: str = "chain") -> list[Step]:
    """The causal chain, or all findings, in the document's order."""
    items = rows(document.get(key))
    found = proofs(document)
    numbers = {known(item.get("id")): f"{place}" for place, item in enumerate(items, 1)}
    hosts = {item.get("rank"): known(item.get("host")) for item in rows(document.get("ranks"))}
    return [_step(item, found, numbers, hosts) for item in items]


def _step(item: dict[str, Any], found: list[Proof], numbers: Mapping[str, str], hosts: Mapping[Any, str]) -> Step:
    role, who = known(item.get("role")), entity(_housed(item.get("entity"), hosts))
    cited = [
        index
        for index in (whole(i) for i in item.get("evidence") or [])
        if index is not None and 0 <= index < len(found)
    ]
    explains = tuple(numbers[name] for name in words(item.get("explains")) if name in numbers)
    return Step(
        id=known(item.get("id")),
        role=role,
        look=LOOKS.get(role, "unknown"),
        pattern=known(item.get("pattern")),
        said=_capital(entitled(known(item.get("title")), who, bool(part(item, "entity").get("ranks")))),
        count=whole(item.get("count")) or 1,
        who=who,
        moment=_moment(item.get("time"), [found[index] for index in cited]),
        explains=explains,
        leads=f"{'step' if len(explains) == 1 else 'steps'} {text.ranges(map(int, explains))}",
        because=known(item.get("because")),
        proofs=tuple(found[index] for index in cited),
    )


def _moment(time: object, cited: Sequence[Proof]) -> str:
    """When a step was, no better known than the line that tells it."""
    told = [proof.moment for proof in cited if proof.time == time]
    return (told[0] if told else text.moment(time)).partition(" ±")[0]


def _housed(value: object, hosts: Mapping[Any, str]) -> object:
    """Several ranks live on their own hosts, not on the host of the first that spoke."""
    ranks = value.get("ranks") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(ranks, list):
        return value
    named = dict.fromkeys(hosts.get(rank, "") for rank in ranks if whole(rank) is not None)
    named.pop("", None)
    return {**value, "hosts": list(named)} if len(named) > 1 else value


def _capital(words: str) -> str:
    return f"R{words[1:]}" if words.startswith("rank") else words


def entity(value: object) -> str:
    """{"rank": 3, "host": "node-b"} -> "rank 3 on node-b"."""
    if not isinstance(value, dict):
        return known(value)
    ranks = [r for r in (whole(r) for r in value.get("ranks") or []) if r is not None]
    names = [f"rank {value['rank']}"] if value.get("rank") is not None else []
    if ranks:
        names.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {text.ranges(ranks, SPANS)}")
    names += [f"{key} {value[key]}" for key in ("pid", "gpu", "peer") if value.get(key) is not None]
    hosts = words(value.get("hosts")) or words([value.get("host")])
    place = ", ".join(hosts) if len(hosts) <= 4 else f"{len(hosts):,} hosts"
    who = ", ".join(names)
    return f"{who} on {place}" if who and place else who or place or ("the job" if value.get("job") else "")


def oddness(item: Mapping[str, Any]) -> int:
    state = item.get("state")
    return STATES.index(state) if state in STATES else STATES.index("unknown")


def offset(value: object) -> str:
    """A clock's offset with its sign. Kernel clocks count from the boot, so their offset is a date."""
    if not isinstance(value, int | float):
        return "unknown"
    if abs(value) > 1e8:
        return f"boot at {text.utc(abs(value), '%Y-%m-%d')} {text.clock(abs(value))} UTC"
    return f"{value:+.3f} s"


def skipped(document: Document) -> list[dict[str, Any]]:
    """What was not read, losses first."""
    return sorted(rows(part(document, "ledger").get("skipped")), key=lambda row: not row.get("lost"))


def incomplete(document: Document) -> str:
    """One sentence where bytes were left unread; an incomplete analysis says so first."""
    ledger = part(document, "ledger")
    left = [row for row in skipped(document) if row.get("path") != WINDOW]  # the headline says it
    lost = [row for row in left if row.get("lost")]
    left = lost or [row for row in left if (whole(row.get("bytes")) or 0) > 0 and row.get("reason") not in NO_LOGS]
    if not left:
        return ""
    unread = sum(whole(row.get("bytes")) or 0 for row in left)
    paths = list(dict.fromkeys(known(row.get("path")) for row in left))
    files = text.line(paths[0], 60) if len(paths) == 1 else text.plural(len(paths), "file")
    said = f"{text.size(unread)} of {text.size(ledger.get('bytes'))} were skipped, in {files}"
    if lost and unread:
        said = f"{said} ({text.line(lost[0].get('reason'), 160)})"
    elif lost:
        said = _cut(lost[0], len(paths) - 1)
    return f"Not everything was read: {said}."


def _cut(row: Mapping[str, Any], more: int) -> str:
    """A loss that takes no room in the ledger, such as the rest of a cut file."""
    others = f", and of {text.plural(more, 'more file')} something is missing" if more else ""
    return f"{text.line(row.get('path'), 60)}: {text.line(row.get('reason'), 200).rstrip('.')}{others}"
