"""The verdict on a terminal: short, aligned, readable at 80 columns, without color, in a CI log.

    INCIDENT  host memory · established (a log line names the cause, and the logs prove who failed)

    Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …

      culprit  rank 3 · host node-b · pid 29502
      proof    node-b/dmesg.txt:81  [ 2240.704416] Memory cgroup out of memory: Killed …

Log text is printed as visible characters; the only escapes are the colors of this module.
"""

from __future__ import annotations

from postmortem.report import causes, summary, text, view
from postmortem.say.consistency import contradictions

LABEL = 11  # columns of the labels on the left
PAINT = {"bold": "1", "dim": "2", "cause": "1;31", "good": "1;32", "doubt": "1;33"}
TONE = {"incident": "cause", "recovered": "doubt", "healthy": "good", "undetermined": "doubt"}


def render_terminal(incident: view.Incident, *, width: int = 80, color: bool = False, report: str = "") -> str:
    """Return the verdict; `report` is the path of the report, named last."""
    document = incident.document
    page = Page(width, color)
    verdict = view.part(document, "verdict")
    page.head(document)
    page.blank()
    first, effects = view.lead(document)
    page.paragraph(first, "bold")
    if effects:
        page.paragraph(effects, "")
    page.blank()
    page.field("job", list(filter(None, [" · ".join(summary.facts(document))])))
    page.field("command", [text.line(command, 300)] if (command := view.part(document, "job").get("command")) else [])
    page.field("unread", _sentences([view.incomplete(document)]), "doubt")
    facts = " · ".join(text.sentence(f"{label} {value}", 200) for label, value in view.culprit(document))
    page.field("culprit" if view.blamed(document) else "where", [facts] if facts else [])
    page.proof(view.proofs(document))
    page.field("stuck in", _sentences([summary.collective(document)]))
    page.field("numbers", _sentences(summary.numbers(document)), numbered=False)
    page.field("attempts", _sentences([a.line for a in summary.attempts(document)], 300), numbered=False)
    page.field("history", _sentences([summary.history(document)], 600))
    page.field("changed", _sentences(summary.changes(document), 600), numbered=False)
    page.field("because", _sentences(view.words(verdict.get("because"))[:4]))
    page.causes(causes.lines(document))
    page.field("do", _sentences([action for _, action in view.actions(document)[:4]]))
    page.field("missing", [_missing(item) for item in view.rows(verdict.get("missing"))[:3]])
    others = [view.known(item.get("headline")) for item in view.rows(document.get("other_jobs"))[:3]]
    page.field("others", _sentences(others, 200))
    if report:
        page.field("report", [text.line(report, 4096)], whole=True)
    return page.text()


def _sentences(items: list[str], limit: int = 400) -> list[str]:
    return [text.sentence(item, limit) for item in items if item]


def _missing(item: dict[str, object]) -> str:
    what, how = (text.sentence(view.known(item.get(name)), limit) for name, limit in (("what", 200), ("how", 300)))
    return f"{what}: {how}" if what and how else what or how


