"""The incident -> Markdown for a ticket, a pull request or a chat:
the report's sections, shorter, at most 60,000 characters.

    # Rank 3 on node-b was killed by the kernel's OOM killer …
    **Incident** · host memory · established …
    ```text
    node-b/dmesg.txt
      80 | …
    > 81 | [ 2240.704416] Memory cgroup out of memory: Killed process 29502 (python3) …
    ```

GitHub refuses bodies beyond 65,536 characters. Log text stands in fences longer than any run of backticks in
it; in prose, everything that Markdown or GitHub would read as markup, link, mention or issue number is
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from postmortem.report import attempts, collective, labels, ranks, recurrence, stands, text, view
from postmortem.report.parts import Parts

LOSSES = 20
LIMIT = 60_000
BRIEF = 3_000  # what a chat shows of a message, or a reader of a ticket
_ESCAPED = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]{}|~"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "#": "&#35;"}
)
_LINKS = (
    (re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(:)"), "&#58;"),
    (re.compile(r"(?i)\b(www)(\.)"), "&#46;"),
    (re.compile(r"(?i)(\bGH)(-)(?=\d)"), "&#45;"),
)


def render_markdown(incident: view.Incident, brief: bool = False) -> str:
    """Return the whole text, or what of it a chat can show. Sections are added in reading order;
    what no longer fits is counted, never cut in the middle."""
    document = incident.document
    sections: tuple[Callable[[view.Document], list[str]], ...] = (
        _verdict, _attempts, _actions, _missing, _chain, _alternatives, _ranks, _stands, _evidence, _clocks,
        _others, _losses, _made,
    )  # fmt: skip
    limit = LIMIT
    if brief:
        sections, limit = (_brief, _made), BRIEF
    parts = Parts()
    blocks: list[str] = []
    for section in sections:
        name = section.__name__.strip("_")
        blocks += parts.rows(f"section {name}", partial(section, document))
    blocks += [f"**Incomplete.** {_closed(why)}" for why in parts.failed]
    done: list[str] = []
    used, dropped = 200, 0
    for block in blocks:
        if used + len(block) + 2 > limit:
            dropped += 1
            continue
        done.append(block)
        used += len(block) + 2
    if dropped:
        done.append(
            f"*{text.plural(dropped, 'block')} left out to keep this under {limit:,} characters; the HTML "
            f"report has all of it.*"
        )
    return "\n\n".join(done) + "\n"


def prose(words: object, limit: int = 1000) -> str:
    """Text of any origin as Markdown prose that renders as the text itself."""
    return _prose(view.known(words), limit)


@lru_cache(maxsize=4096)
def _prose(words: str, limit: int) -> str:
    shown = text.sentence(words, limit).translate(_ESCAPED)
    for pattern, sign in _LINKS:
        shown = pattern.sub(rf"\1{sign}", shown)
    # What begins a list, a rule or an underlined heading where it stands first on a line.
    return re.sub(r"^(\d{1,9})([.)])(?=\s|$)|^([-+=])", _defused, shown)


def _defused(match: re.Match[str]) -> str:
    return f"{match[1]}\\{match[2]}" if match[1] else f"\\{match[3]}"


def code(words: object, limit: int = 300) -> str:
    """An inline code span; its fence is longer than any run of backticks in it."""
    shown = text.line(view.known(words), limit)
    if not shown.strip():
        return ""
    fence = "`" * (_longest(shown) + 1)
    pad = " " if shown.startswith(("`", " ")) or shown.endswith(("`", " ")) else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def fenced(lines: Iterable[str]) -> str:
    """A fenced block; its fence is longer than any run of backticks in it."""
    body = "\n".join(lines)
    fence = "`" * max(3, _longest(body) + 1)
    return f"{fence}text\n{body}\n{fence}"


def _longest(words: str) -> int:
    return max((len(run) for run in re.findall("`+", words)), default=0)


def _verdict(document: view.Document) -> list[str]:
    verdict = view.part(document, "verdict")
    outcome = view.known(verdict.get("outcome"))
    word, _, meaning = view.confidence(document)
    title = prose(labels.OUTCOMES.get(outcome, outcome) or "Undetermined")
    facts = [f"**{title}**", prose(view.category(document)), f"{word}: {meaning}" if word else ""]
    out = [f"# {prose(view.headline(document))}", " · ".join(fact for fact in facts if fact)]
    notice = view.incomplete(document)
    if notice:
        out.append(f"**{prose(notice)}**")
    because = [f"- {prose(item)}" for item in view.words(verdict.get("because"))]
    if because:
        out.append("\n".join(because))
    culprit = [f"**{label}** {code(value)}" for label, value in view.culprit(document)]
    if culprit:
        out.append(" · ".join(culprit))
    if stuck := collective.sentence(document):
        out.append(f"**stuck in** {prose(stuck)}")
    if seen := recurrence.sentence(document):
        out.append(f"**history** {prose(seen)}")
    return out + [_excerpt(proof) for proof in view.proofs(document)[:1]]


def _brief(document: view.Document) -> list[str]:
    """The verdict for a chat: whatever the logs say, shortened until it fits."""
    found: list[str] = []
    for wide in (400, 200, 100, 40):
        found = _shortened(document, wide)
        if sum(len(block) + 2 for block in found) <= BRIEF - 400:  # room for the last line
            break
    return found


def _shortened(document: view.Document, wide: int) -> list[str]:
    verdict = view.part(document, "verdict")
    because = [f"- {prose(item, wide)}" for item in view.words(verdict.get("because"))[:3]]
    culprit = [f"**{label}** {code(value, wide)}" for label, value in view.culprit(document)]
    proofs = view.proofs(document)[:1]
    proof = [f"{code(p.address, 200)}\n{fenced([text.line(p.text, wide)])}" for p in proofs]
    todo = [
        f"{place}. {f'**{prose(lead, 60)}.** ' if lead else ''}{prose(said, wide)}"
        for place, (lead, said) in enumerate(view.todo(document)[:3], 1)
    ]
    lacks = view.rows(verdict.get("missing"))[:2]
    missing = [f"- Missing: {prose(item.get('what'), wide)}" for item in lacks if item.get("what")]
    notice = prose(view.incomplete(document), 2 * wide)
    head = [f"**{prose(view.headline(document), 2 * wide)}**", _verdict(document)[1], notice]
    told = [*head, " · ".join(culprit), *proof]
    return [block for block in (*told, *map("\n".join, (because, todo, missing))) if block]


def _excerpt(proof: view.Proof) -> str:
    numbers = [str(line.number) for line in proof.lines if line.number is not None]
    wide = max(map(len, numbers), default=0)
    rows = [
        f"{'>' if line.decisive else ' '} {view.known(line.number):>{wide}} | {text.line(line.text)}"
        for line in proof.lines
    ]
    day = text.day_and_time(proof.time)[0]
    where = view.entity({"rank": proof.rank, "host": proof.host or None})
    facts = ", ".join(fact for fact in (prose(where), f"{day} {proof.moment}".strip(), code(proof.pattern)) if fact)
    return f"{code(proof.address) or 'no address'}{f' ({facts})' if facts else ''}\n\n{fenced(rows)}"


def _attempts(document: view.Document) -> list[str]:
    lives = attempts.attempts(document)
    lines = ["| attempt | from (UTC) | to | what failed | how it ended |", "|---|---|---|---|---|"]
    for life in lives:
        why = f"{life.why} ({life.category})" if life.why and life.category else life.why
        cells = (life.number, life.begin, life.end, why, life.ended)
        lines.append("| " + " | ".join(prose(cell, 300) for cell in cells) + " |")
    return ["## Attempts\n\n" + "\n".join(lines)] if lives else []


def _actions(document: view.Document) -> list[str]:
    items = enumerate(view.todo(document), 1)
    lines = [f"{place}. {f'**{prose(lead)}.** ' if lead else ''}{prose(said)}" for place, (lead, said) in items]
    return ["## What to do now\n\n" + "\n".join(lines)] if lines else []


def _closed(words: object) -> str:
    """Prose that ends as a sentence does."""
    return f"{prose(words).rstrip('.')}."


def _missing(document: view.Document) -> list[str]:
    items = view.rows(view.part(document, "verdict").get("missing"))
    lines = []
    for item in items:
        tells = f" Shows {_closed(item.get('would_tell'))}" if item.get("would_tell") else ""
        how = f" Get it with {code(item.get('how'))}." if item.get("how") else ""
        lines.append(f"- {_closed(item.get('what'))}{tells}{how}")
    return ["## Missing evidence\n\n" + "\n".join(lines)] if lines else []


def _chain(document: view.Document) -> list[str]:
    lines = []
    for place, step in enumerate(view.steps(document), 1):
        head = ", ".join(bit for bit in (prose(step.said), step.moment, code(step.pattern)) if bit)
        cited = ", ".join(code(proof.address) for proof in step.proofs[:4])
        leads = f" Explains {step.leads}." if step.explains else ""
        because = f" {prose(step.because)}" if step.because else ""
        lines.append(f"{place}. **{prose(step.role)}** {head}.{because}{leads}{f' Proof: {cited}.' if cited else ''}")
    return ["## How it happened\n\n" + "\n".join(lines)] if lines else []


def _alternatives(document: view.Document) -> list[str]:
    items = view.rows(document.get("alternatives"))
    lines = [
        f"- {code(item.get('pattern') or item.get('category') or 'another')}: {prose(item.get('why_not'))}"
        for item in items
    ]
    return ["## Alternatives\n\n" + "\n".join(lines)] if lines else []


def _ranks(document: view.Document) -> list[str]:
    groups = ranks.rank_groups(document)
    if not groups:
        return []
    lines = [
        "| ranks | hosts | state | exit | last step | last collective | last line | why |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in groups[:60]:
        cells = [
            group.few,
            group.hosts,
            group.state,
            group.exit,
            group.step,
            group.collective,
            group.last,
            group.why,
        ]
        lines.append("| " + " | ".join(prose(cell, 200) for cell in cells) + " |")
    if len(groups) > 60:
        lines.append(f"\n{text.plural(len(groups) - 60, 'more group')} in the HTML report.")
    return ["## Ranks\n\n" + "\n".join(lines)]


def _evidence(document: view.Document) -> list[str]:
    rest = view.proofs(document)[1:]
    return [("## More evidence\n\n" if place == 0 else "") + _excerpt(proof) for place, proof in enumerate(rest)]


def _stands(document: view.Document) -> list[str]:
    lines = []
    for stand in stands.stands(document):
        inside = f" {prose(stand.inside)}" if stand.inside else ""
        told_by = f"{prose(stand.how)}, {code(stand.address)}"
        lines.append(f"- {prose(stand.who)}: {code(stand.place)}{inside} ({told_by})")
    return ["## Where the ranks were\n\n" + "\n".join(lines)] if lines else []


def _clocks(document: view.Document) -> list[str]:
    lines = []
    for item in view.rows(document.get("clocks")):
        shown, sigma = view.offset(item.get("offset_s")), text.seconds(item.get("uncertainty_s"))
        who = f"{prose(item.get('host') or 'unknown host')} ({prose(item.get('kind'))})"
        reason = f"; {prose(item.get('reason'))}" if item.get("reason") else ""
        lines.append(f"- {who}: {prose(item.get('state'))}, {shown}{f' ± {sigma}' if sigma else ''}{reason}")
    return ["## Clocks\n\n" + "\n".join(lines)] if lines else []


def _others(document: view.Document) -> list[str]:
    lines = [
        f"- {code(item.get('id') or 'job')}: {prose(item.get('headline'))}"
        for item in view.rows(document.get("other_jobs"))
    ]
    return ["## Other jobs in these logs\n\n" + "\n".join(lines)] if lines else []


def _losses(document: view.Document) -> list[str]:
    lost = [row for row in view.skipped(document) if row.get("lost")]
    lines = [
        f"- {code(row.get('path'))}, {text.size(row.get('bytes'))}: {_closed(row.get('reason'))}"
        for row in lost[:LOSSES]
    ]
    if len(lost) > LOSSES:
        lines.append(f"- {text.plural(len(lost) - LOSSES, 'more row')} in the HTML report.")
    return ["## Not read\n\n" + "\n".join(lines)] if lines else []


def _made(document: view.Document) -> list[str]:
    ledger, tool = view.part(document, "ledger"), view.part(document, "tool")
    sources = len(view.rows(document.get("sources")))
    said = (
        f"{text.plural(sources, 'file')}, {text.size(ledger.get('scanned'))} "
        f"of {text.size(ledger.get('bytes'))} scanned"
    )
    version = f", postmortem {prose(tool.get('version'))}" if tool.get("version") else ""
    print_ = f", fingerprint {code(document.get('fingerprint'))}" if document.get("fingerprint") else ""
    return [f"---\n\n{said}{version}{print_}"]
