"""The report as Markdown for a ticket, a pull request or a chat: its sections, shorter, at most 60,000 characters.

    # Rank 3 on node-b was killed by the kernel's OOM killer …
    **Incident** · host memory · established …
    ```text
    node-b/dmesg.txt
      80 | …
    > 81 | [ 2240.704416] Memory cgroup out of memory: Killed process 29502 (python3) …
    ```

GitHub refuses bodies beyond 65,536 characters. Log text is in fences longer than any run of backticks in it; in prose,
everything that Markdown or GitHub would read as markup, link, mention or issue number is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TypeVar

from postmortem.errors import ours
from postmortem.report import groups, labels, summary, text, view

T = TypeVar("T")

MAX_LOSSES = 20
MAX_RANKS = 60
LIMIT = 60_000
BRIEF = 3_000  # the part of a message that a chat shows
_ESCAPED = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]{}|~"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "#": "&#35;"}
)
_LINKS = (
    (re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(:)"), "&#58;"),
    (re.compile(r"(?i)\b(www)(\.)"), "&#46;"),
    (re.compile(r"(?i)(\bGH)(-)(?=\d)"), "&#45;"),
)
_LIST_OR_RULE = re.compile(r"^(\d{1,9})([.)])(?=\s|$)|^([-+=])")


def render_markdown(incident: view.Incident, brief: bool = False) -> str:
    """Return the whole text, or the part that a chat can show.

    Blocks are added in reading order; those beyond the limit are counted. An internal error costs one section.
    """
    document = incident.document
    sections: tuple[Callable[[view.Document], list[str]], ...] = (
        _verdict, _attempts, _actions, _missing, _chain, _alternatives, _ranks, _stacks, _evidence, _clocks,
        _others, _losses, _made,
    )  # fmt: skip
    limit = LIMIT
    if brief:
        sections, limit = (_brief, _made), BRIEF
    blocks: list[str] = []
    failed: list[str] = []
    for section in sections:
        blocks += guarded(f"section {section.__name__.strip('_')}", partial(section, document), list[str](), failed)
    blocks += [f"**Incomplete.** {_closed(why)}" for why in failed]
    done: list[str] = []
    used, dropped = 200, 0
    for block in blocks:
        if used + len(block) + 2 > limit:
            dropped += 1
            continue
        done.append(block)
        used += len(block) + 2
    if dropped:
        left_out = f"{text.plural(dropped, 'block')} left out to keep this under {limit:,} characters"
        done.append(f"*{left_out}; the HTML report has all of it.*")
    return "\n\n".join(done) + "\n"


def render_chat(incident: view.Incident) -> str:
    """Return the verdict as text for Slack, whose markup is not Markdown."""
    document = incident.document
    proofs = [f"`{text.line(p.address, 200)}`\n```{text.line(p.text, 400)}```" for p in view.proofs(document)[:1]]
    actions = [f"{n}. {text.sentence(words, 300)}" for n, words in enumerate(view.action_lines(document)[:3], 1)]
    first, effects = view.lead(document)
    head = (f"*{first}*", effects, " · ".join(summary.facts(document)), view.incomplete(document))
    return "\n".join(filter(None, [*head, *proofs, *actions]))


def guarded(name: str, make: Callable[[], T], default: T, failed: list[str]) -> T:
    """Return what `make` returns; after an internal error the default, and a sentence on it in `failed`."""
    try:
        return make()
    except Exception as error:  # the verdict is worth more than a section
        failed.append(f"{name}: {ours(error)}")
        return default


def prose(words: object, limit: int = 1000) -> str:
    """Return text of any origin as Markdown prose that renders as the text itself."""
    return _prose(view.known(words), limit)


@lru_cache(maxsize=4096)
def _prose(words: str, limit: int) -> str:
    shown = text.sentence(words, limit).translate(_ESCAPED)
    for pattern, sign in _LINKS:
        shown = pattern.sub(rf"\1{sign}", shown)
    return _LIST_OR_RULE.sub(lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", shown)


def code(words: object, limit: int = 300) -> str:
    """Return an inline code span; its fence is longer than any run of backticks in it."""
    shown = text.line(view.known(words), limit)
    if not shown.strip():
        return ""
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if shown.startswith(("`", " ")) or shown.endswith(("`", " ")) else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def fenced(lines: Iterable[str]) -> str:
    """Return a fenced block; its fence is longer than any run of backticks in it."""
    body = "\n".join(lines)
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{fence}text\n{body}\n{fence}"


def _longest_run(words: str) -> int:
    return max((len(run) for run in re.findall("`+", words)), default=0)


def table(names: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table; `names` of its columns are separated by bars."""
    head = [f"| {names} |", "|---" * (names.count("|") + 1) + "|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}\n\n" + "\n".join(lines)] if lines else []