class Page:
    """Lines for a terminal of this width, between 40 and 120 columns."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color, self.lines = max(min(width, 120), 40), color, list[str]()

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines) + "\n"

    def blank(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def paint(self, words: str, tone: str) -> str:
        return f"\x1b[{PAINT[tone]}m{words}\x1b[0m" if self.color and words and tone in PAINT else words

    def head(self, document: view.Document) -> None:
        """Add the outcome, the category and the confidence, whose meaning is omitted if too long."""
        outcome = view.known(view.part(document, "verdict").get("outcome"))
        word, _, meaning = summary.confidence(document)
        first = text.sentence(view.outcome(document), 40).upper()
        category = text.sentence(view.category(document), 40)
        rest = " · ".join(filter(None, (category, f"{word} ({meaning})" if word else "")))
        if word == "established" and len(first) + 2 + text.cells(rest) > self.width:
            rest = " · ".join(filter(None, (category, word)))
        lines = wrap(f"{first}  {rest}" if rest else first, self.width)
        self.lines.append(
            self.paint(first, "" if view.is_open(document) else TONE.get(outcome, "doubt")) + lines[0][len(first) :]
        )
        self.lines += lines[1:]

    def paragraph(self, words: str, tone: str) -> None:
        self.lines += [self.paint(line, tone) for line in wrap(words, self.width)]

    def field(self, label: str, items: list[str], tone: str = "", whole: bool = False, numbered: bool = True) -> None:
        """Add a label and its items, each on its own line, several of them numbered. `whole` does not wrap them."""
        numbered = numbered and len(items) > 1
        for place, item in enumerate(items, 1):
            sign = f"{place}. " if numbered else ""
            room = self.width - LABEL - len(sign)
            for count, line in enumerate([item] if whole else wrap(item, room)):
                name = self.paint(f"  {label:<{LABEL - 2}}", "dim") if place == 1 and count == 0 else " " * LABEL
                self.lines.append(name + (sign if count == 0 else " " * len(sign)) + self.paint(line, tone))

    def causes(self, lines: list[str]) -> None:
        """Add a numbered pair of lines for each usual cause, its check below it."""
        for number, (name, check) in enumerate(zip(lines[::2], lines[1::2], strict=True), 1):
            label = self.paint(f"  {'usually':<{LABEL - 2}}", "dim") if number == 1 else " " * LABEL
            first, *more = wrap(text.sentence(name, 300), self.width - LABEL - 3)
            self.lines.append(f"{label}{number}. {first}")
            self.lines += [" " * (LABEL + 3) + line for line in (*more, text.line(check, 400))]

    def proof(self, proofs: list[view.Proof]) -> None:
        """Add `path:line  text` of the first evidence. The address is never broken, so that it can be copied."""
        if not proofs:
            return
        address, line = text.line(proofs[0].address, 1024), text.line(proofs[0].text.strip(), 300)
        inline = f"{address}  {line}"
        lines = [inline] if text.cells(inline) <= self.width - LABEL else [address, *wrap(line, self.width - LABEL)[:4]]
        self.field("proof", [lines[0]], "bold", whole=True)
        self.lines += [" " * LABEL + line for line in lines[1:]]


def wrap(words: str, width: int) -> list[str]:
    """Break at blanks, and words that are too long at the end of the line. Counts columns, not characters."""
    lines, current, used = list[str](), "", 0
    for word in words.split(" "):
        length = text.cells(word)
        if current and used + 1 + length <= width:
            current, used = f"{current} {word}", used + 1 + length
            continue
        if current:
            lines.append(current)
        while text.cells(word) > width:
            cut = _fitting(word, width)
            lines.append(word[:cut])
            word = word[cut:]
        current, used = word, text.cells(word)
    return [*lines, current] if current or not lines else lines


def _fitting(word: str, width: int) -> int:
    used = 0
    for place, char in enumerate(word):
        used += text.cells(char)
        if used > width:
            return max(place, 1)
    return len(word)


# ── --verbose ───────────────────────────────────────────────────────────────────────────────────────────────────


def render_verbose(incident: view.Incident) -> str:
    """Return how the verdict was reached: findings, explanations and their reasons, steps, rejected causes."""
    from postmortem.report.markdown import templates

    document = incident.document
    steps = view.steps(document)
    explained = []
    for step in steps:
        because = text.sentence(step.because or "no reason is recorded", 400)
        for other in (steps[int(number) - 1] for number in step.explains):
            who = f" of {other.who}" if other.who else ""
            explained.append(text.sentence(f"{step.pattern} explains {other.pattern}{who}: {because}", 500))
    parts = {"document": document, "explained": explained, "contradictions": _contradictions(document)}
    return templates().get_template("verbose.txt").render(parts)


def _contradictions(document: view.Document) -> list[str]:
    """Return statements of the document that contradict each other; each is a defect of ours."""
    try:
        return [*contradictions(document)]
    except (KeyError, TypeError, AttributeError, IndexError):
        return ["not checked: the document is of another version"]
