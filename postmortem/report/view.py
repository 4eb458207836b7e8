"""The parts of an incident document that every output shows: proofs, steps, notices.

Keys of the JSON document may be absent or null. The texts of the values returned are as in the logs; each output makes
them safe (`text.visible`, autoescape, fences).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from postmortem.library.titles import entitled
from postmortem.model.vocabulary import NO_LOGS, WINDOW
from postmortem.report import text
from postmortem.report.labels import ACTIONS, CATEGORIES, OUTCOMES

if TYPE_CHECKING:
    import pandas as pd

Document = Mapping[str, Any]

STATES = ("cause", "silent", "unknown", "victim", "healthy")  # the odd ones first
LOOKS = {"cause": "cause", "symptom": "victim", "confirms": "confirms", "context": "unknown"}
MAX_CONTEXT = 5
STORY, CONFIRMING = 5, 1  # steps to show, and confirmations of a cause among them
ECHO = "only reports another process's failure."
SPANS = 8  # of a list of ranks; a fold has the whole list


class Incident(Protocol):
    """The source of a report: the document, and the events if they are available."""

    @property
    def document(self) -> Mapping[str, Any]: ...

    @property
    def timeline(self) -> pd.DataFrame | None:
        """As `model.frame` has it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an excerpt; `number` is None in binary and JSON files."""

    number: int | None
    text: str
    decisive: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """One piece of evidence with its context. `look` is the state of its rank, which is also its color."""

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
    match: str
    sigma: float  # seconds of error of its time; infinite where it is not known to seconds


@dataclass(frozen=True, slots=True)
class Step:
    """A link of the causal chain; `title` is the pattern's, with the name of the rank or host."""

    id: str
    role: str
    look: str
    pattern: str
    title: str
    count: int
    who: str
    moment: str
    explains: tuple[str, ...]
    leads: str  # the same in words: `steps 3–6`
    because: str
    proofs: tuple[Proof, ...]
    at: float = math.inf  # seconds since 1970; infinite where it is not known to seconds
    sigma: float = 0.0


def rows(value: object) -> list[dict[str, Any]]:
    """Return the mappings of a list; none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []


def by_rank(document: Document) -> list[tuple[int | None, dict[str, Any]]]:
    """Return the rows of the rank table with their ranks."""
    return [(whole(item.get("rank")), item) for item in rows(document.get("ranks"))]


def part(document: Document, name: str) -> dict[str, Any]:
    """Return the mapping under `name`, or an empty one."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def words(value: object) -> list[str]:
    """Return the items of a list as text; none if it is no list."""
    return [str(item) for item in value if item is not None] if isinstance(value, list | tuple) else []


def numbers(value: object) -> list[int]:
    """Return the integers of a list; none if it is no list."""
    every = map(whole, value) if isinstance(value, list | tuple) else ()
    return [n for n in every if n is not None]


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def known(value: object) -> str:
    return "" if value is None else str(value)


def address(item: Mapping[str, Any]) -> str:
    """`path:line`, the only form in which evidence is cited; the path alone in binary and JSON files."""
    number = whole(item.get("line"))
    source = known(item.get("source"))
    return source if number is None else f"{source}:{number}"


def job(document: Document) -> str:
    """Return the name of the job: `job 42221`, `job 42221 (run-7)`, `run-7`; empty where nothing names it."""
    found = part(document, "job")
    number, name = known(found.get("id")), known(found.get("name"))
    if not number or number == name:
        return name or number
    return f"job {number}" + (f" ({name})" if name else "")


def headline(document: Document) -> str:
    given = text.sentence(known(part(document, "verdict").get("headline")), 600)
    return given or "The logs were read, and no verdict was reached."


def lead(document: Document) -> tuple[str, str]:
    """Return the title of the verdict and the rest of its headline; the headline alone where there is no title."""
    title, rest = (text.sentence(known(part(document, "verdict").get(name)), 600) for name in ("title", "rest"))
    return (title, rest) if title else (headline(document), "")


def outcome(document: Document) -> str:
    """Return the word of the badge; a run that the logs do not show to the end is healthy only so far."""
    word = OUTCOMES.get(known(part(document, "verdict").get("outcome")), "Undetermined")
    return f"{word} so far" if is_open(document) else word


def is_open(document: Document) -> bool:
    """Whether nothing failed in the logs, and they do not show the end of the run."""
    verdict = part(document, "verdict")
    return verdict.get("outcome") == "healthy" and verdict.get("end") == "unfinished"


def category(document: Document) -> str:
    return CATEGORIES.get(name := known(part(document, "verdict").get("category")), name)


def blamed(document: Document) -> bool:
    """Whether there is a culprit; of a broken network only the place where it was noticed is known."""
    found = part(part(document, "verdict"), "culprit")
    return any(found.get(key) for key in ("ranks", "hosts", "gpus", "pids"))


