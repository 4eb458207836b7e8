"""A pattern's title in a sentence: with its subject, or behind a colon."""

from __future__ import annotations

import re

_DOER = re.compile(r"A (?:rank|process) (?!of |with |number |group )")
_PLURAL = (("was ", "were "), ("is ", "are "), ("has ", "have "), ("does ", "do "))
_COMMON = frozenset({
    "A", "An", "Another", "The", "One", "Two", "Not", "No", "Some", "All", "Tensor", "Tensors", "Rank",
    "Ranks", "Parameters", "Shared", "Memory", "Processes", "Opening", "Probabilities", "Gradients",
    "Samples", "Anomaly", "Exception", "Loading", "Mounting", "Somebody",
})  # fmt: skip


def entitled(title: str, subject: str, many: bool = False) -> str:
    """Return a title with its subject: `A process ran out …` and `Rank 1` become `Rank 1 ran out …`."""
    if not subject:
        return title
    if title.startswith("Xid "):
        return f"{subject} reported {title}"
    if many and title.startswith("Ranks "):
        return f"{subject} {title[6:]}"
    if title.startswith("A GPU ") and subject.startswith("GPU "):
        return subject + title[5:]
    if (doer := _DOER.match(title)) is None:
        return f"{subject}: {inside(title)}"
    predicate = title[doer.end() :]
    one, more = next((pair for pair in _PLURAL if many and predicate.startswith(pair[0])), ("", ""))
    return f"{subject} {more}{predicate.removeprefix(one)}"


def inside(title: str) -> str:
    """Return a title for use after a colon: only words that are no names lose their capital."""
    first = title.split(" ", 1)[0]
    return title[0].lower() + title[1:] if first in _COMMON else title
