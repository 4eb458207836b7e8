"""The usual causes of the verdict, for a page, a terminal and a chat.

1. likely: The host ran out of memory, and the kernel killed the process
   For: one rank alone ended this way (agent.err:41)        check: dmesg -T | grep -iE 'killed process|out of memory'
"""

from __future__ import annotations

from dataclasses import dataclass

from postmortem.report import text, view

OPEN = 3  # rows that are shown unfolded
UNDECIDED = "These logs do not distinguish them; they are listed by frequency."


@dataclass(frozen=True, slots=True)
class Usual:
    """One row. `for_` and `against` are empty where no sign was found."""

    title: str
    likelihood: str
    for_: str
    against: str
    check: str
    command: bool  # whether `check` is one
    expect: str
    fix: str

    @property
    def line(self) -> str:
        """Its name, and why it is in this place."""
        signs = (f"For: {self.for_}" if self.for_ else "", f"Against: {self.against}" if self.against else "")
        return ". ".join(filter(None, (f"{self.title} ({self.likelihood})", *signs)))


def usual(document: view.Document) -> list[Usual]:
    """Return the rows, best first; none in documents of versions without them."""
    return [
        Usual(
            view.known(row.get("title")),
            view.known(row.get("likelihood")),
            _signs(row.get("for")),
            _signs(row.get("against")),
            text.line(view.known(row.get("check")), 400),
            bool(row.get("command")),
            view.known(row.get("expect")),
            view.known(row.get("fix")),
        )
        for row in view.rows(document.get("causes"))
        if row.get("title")
    ]


def note(found: list[Usual]) -> str:
    """Return a sentence where no sign speaks for or against any row."""
    return UNDECIDED if found and not any(row.for_ or row.against for row in found) else ""


def first(document: view.Document) -> str:
    """Return the first row with its signs and its check; empty where there is none."""
    return next((f"{row.line}. Check: {row.check}" for row in usual(document)), "")


def lines(document: view.Document) -> list[str]:
    """Return two lines for each of the first rows: the cause with its signs, and the check."""
    found = usual(document)[:OPEN]
    return [line for row in found for line in (row.line, f"check: {row.check}")]


def _signs(value: object) -> str:
    return "; ".join(_sign(row) for row in view.rows(value) if row.get("text"))


def _sign(row: dict[str, object]) -> str:
    source, line = view.known(row.get("source")), view.whole(row.get("line"))
    address = f"{source}:{line}" if source and line is not None else source
    return f"{view.known(row.get('text'))} ({text.line(address, 200)})" if address else view.known(row.get("text"))