def _closed(words: object) -> str:
    """Return prose that ends with a period."""
    return f"{prose(words).rstrip('.')}."


def _head(document: view.Document) -> str:
    outcome = view.known(view.part(document, "verdict").get("outcome"))
    word, _, meaning = view.confidence(document)
    title = prose(labels.OUTCOMES.get(outcome, outcome) or "Undetermined")
    facts = [f"**{title}**", prose(view.category(document)), f"{word}: {meaning}" if word else ""]
    return " · ".join(filter(None, facts))


def _job(document: view.Document) -> str:
    command = view.part(document, "job").get("command")
    facts = " · ".join(prose(fact) for fact in summary.facts(document))
    return "\n".join(filter(None, (f"**job** {facts}" if facts else "", f"{code(command)}" if command else "")))


def _verdict(document: view.Document) -> list[str]:
    because = [f"- {prose(item)}" for item in view.words(view.part(document, "verdict").get("because"))]
    first, effects = view.lead(document)
    out = [f"# {prose(first)}", prose(effects), _head(document)]
    out.append(_job(document))
    if notice := view.incomplete(document):
        out.append(f"**{prose(notice)}**")
    out.append("\n".join(because))
    out.append(" · ".join(f"**{label}** {code(value)}" for label, value in view.culprit(document)))
    for label, sentence in (("stuck in", summary.collective(document)), ("history", summary.history(document))):
        out.append(f"**{label}** {prose(sentence)}" if sentence else "")
    return [block for block in out if block] + [_excerpt(proof) for proof in view.proofs(document)[:1]]


def _brief(document: view.Document) -> list[str]:
    """Return the verdict for a chat, shortened until it fits."""
    found: list[str] = []
    for wide in (400, 200, 100, 40):
        found = _shortened(document, wide)
        if sum(len(block) + 2 for block in found) <= BRIEF - 400:  # room for the last line
            break
    return found


def _shortened(document: view.Document, wide: int) -> list[str]:
    verdict, (first, effects) = view.part(document, "verdict"), view.lead(document)
    lacks = view.rows(verdict.get("missing"))[:2]
    lists = (
        [f"- {prose(item, wide)}" for item in view.words(verdict.get("because"))[:3]],
        _numbered(view.actions(document)[:3], 60, wide),
        [f"- Missing: {prose(item.get('what'), wide)}" for item in lacks if item.get("what")],
    )
    blocks = [
        " ".join(filter(None, (f"**{prose(first, 2 * wide)}**", prose(effects, wide)))),
        _head(document),
        " · ".join(prose(fact, wide) for fact in summary.facts(document)),
        prose(view.incomplete(document), 2 * wide),
        " · ".join(f"**{label}** {code(value, wide)}" for label, value in view.culprit(document)),
        *(f"{code(p.address, 200)}\n{fenced([text.line(p.text, wide)])}" for p in view.proofs(document)[:1]),
        *map("\n".join, lists),
    ]
    return [block for block in blocks if block]


def _numbered(actions: list[tuple[str, str]], lead_limit: int = 1000, limit: int = 1000) -> list[str]:
    return [
        f"{place}. {f'**{prose(lead, lead_limit)}.** ' if lead else ''}{prose(action, limit)}"
        for place, (lead, action) in enumerate(actions, 1)
    ]


def _excerpt(proof: view.Proof) -> str:
    wide = max((len(str(line.number)) for line in proof.lines if line.number is not None), default=0)
    rows = [
        f"{'>' if line.decisive else ' '} {view.known(line.number):>{wide}} | {text.line(line.text)}"
        for line in proof.lines
    ]
    time = f"{text.day_and_time(proof.time)[0]} {proof.moment}".strip()
    who = prose(view.entity({"rank": proof.rank, "host": proof.host or None}))
    facts = ", ".join(filter(None, (who, time, code(proof.pattern))))
    return f"{code(proof.address) or 'no address'}{f' ({facts})' if facts else ''}\n\n{fenced(rows)}"


def _attempts(document: view.Document) -> list[str]:
    rows = []
    for found in summary.attempts(document):
        why = f"{found.why} ({found.category})" if found.why and found.category else found.why
        rows.append([prose(cell, 300) for cell in (found.number, found.begin, found.end, why, found.ended)])
    return _section("Attempts", [table("attempt | from (UTC) | to | failure | end", rows)] if rows else [])