def culprit(document: Document) -> list[tuple[str, str]]:
    """Return label and value of each known fact about the culprit, the most useful first."""
    verdict = part(document, "verdict")
    found = part(verdict, "culprit")
    ranks = numbers(found.get("ranks"))
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
    """Return day and time of the decisive line, as precisely as they are known."""
    found = proofs(document)
    return ", ".join(filter(None, [text.day_and_time(found[0].time)[0], found[0].moment])) if found else ""


def actions(document: Document) -> list[tuple[str, str]]:
    """Return the kind of each action in words, empty where its sentence begins with it, and the sentence."""
    found = []
    for item in rows(part(document, "verdict").get("actions")):
        kind, action = known(item.get("kind")), known(item.get("text"))
        lead = "" if kind == "none" else ACTIONS.get(kind, kind)
        if action:
            found.append(("" if action.split()[:1] == lead.split()[:1] else lead, action))
    return found


def action_lines(document: Document) -> list[str]:
    return [f"{lead}. {action}" if lead else action for lead, action in actions(document)]


def proofs(document: Document) -> list[Proof]:
    """Return the evidence, strongest first. The first line is about the cause even where it names no rank."""
    verdict = part(document, "verdict")
    cited = rows(verdict.get("evidence"))
    named = {whole(item.get("rank")) for item in cited}
    state = {rank: STATES[oddness(item)] for rank, item in by_rank(document) if rank in named}
    first = "cause" if verdict.get("outcome") in ("incident", "recovered") else ""
    return [
        Proof(
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
            look=(first if index == 0 else "") or state.get(whole(item.get("rank")), "unknown"),
            match=known(item.get("match")),
            sigma=sigma if (sigma := text.finite(item.get("uncertainty_s"))) < text.BROAD else math.inf,
        )
        for index, item in enumerate(cited)
    ]


def _excerpt(item: dict[str, Any]) -> list[Line]:
    """Return the decisive line between its neighbors. Numbers are known only where the file has countable lines."""
    number = whole(item.get("line"))
    # `context` has the decisive line too, after `context_before` others
    context = words(item.get("context"))
    at = min(max(whole(item.get("context_before")) or 0, 0), len(context))
    before, after = context[:at][-MAX_CONTEXT:], context[at + 1 :][:MAX_CONTEXT]
    contents = [*before, known(item.get("text")), *after]
    return [
        Line(None if number is None else number - len(before) + i, text.state(content), decisive=i == len(before))
        for i, content in enumerate(contents)
    ]


def steps(document: Document, key: str = "chain") -> list[Step]:
    """Return the causal chain, or all findings, in the document's order."""
    items = rows(document.get(key))
    found = proofs(document)
    places = {known(item.get("id")): f"{place}" for place, item in enumerate(items, 1)}
    hosts = {rank: known(item.get("host")) for rank, item in by_rank(document)}
    return [_step(item, found, places, hosts) for item in items]


def _step(item: dict[str, Any], found: list[Proof], places: Mapping[str, str], hosts: Mapping[Any, str]) -> Step:
    role, who = known(item.get("role")), entity(_with_hosts(item.get("entity"), hosts))
    title = entitled(known(item.get("title")), who, bool(part(item, "entity").get("ranks")))
    cited = tuple(found[index] for index in numbers(item.get("evidence")) if 0 <= index < len(found))
    # no more precise than the line that shows it
    moment = next((proof.moment for proof in cited if proof.time == item.get("time")), text.moment(item.get("time")))
    at, sigma = text.epoch(item.get("time")), min((proof.sigma for proof in cited), default=0.0)
    explains = tuple(places[name] for name in words(item.get("explains")) if name in places)
    return Step(
        id=known(item.get("id")),
        role=role,
        look=LOOKS.get(role, "unknown"),
        pattern=known(item.get("pattern")),
        title=f"R{title[1:]}" if title.startswith("rank") else title,
        count=whole(item.get("count")) or 1,
        who=who,
        moment=moment.partition(" ±")[0],
        explains=explains,
        leads=f"{'step' if len(explains) == 1 else 'steps'} {text.ranges(map(int, explains))}",
        because=known(item.get("because")),
        proofs=cited,
        at=math.inf if at is None or sigma == math.inf else at,
        sigma=sigma,
    )


