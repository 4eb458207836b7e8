"""The incident -> the verdict on a terminal: short, aligned, readable at 80 columns,
without colour, in a CI log.

    INCIDENT  host memory · established (a log line says so, and the logs prove who failed)

    Rank 3 on node-b was killed by the kernel's OOM killer at 21:13:48; …

      culprit  rank 3 · host node-b · pid 29502
      proof    node-b/dmesg.txt:81  [ 2240.704416] Memory cgroup out of memory: Killed …

Log text reaches the terminal as characters one can see; the only escapes are our own colours.
"""

from __future__ import annotations

from collections.abc import Iterable

from postmortem.report import attempts, collective, labels, recurrence, text, view

LABEL = 11  # columns of the labels on the left
PAINT = {"bold": "1", "dim": "2", "cause": "1;31", "good": "1;32", "doubt": "1;33"}
TONE = {"incident": "cause", "recovered": "doubt", "healthy": "good", "undetermined": "doubt"}


def render_terminal(incident: view.Incident, *, width: int = 80, colour: bool = False, report: str = "") -> str:
    """Return the verdict; `report` is the path of the report, named last."""
    document = incident.document
    page = Page(max(min(width, 120), 40), colour)
    verdict = view.part(document, "verdict")
    notice = view.incomplete(document)
    page.head(document)
    page.blank()
    page.paragraph(view.headline(document), "bold")
    page.blank()
    if notice:
        page.field("unread", [notice], "doubt")
    page.field(
        "culprit" if view.blamed(document) else "where",
        _joined(f"{label} {value}" for label, value in view.culprit(document)),
    )
    page.proof(view.proofs(document))
    page.field("stuck in", [text.sentence(said, 400) for said in (collective.sentence(document),) if said])
    lives = [text.sentence(life.line, 300) for life in attempts.attempts(document)]
    page.field("attempts", lives, numbered=False)
    page.field("history", [text.sentence(said, 600) for said in (recurrence.sentence(document),) if said])
    page.field("because", [text.sentence(item, 400) for item in view.words(verdict.get("because"))[:4]])
    page.field("do", [text.sentence(said, 400) for _, said in view.todo(document)[:4]])
    page.field("missing", [_missing(item) for item in view.rows(verdict.get("missing"))[:3]])
    others = [view.known(item.get("headline")) for item in view.rows(document.get("other_jobs"))[:3]]
    page.field("others", [text.sentence(item, 200) for item in others if item])
    if report:
        page.field("report", [text.line(report, 4096)], whole=True)
    return page.text()


def _joined(items: Iterable[str]) -> list[str]:
    shown = " · ".join(text.sentence(item, 200) for item in items)
    return [shown] if shown else []


def _missing(item: dict[str, object]) -> str:
    what, how = (
        text.sentence(view.known(item.get("what")), 200),
        text.sentence(view.known(item.get("how")), 300),
    )
    return f"{what}: {how}" if what and how else what or how


class Page:
    """Lines of the terminal in the making: knows the width and whether colour is wanted."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width, self.colour, self.lines = width, colour, list[str]()

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines) + "\n"

    def blank(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def paint(self, words: str, tone: str) -> str:
        return f"\x1b[{PAINT[tone]}m{words}\x1b[0m" if self.colour and words and tone in PAINT else words

    def head(self, document: view.Document) -> None:
        outcome = view.known(view.part(document, "verdict").get("outcome"))
        word, _, meaning = view.confidence(document)
        first = text.sentence(labels.OUTCOMES.get(outcome, outcome) or "Undetermined", 40).upper()
        facts = [text.sentence(view.category(document), 40), f"{word} ({meaning})" if word else ""]
        rest = " · ".join(fact for fact in facts if fact)
        if len(first) + 2 + text.cells(rest) > self.width:
            rest = " · ".join(fact for fact in (facts[0], word) if fact)
        lines = wrap(f"{first}  {rest}" if rest else first, self.width)
        self.lines.append(self.paint(first, TONE.get(outcome, "doubt")) + lines[0][len(first) :])
        self.lines += lines[1:]

    def paragraph(self, words: str, tone: str) -> None:
        self.lines += [self.paint(line, tone) for line in wrap(words, self.width)]

    def field(self, label: str, items: list[str], tone: str = "", whole: bool = False, numbered: bool = True) -> None:
        """A label and its items, each on a line of its own; several items are numbered.
        `whole` keeps an item unwrapped."""
        numbered = numbered and len(items) > 1
        for place, item in enumerate(items, 1):
            sign = f"{place}. " if numbered else ""
            room = self.width - LABEL - len(sign)
            for count, line in enumerate([item] if whole else wrap(item, room)):
                name = self.paint(f"  {label:<{LABEL - 2}}", "dim") if place == 1 and count == 0 else " " * LABEL
                self.lines.append(name + (sign if count == 0 else " " * len(sign)) + self.paint(line, tone))

    def proof(self, found: list[view.Proof]) -> None:
        """`path:line  text` of the first piece of evidence;
        the address is never broken, so that it can be copied."""
        if not found:
            return
        first = found[0]
        address, said = text.line(first.address, 1024), text.line(first.text.strip(), 300)
        inline = f"{address}  {said}"
        lines = [inline] if text.cells(inline) <= self.width - LABEL else [address, *wrap(said, self.width - LABEL)[:4]]
        self.field("proof", [lines[0]], "bold", whole=True)
        self.lines += [" " * LABEL + line for line in lines[1:]]


def wrap(words: str, width: int) -> list[str]:
    """Break at blanks; what has none is broken where the line ends. Counts columns, not characters."""
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
