"""The usual causes -> text for people: one cause under all symptoms, and the page of the catalogue.

host-memory
  killed: The host ran out of memory, and the kernel killed the process (often)
    +2  SIGKILL is the signal of the kernel's OOM killer
    check  dmesg -T | grep -iE 'killed process|out of memory'
"""

from __future__ import annotations

from collections.abc import Iterator

from postmortem.causes import rows
from postmortem.causes.rows import Cause, Sign, Symptom

_WORDS = {number: word for word, number in rows.WEIGHTS.items()}


def known(words: str) -> bool:
    """Return whether this is the id of a cause."""
    return any(cause.id == words for symptom in rows.symptoms() for cause in symptom.causes)


def explain(cause_id: str) -> str:
    """Return the rows of one cause under each symptom, for an engineer on call."""
    found = [(symptom, cause) for symptom in rows.symptoms() for cause in symptom.causes if cause.id == cause_id]
    return "\n".join([cause_id, *(line for symptom, cause in found for line in _explained(symptom, cause))]) + "\n"


def _explained(symptom: Symptom, cause: Cause) -> Iterator[str]:
    yield from ("", f"  {symptom.id}: {cause.title} ({_WORDS[cause.weight]})")
    yield from (f"    {_effect(sign):4}{sign.says}" for sign in cause.signs if sign.says)
    yield f"    {'check' if cause.command else 'look at'}  {cause.check}"
    yield from (f"    then   {cause.expect}", f"    fix    {cause.fix}")
    if cause.replay:
        yield f"    try    postmortem replay {cause.replay}"
    yield from (f"    see    {source}" for source in cause.sources)


def _effect(sign: Sign) -> str:
    return f"{sign.effect:+d}" if sign.effect is not None else "no"


def page() -> Iterator[str]:
    """Yield the lines of the catalogue's page: a table for each symptom. `{…}` in a check is filled in for a job."""
    for symptom in rows.symptoms():
        yield from (f"## {symptom.id}", "", f"{symptom.title}.", "")
        yield from ("| cause | before any sign | signs | check | fix |", "|---|---|---|---|---|")
        for cause in symptom.causes:
            signs = "; ".join(f"{_effect(sign)} {sign.says}" for sign in cause.signs if sign.says)
            check = f"`{cause.check}`" if cause.command else cause.check
            cells = (f"`{cause.id}` {cause.title}", _WORDS[cause.weight], signs, check, cause.fix)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""