def story(document: Document) -> tuple[list[Step], list[Step]]:
    """Return the steps to show, in the order of time, and the others: the cause, its strongest confirmations and
    symptoms. A report of another process's failure adds nothing, nor does another reading of the cause's line."""
    found = [step for step in steps(document) if not step.because.endswith(ECHO)]
    lines = {proof.index for step in found if step.role == "cause" for proof in step.proofs}
    found = [s for s in found if s.role == "cause" or not s.proofs or s.proofs[0].index not in lines]
    groups = {role: [s for s in found if s.role == role] for role in ("cause", "confirms", "symptom")}
    symptoms = sorted(groups["symptom"], key=lambda step: not step.who)
    rest = [step for step in found if step not in groups["cause"] and step not in symptoms]
    chosen = [*groups["cause"], *rest[:CONFIRMING], *symptoms, *(() if groups["cause"] else rest[CONFIRMING:])][:STORY]
    shown = sorted(chosen, key=lambda step: _place(step, chosen[0]))
    return shown, [step for step in found if step not in shown]


def _place(step: Step, cause: Step) -> float:
    """Return the time of a step; not before the cause unless it is surely earlier."""
    if cause.at == math.inf:
        return -math.inf if step is cause and cause.role == "cause" else step.at
    surely = step.at + 2 * step.sigma < cause.at - 2 * cause.sigma
    return step.at if surely else max(step.at, cause.at)


def once(found: Sequence[Proof]) -> list[Proof]:
    """Return the proofs without lines of context that an earlier one, or a decisive line, shows already."""
    shown = {
        (proof.address.rpartition(":")[0], line.number) for proof in found for line in proof.lines if line.decisive
    }
    result = []
    for proof in found:
        source = proof.address.rpartition(":")[0]
        lines = [x for x in proof.lines if x.decisive or x.number is None or (source, x.number) not in shown]
        shown.update((source, x.number) for x in lines)
        result.append(replace(proof, lines=tuple(lines)))
    return result


def _with_hosts(value: object, hosts: Mapping[Any, str]) -> object:
    """Several ranks are on their own hosts, not on the host of the first one in the logs."""
    ranks = value.get("ranks") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(ranks, list):
        return value
    named = dict.fromkeys(hosts.get(rank, "") for rank in ranks if whole(rank) is not None)
    named.pop("", None)
    return {**value, "hosts": list(named)} if len(named) > 1 else value


def entity(value: object) -> str:
    """{"rank": 3, "host": "node-b"} -> "rank 3 on node-b"."""
    if not isinstance(value, dict):
        return known(value)
    names = [f"rank {value['rank']}"] if value.get("rank") is not None else []
    if ranks := numbers(value.get("ranks")):
        names.append(text.ranks(ranks, SPANS))
    own = ("peer",) if len(ranks) > 1 else ("pid", "gpu", "peer")  # those of the first one only
    names += [f"{key} {value[key]}" for key in own if value.get(key) is not None]
    hosts = words(value.get("hosts")) or words([value.get("host")])
    place = ", ".join(hosts) if len(hosts) <= 4 else f"{len(hosts):,} hosts"
    who = ", ".join(names)
    return f"{who} on {place}" if who and place else who or place or ("the job" if value.get("job") else "")


def oddness(item: Mapping[str, Any]) -> int:
    state = item.get("state")
    return STATES.index(state) if state in STATES else STATES.index("unknown")


def offset(value: object) -> str:
    """Return a clock's offset with its sign. Kernel clocks count from the boot, so their offset is a date."""
    if not isinstance(value, int | float) or not abs(value) < 1e11:  # which no calendar has
        return "unknown"
    if abs(value) > 1e8:
        return f"boot at {text.utc(abs(value), '%Y-%m-%d')} {text.clock(abs(value))} UTC"
    return f"{value:+.3f} s"


def skipped(document: Document) -> list[dict[str, Any]]:
    """Return the parts that were not read, losses first."""
    return sorted(rows(part(document, "ledger").get("skipped")), key=lambda row: not row.get("lost"))


def incomplete(document: Document) -> str:
    """Return a sentence on bytes that were not read; empty where all were."""
    ledger = part(document, "ledger")
    left = [row for row in skipped(document) if row.get("path") != WINDOW]  # which the headline states
    lost = [row for row in left if row.get("lost")]
    left = lost or [row for row in left if (whole(row.get("bytes")) or 0) > 0 and row.get("reason") not in NO_LOGS]
    if not left:
        return ""
    unread = sum(whole(row.get("bytes")) or 0 for row in left)
    paths = list(dict.fromkeys(known(row.get("path")) for row in left))
    files = text.line(paths[0], 60) if len(paths) == 1 else text.plural(len(paths), "file")
    loss = f"{text.size(unread)} of {text.size(ledger.get('bytes'))} were skipped, in {files}"
    if lost and unread:
        loss += f" ({text.line(lost[0].get('reason'), 160)})"
    elif lost:  # without a size in the ledger, such as the rest of a cut file
        others = f", and {text.plural(len(paths) - 1, 'more file')} incomplete" if paths[1:] else ""
        loss = f"{text.line(paths[0], 60)}: {text.line(lost[0].get('reason'), 200).rstrip('.')}{others}"
    return f"Not everything was read: {loss}."