def _actions(document: view.Document) -> list[str]:
    return _section("What to do now", _numbered(view.actions(document)))


def _missing(document: view.Document) -> list[str]:
    lines = []
    for item in view.rows(view.part(document, "verdict").get("missing")):
        shows = f" Shows {_closed(item.get('would_tell'))}" if item.get("would_tell") else ""
        how = f" Get it with {code(item.get('how'))}." if item.get("how") else ""
        lines.append(f"- {_closed(item.get('what'))}{shows}{how}")
    return _section("Missing evidence", lines)


def _chain(document: view.Document) -> list[str]:
    lines = []
    for place, step in enumerate(view.steps(document), 1):
        head = ", ".join(filter(None, (prose(step.title), step.moment, code(step.pattern))))
        cited = ", ".join(code(proof.address) for proof in step.proofs[:4])
        leads = f" Explains {step.leads}." if step.explains else ""
        because = f" {prose(step.because)}" if step.because else ""
        lines.append(f"{place}. **{prose(step.role)}** {head}.{because}{leads}{f' Proof: {cited}.' if cited else ''}")
    return _section("How it happened", lines)


def _alternatives(document: view.Document) -> list[str]:
    items = view.rows(document.get("alternatives"))
    names = [item.get("pattern") or item.get("category") or "another" for item in items]
    lines = [f"- {code(name)}: {prose(item.get('why_not'))}" for name, item in zip(names, items, strict=True)]
    return _section("Alternatives", lines)


def _ranks(document: view.Document) -> list[str]:
    found = groups.rank_groups(document)
    rows = [
        [prose(cell, 200) for cell in (g.few, g.hosts, g.state, g.exit, g.step, g.collective, g.last, g.why)]
        for g in found[:MAX_RANKS]
    ]
    names = "ranks | hosts | state | exit | last step | last collective | last line | why"
    lines = [table(names, rows)] if rows else []
    if len(found) > MAX_RANKS:
        lines.append(f"\n{text.plural(len(found) - MAX_RANKS, 'more group')} in the HTML report.")
    return _section("Ranks", lines)


def _evidence(document: view.Document) -> list[str]:
    rest = view.proofs(document)[1:]
    return [("## More evidence\n\n" if place == 0 else "") + _excerpt(proof) for place, proof in enumerate(rest)]


def _stacks(document: view.Document) -> list[str]:
    lines = []
    for stack in groups.stacks(document):
        inside = f" {prose(stack.inside)}" if stack.inside else ""
        source = f"{prose(stack.how)}, {code(stack.address)}"
        lines.append(f"- {prose(stack.who)}: {code(stack.place)}{inside} ({source})")
    return _section("Where the ranks were", lines)


def _clocks(document: view.Document) -> list[str]:
    lines = []
    for item in view.rows(document.get("clocks")):
        shown, sigma = view.offset(item.get("offset_s")), text.seconds(item.get("uncertainty_s"))
        who = f"{prose(item.get('host') or 'unknown host')} ({prose(item.get('kind'))})"
        reason = f"; {prose(item.get('reason'))}" if item.get("reason") else ""
        lines.append(f"- {who}: {prose(item.get('state'))}, {shown}{f' ± {sigma}' if sigma else ''}{reason}")
    return _section("Clocks", lines)


def _others(document: view.Document) -> list[str]:
    items = view.rows(document.get("other_jobs"))
    lines = [f"- {code(item.get('id') or 'job')}: {prose(item.get('headline'))}" for item in items]
    return _section("Other jobs in these logs", lines)


def _losses(document: view.Document) -> list[str]:
    lost = [row for row in view.skipped(document) if row.get("lost")]
    lines = [
        f"- {code(row.get('path'))}, {text.size(row.get('bytes'))}: {_closed(row.get('reason'))}"
        for row in lost[:MAX_LOSSES]
    ]
    if len(lost) > MAX_LOSSES:
        lines.append(f"- {text.plural(len(lost) - MAX_LOSSES, 'more row')} in the HTML report.")
    return _section("Not read", lines)


def _made(document: view.Document) -> list[str]:
    ledger, tool = view.part(document, "ledger"), view.part(document, "tool")
    files = text.plural(len(view.rows(document.get("sources"))), "file")
    facts = [f"{files}, {text.size(ledger.get('scanned'))} of {text.size(ledger.get('bytes'))} scanned"]
    facts += [f"postmortem {prose(tool.get('version'))}"] if tool.get("version") else []
    facts += [f"fingerprint {code(document.get('fingerprint'))}"] if document.get("fingerprint") else []
    return [f"---\n\n{', '.join(facts)}"]
