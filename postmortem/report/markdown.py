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
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from postmortem.errors import ours
from postmortem.report import causes, groups, summary, text, view
from postmortem.report.templates import environment

if TYPE_CHECKING:
    from jinja2 import Environment

T = TypeVar("T")

SECTIONS = (
    "verdict", "attempts", "causes", "actions", "missing", "chain", "alternatives", "ranks", "stacks", "evidence",
    "clocks", "others", "losses", "made",
)  # fmt: skip
END = "\0"  # of a part in the template; `text` writes it out in any other place
LIMIT = 60_000
BRIEF = 2_000  # the part of a message that a chat shows
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

    Parts are added in reading order; those beyond the limit are counted. An internal error costs one section.
    """
    document, limit = incident.document, BRIEF if brief else LIMIT
    parts: list[str] = []
    failed: list[str] = []
    for name in ("brief", "made") if brief else SECTIONS:
        make = partial(_shortened if name == "brief" else _section, document, name)
        parts += guarded(f"section {name}", make, list[str](), failed)
    parts += [f"**Incomplete.** {_closed(why)}" for why in failed]
    done: list[str] = []
    used = 200
    for part in parts:
        if used + len(part) + 2 <= limit:
            done.append(part)
            used += len(part) + 2
    if dropped := len(parts) - len(done):
        left_out = f"{text.plural(dropped, 'block')} left out to keep this under {limit:,} characters"
        done.append(f"*{left_out}; the HTML report has all of it.*")
    return "\n\n".join(done) + "\n"


def _section(document: view.Document, name: str, *wide: int) -> list[str]:
    """Return the parts of a section of the template."""
    verdict = view.part(document, "verdict")
    values = {"document": document, "verdict": verdict, "outcome": view.known(verdict.get("outcome"))}
    macros = templates().get_template("report.md").make_module(values)
    rendered: str = getattr(macros, f"section_{name}")(*wide)
    return [part for found in rendered.split(END) if (part := found.strip())]


def _shortened(document: view.Document, name: str) -> list[str]:
    """Return the verdict for a chat, with shorter texts until it fits."""
    found: list[str] = []
    for wide in (400, 200, 100, 40):
        found = _section(document, name, wide)
        if sum(len(part) + 2 for part in found) <= BRIEF - 400:  # room for the last line
            break
    return found


@lru_cache(maxsize=1)
def templates() -> Environment:
    """Return the environment of Markdown templates, in which filters and not autoescape make a text inert."""
    made = environment().overlay(autoescape=False, finalize=view.known)
    made.filters |= {
        "prose": prose,
        "code": code,
        "closed": _closed,
        "advice": _advice,
        "fenced": fenced,
        "numbered": _numbered,
        "cited": _cited,
    }
    made.tests["in_doubt"] = _in_doubt
    made.globals |= {"causes": causes, "groups": groups, "end": END}
    return made


def render_chat(incident: view.Incident) -> str:
    """Return the verdict as text for Slack, whose markup is not Markdown."""
    document = incident.document
    proofs = [f"`{text.line(p.address, 200)}`\n```{text.line(p.text, 400)}```" for p in view.proofs(document)[:1]]
    actions = [f"{n}. {text.sentence(words, 300)}" for n, words in enumerate(view.action_lines(document)[:3], 1)]
    usual = [text.sentence(f"Usual cause: {cause}", 400)] if (cause := causes.first(document)) else []
    first, effects = view.lead(document)
    head = (f"*{first}*", effects, " · ".join(summary.facts(document)), view.incomplete(document))
    return "\n".join(filter(None, [*head, *proofs, *usual, *actions]))


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


def _closed(words: object) -> str:
    """Return prose that ends with a period."""
    return f"{prose(words).rstrip('.')}."


def _advice(words: object) -> str:
    """Return prose that ends with a period; parts between backticks are code."""
    pieces = view.known(words).rstrip(".").split("`")
    if len(pieces) % 2 == 0:
        return _closed(words)
    spaced = (" " * p[:1].isspace() + prose(p) + " " * p[-1:].isspace() for p in pieces[::2])
    pieces[::2] = spaced
    pieces[1::2] = map(code, pieces[1::2])
    return f"{''.join(pieces)}."


def _numbered(proof: view.Proof, around: int = 2) -> list[str]:
    """Return the decisive line and those `around` it behind their numbers."""
    at = next((n for n, line in enumerate(proof.lines) if line.decisive), 0)
    shown = proof.lines[max(at - around, 0) : at + around + 1]
    wide = max((len(str(line.number)) for line in shown if line.number is not None), default=0)
    return [
        f"{'>' if line.decisive else ' '} {view.known(line.number):>{wide}} | {text.line(line.text)}" for line in shown
    ]


def _in_doubt(clock: view.Document) -> bool:
    """Whether a clock's times were corrected by seconds, may be wrong by seconds, or are of no use."""
    corrected = clock.get("kind") != "boot" and abs(text.finite(clock.get("offset_s"))) >= 1
    return corrected or clock.get("state") == "refused" or text.finite(clock.get("uncertainty_s")) >= 1


def _cited(proofs: Iterable[view.Proof]) -> list[str]:
    """Return the address, the time and the text of each line."""
    return [
        "  ".join(filter(None, (text.line(p.address, 200), p.moment, text.line(p.text.strip(), 300)))) for p in proofs
    ]
